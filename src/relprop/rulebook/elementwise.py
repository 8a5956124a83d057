"""Activations and gates: functions of one live tensor.

A *gate* is a factor that is held constant: what it multiplies gets all the relevance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from relprop.rulebook.quantised import with_value

Func = Callable[..., Any]


def gate(func: Func, *args: Any, **kwargs: Any) -> Any:
    """The result as a constant ([Ali22] AH-rule for softmax, LN-rule for 1/std): its other factor gets all of R."""
    args, kwargs = tree_map(_detached, (args, kwargs))
    return func(*args, **kwargs)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def logit_of_log_softmax(func: Func, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """log softmax(x) = x - log sum exp(x), the last as a constant: a log-probability's relevance is its logit's."""
    value: Tensor = func(x.detach(), *args, **kwargs)
    return with_value(x.to(value.dtype), value)


class _ConstantRatio(torch.autograd.Function):
    """y = f(x), whose backward pass multiplies by f(x)/x, and by 0 where x = 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        y: Tensor = func(x, *args, **kwargs)
        ctx.save_for_backward(torch.where(x == 0, 0, y / x))
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (ratio,) = ctx.saved_tensors
        return grad * ratio, None, None, None


def constant_ratio(func: Func, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """[AttnLRP] Eq. 9, identity rule: f(x) = x * (f(x)/x) with the ratio constant, for f with f(0) = 0."""
    if x.is_complex():  # |z| is of degree 1: its gradient conserves relevance
        return func(x, *args, **kwargs)
    return _ConstantRatio.apply(x, func, args, kwargs)


def activation(x: Tensor, y: Tensor) -> Any:
    """The identity rule for y = f(x) that is already computed, for instance in several calls."""
    return _ConstantRatio.apply(x, lambda _: y.clone(), (), {})


def number_of(value: Any) -> float | None:
    """The value of a number, or of a constant tensor that holds one."""
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and not value.requires_grad and not value.is_complex() else None
    return float(value) if isinstance(value, int | float) else None


def power(func: Func, base: Any, exponent: Any, *args: Any, **kwargs: Any) -> Any:
    """A positive constant power is an activation ([AttnLRP] Eq. 9); any other power is a gate."""
    number = number_of(exponent)
    positive = number is not None and number > 0 and isinstance(base, Tensor)
    return (constant_ratio if positive else gate)(func, base, exponent, *args, **kwargs)


def quotient(func: Func, numerator: Any, denominator: Any, *args: Any, **kwargs: Any) -> Any:
    """[AttnLRP] Prop. 3.4, as in a normalisation: a live denominator is a gate, the numerator gets all relevance."""
    return func(numerator, _detached(denominator), *args, **kwargs)


def solution(func: Func, matrix: Any, right: Any, *args: Any, **kwargs: Any) -> Any:
    """The solution of a linear system is linear in its right-hand side, which gets all of R; the matrix is a gate."""
    return func(_detached(matrix), right, *args, **kwargs)


def constant_grid(func: Func, x: Any, grid: Any, *args: Any, **kwargs: Any) -> Any:
    """`grid_sample` is linear in the sampled map, which gets all relevance; the sampling positions are a gate."""
    return func(x, _detached(grid), *args, **kwargs)


def log_sum(func: Func, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """`logaddexp`: linear in two live tensors (`ops.SOFT_MAXIMA`); with a constant it is a softplus, a gate."""
    both = all(isinstance(one, Tensor) and one.requires_grad for one in (a, b))
    return (func if both else partial(gate, func))(a, b, *args, **kwargs)


def variance_and_mean(func: Func, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """[Ali22] LN-rule for `var_mean` and `std_mean`: the variance is a gate, the mean stays live."""
    spread, mean = func(*args, **kwargs)
    return spread.detach(), mean


SATURATING = {"tanh", "erf"}

# f(0) = 0: the identity rule applies. Every other function that is not linear is treated as a gate.
ACTIVATIONS = (
    "relu", "relu6", "gelu", "silu", "mish", "tanh", "leaky_relu", "elu", "selu", "celu", "prelu", "rrelu",
    "hardtanh", "hardswish", "hardshrink", "softshrink", "tanhshrink", "softsign", "threshold", "erf", "abs", "square",
    "sqrt", "sin", "asinh", "atan", "arctan", "expm1", "log1p", "clamp", "clamp_min", "clamp_max", "round", "floor",
    "ceil", "trunc", "sign", "sgn",
)  # fmt: skip
GATES = (
    "softmax", "softmin", "gumbel_softmax", "sigmoid", "hardsigmoid", "logsigmoid", "log_sigmoid", "softplus", "exp",
    "exp2", "log", "log2", "log10", "cos", "cosh", "reciprocal", "cumprod", "prod", "erfc", "var", "std", "rsqrt",
    "norm", "acos", "arccos", "atan2", "cosine_similarity", "ndtr", "log_ndtr", "erfcx", "gate_sum",
)  # fmt: skip
POINTWISE_GATES = (
    "sigmoid", "hardsigmoid", "logsigmoid", "log_sigmoid", "softplus", "exp", "exp2", "log", "log2", "log10", "cos",
    "acos", "arccos", "cosh", "erfc", "ndtr", "log_ndtr", "erfcx",
)  # fmt: skip
