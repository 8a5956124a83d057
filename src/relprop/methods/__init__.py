"""Methods: pure functions `method(model, inputs, target, **options)` that return an `Attribution`.

Importing this package fills the registry. Notation in the docstrings: A_b = attention of block b after the softmax,
G_b = its gradient, R_b = its relevance, E_h = mean over heads, ()+ = positive part, I = identity; blocks b = 1..B. The
read-out row is the row of the last block's output that the head reads ([CLS], the last token).
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
