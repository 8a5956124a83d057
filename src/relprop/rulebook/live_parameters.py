"""Calls whose parameters are live, as in layers that another input conditions, written out in calls that have rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Function = Callable[..., Tensor]

# The names of the arguments, up to the parameters that may be live.
_CHANNELS = ("input", "running_mean", "running_var", "weight", "bias")
_ARGUMENTS = {
    "layer_norm": ("input", "normalized_shape", "weight", "bias"),
    "rms_norm": ("input", "normalized_shape", "weight"),
    "group_norm": ("input", "num_groups", "weight", "bias"),
    "batch_norm": _CHANNELS,
    "instance_norm": _CHANNELS,
    "prelu": ("input", "weight"),
    "clamp": ("input", "min", "max"),
    "clamp_min": ("input", "min"),
    "clamp_max": ("input", "max"),
}
_NORMS: dict[str, Function] = {
    "layer_norm": F.layer_norm,
    "rms_norm": F.rms_norm,
    "group_norm": F.group_norm,
    "batch_norm": F.batch_norm,
    "instance_norm": F.instance_norm,
}


def written_out(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Tensor] | None:
    """What to run in place of a call with live parameters; None for other calls."""
    names = _ARGUMENTS.get(name)
    if names is None:
        return None
    parameters = [*args[1 : len(names)], *(kwargs.get(one) for one in names[1:])]
    if not any(isinstance(one, Tensor) and one.requires_grad for one in parameters):
        return None

    def run(*args: Any, **kwargs: Any) -> Tensor:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if name == "prelu":
            return _prelu(given["input"], given["weight"])
        if name not in _NORMS:
            return _clamp(given["input"], given.get("min"), given.get("max"))
        return _norm(name, given, args[len(names) :])

    return run


def _norm(name: str, given: dict[str, Any], rest: tuple[Any, ...]) -> Tensor:
    """The norm alone, then its weight as a factor and its bias as a summand."""
    weight, bias = given.pop("weight", None), given.pop("bias", None)
    settings = {one: value for one, value in given.items() if one not in _ARGUMENTS[name]}
    plain = [given.get(one) for one in _ARGUMENTS[name]]
    y = _NORMS[name](*plain, *rest, **settings)
    spread = [1] * (y.dim() - 2) if name not in ("layer_norm", "rms_norm") else None  # one number per channel
    for parameter, join in ((weight, torch.mul), (bias, torch.add)):
        if parameter is not None:
            y = join(y, parameter if spread is None else parameter.reshape(-1, *spread))
    return y


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    spread = weight if weight.numel() == 1 else weight.reshape(-1, *[1] * (x.dim() - 2))
    return torch.where(x > 0, x, x * spread)


def _clamp(x: Tensor, low: Any, high: Any) -> Tensor:
    for bound, choose in ((low, torch.maximum), (high, torch.minimum)):
        if bound is not None:
            x = choose(x, bound if isinstance(bound, Tensor) else torch.as_tensor(bound).to(x))
    return x
