"""Methods: pure functions `method(model, inputs, target, **options)` that return an `Attribution`.

Importing this package fills the registry.
"""

from relprop.methods import attention, baseline, decomposition, flow, gradient, perturbation, relevance, shapley

__all__ = [
    "attention",
    "baseline",
    "decomposition",
    "flow",
    "gradient",
    "perturbation",
    "relevance",
    "shapley",
]
