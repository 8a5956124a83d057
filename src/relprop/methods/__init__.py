"""Methods: pure functions `method(model, inputs, target, **options)` that return an `Attribution`.

Importing this package tells the registry which module holds which method. Notation in the docstrings: A_b = attention
of block b after the softmax, G_b = its gradient, R_b = its relevance, E_h = mean over heads, ()+ = positive part, I =
identity; blocks b = 1..B. The read-out row is the row of the last block's output that the head reads ([CLS], the last
token).
"""

import sys
from types import ModuleType
from typing import Any, overload

from relprop.registry import METHODS, Record, RecordList

DEFAULT = "lrp_conservative"
# Where it is another: docs/decisions/0029-the-default-of-pictures.md and 0030-the-default-of-texts.md
OF_PICTURES = "lrp_full"
OF_CLASSES = "lrp_blend"

_METHODS_OF = {
    "attention": "attention_last rollout gae cam grad_cam grad_sam attcat",
    "baseline": "random",
    "decomposition": "alti decompx",
    "flow": "attention_flow",
    "gradient": "gradient gradient_x_input integrated_gradients smoothgrad",
    "perturbation": "occlusion",
    "relevance": "lrp_ah lrp_ln lrp_ah_ln lrp_conservative lrp_carried lrp_softmax lrp_gamma attn_lrp gim "
    "lrp_full lrp_blend lrp partial_lrp transformer_attribution mask_lrp",
    "shapley": "shapley",
}
for _module, _names in _METHODS_OF.items():
    METHODS.homes |= dict.fromkeys(_names.split(), f"{__name__}.{_module}")
# Of two texts, not of any input.
METHODS.special_homes |= {"bilrp": f"{__name__}.similarity"}


def default_method(reads: str, classes: bool = False) -> str:
    """The method that is taken where none is named, by what a model reads ("texts", "images", "graphs", ...).

    `classes`: it gives classes, or one number, of the whole of it.
    """
    return OF_PICTURES if reads == "images" else OF_CLASSES if reads == "texts" and classes else DEFAULT


class _CallableModule(ModuleType):
    """`relprop.methods` is this package; called, it is the list of methods."""

    def __call__(self, name: str | None = None) -> Any:
        return methods() if name is None else methods(name)


@overload
def methods() -> RecordList: ...
@overload
def methods(name: str) -> Record[Any]: ...
def methods(name: str | None = None) -> RecordList | Record[Any]:
    """All methods, the defaults first, with what they do, their options and sources; or the one of this name."""
    if name is not None:
        return METHODS[name]
    first = [OF_CLASSES, OF_PICTURES, DEFAULT]
    every = {record.name: record for record in METHODS.every()}
    return RecordList([every[name] for name in [*first, *(name for name in every if name not in first)]])


sys.modules[__name__].__class__ = _CallableModule
