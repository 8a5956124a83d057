"""Methods: pure functions `method(model, inputs, target, **options)` that return an `Attribution`.

Importing this package fills the registry.
"""

from relprop.methods import attention, baseline, flow, gradient, perturbation, relevance

__all__ = ["attention", "baseline", "flow", "gradient", "perturbation", "relevance"]
