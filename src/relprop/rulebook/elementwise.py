"""Activations and gates: functions of one live tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

Func = Callable[..., Any]


def gate(func: Func, *args: Any, **kwargs: Any) -> Any:
    """The result is a constant: what it multiplies gets all the relevance."""
    args, kwargs = tree_map(_detached, (args, kwargs))
    return func(*args, **kwargs)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


class _Ratio(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        y: Tensor = func(x, *args, **kwargs)
        ctx.save_for_backward(torch.where(x == 0, 0, y / x))
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (ratio,) = ctx.saved_tensors
        return grad * ratio, None, None, None


def ratio(func: Func, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """f(x) = x * (f(x)/x) with the ratio constant: an activation keeps its relevance [AttnLRP]. For f(0) = 0."""
    return _Ratio.apply(x, func, args, kwargs)


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(torch.where(x == 0, 0, y / x))
        return y.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (ratio,) = ctx.saved_tensors
        return grad * ratio, None


def activation(x: Tensor, y: Tensor) -> Any:
    """y = f(x), however it was computed, as x * (f(x)/x) with the ratio constant."""
    return _Activation.apply(x, y)


def power(func: Func, base: Any, exponent: Any, *args: Any, **kwargs: Any) -> Any:
    """A positive power of a live tensor is an activation; any other power is a gate."""
    positive = isinstance(exponent, int | float) and exponent > 0 and isinstance(base, Tensor)
    return (ratio if positive else gate)(func, base, exponent, *args, **kwargs)


def quotient(func: Func, numerator: Any, denominator: Any, *args: Any, **kwargs: Any) -> Any:
    """A live denominator is a gate."""
    return func(numerator, _detached(denominator), *args, **kwargs)


def solution(func: Func, matrix: Any, right: Any, *args: Any, **kwargs: Any) -> Any:
    """The solution of a linear system is linear in its right-hand side; a live matrix is a gate."""
    return func(_detached(matrix), right, *args, **kwargs)


def sampled(func: Func, x: Any, grid: Any, *args: Any, **kwargs: Any) -> Any:
    """`grid_sample` is linear in what is sampled; where it is sampled is a gate."""
    return func(x, _detached(grid), *args, **kwargs)


def variance_and_mean(func: Func, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """`var_mean` and `std_mean`: the spread is a gate, the mean stays live."""
    spread, mean = func(*args, **kwargs)
    return spread.detach(), mean


SATURATING = {"tanh", "erf"}

# f(0) = 0: an activation on the signal's way. Everything else that is not linear opens or closes the way: a gate.
ACTIVATIONS = (
    "relu", "relu6", "gelu", "silu", "mish", "tanh", "leaky_relu", "elu", "selu", "celu", "prelu", "rrelu",
    "hardtanh", "hardswish", "hardshrink", "softshrink", "tanhshrink", "softsign", "threshold", "erf", "abs", "square",
    "sqrt", "sin", "asinh", "atan", "arctan", "expm1", "log1p", "clamp", "clamp_min", "clamp_max", "round", "floor",
    "ceil", "trunc", "sign", "sgn",
)  # fmt: skip
GATES = (
    "softmax", "log_softmax", "softmin", "gumbel_softmax", "sigmoid", "hardsigmoid", "logsigmoid", "softplus", "exp",
    "exp2", "log", "log2", "log10", "cos", "cosh", "reciprocal", "cumprod", "prod", "logsumexp",
    "logcumsumexp", "logaddexp", "erfc", "var", "std", "rsqrt", "norm", "atan2", "cdist", "cosine_similarity", "ndtr",
    "log_ndtr", "erfcx", "opened",
)  # fmt: skip
POINTWISE_GATES = (
    "sigmoid", "hardsigmoid", "logsigmoid", "softplus", "exp", "exp2", "log", "log2", "log10", "cos", "cosh", "erfc",
    "ndtr", "log_ndtr", "erfcx",
)  # fmt: skip
