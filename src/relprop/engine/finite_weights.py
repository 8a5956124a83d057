"""Parameters that are not finite numbers: a fused kernel may hide a NaN, so that the output looks like any other."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn
from torch.nn import Parameter

from relprop.errors import ModelError

_searched: weakref.WeakKeyDictionary[nn.Module, tuple[Any, ...]] = weakref.WeakKeyDictionary()


def check_weights(model: nn.Module) -> None:
    """Raises if a parameter has a number that is not finite; searched once, and again after a parameter has changed.

    Changes are seen by torch's version counters: a write through `.data` is not.
    """
    state = tuple((one.data_ptr(), _version(one)) for one in model.parameters() if _is_dense(one))
    if _searched.get(model) == state:
        return
    for name, parameter in model.named_parameters():
        if _is_dense(parameter) and not _is_finite(parameter):
            raise ModelError(
                f'the model\'s weights are not finite numbers: its parameter "{name}" holds a NaN or an infinity'
            )
    _searched[model] = state


def _is_dense(parameter: Parameter) -> bool:
    """Whether its numbers can be read: not offloaded, nor of a quantiser, whose parameters are of other types."""
    return type(parameter) is Parameter and parameter.is_floating_point() and not parameter.is_meta


def _version(parameter: Parameter) -> int:
    return -1 if parameter.is_inference() else parameter._version


def _is_finite(parameter: Parameter) -> bool:
    with torch.no_grad():
        total = parameter.sum(dtype=torch.float32)  # finite, unless a number is not or the sum overflows
        return bool(total.isfinite()) or bool(parameter.isfinite().all())
