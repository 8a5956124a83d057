"""Gates that end a model: where nothing is multiplied with them, all the explained number is theirs to pass on.

A gate is a constant factor: what it multiplies gets all relevance. A probability at the end of a model multiplies
nothing, so no relevance would flow at all. There the gate is read as what it adds to its value at rest:

    f(x) = f(0) + (f(x) - f(0)),  the second term by the identity rule of [AttnLRP] Eq. 9, f(0) a constant.

A softmax is the sigmoid of the log-odds u_c = x_c - log(sum(exp(x_i)), i not c), and those are linear in x
(`relprop.ops.SOFT_MAXIMA`), so that two classes are explained as by a sigmoid of their difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from relprop.rulebook.elementwise import POINTWISE_GATES, constant_ratio, number_of

Func = Callable[..., Any]
UNBOUNDED = {"log", "log2", "log10"}  # without a finite value at 0


class _FromRest(torch.autograd.Function):
    """y = f(x), whose backward pass multiplies by (f(x) - f(0)) / x, and by 0 where x = 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, rest: Tensor) -> Tensor:
        ctx.save_for_backward(torch.where(x == 0, 0, (y - rest) / x))
        return y.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (ratio,) = ctx.saved_tensors
        return grad * ratio, None, None


def from_rest(func: Func, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """A function of one tensor, as what it adds to f(0)."""
    with torch.no_grad():
        y, rest = (func(one, *args, **kwargs) for one in (x.detach(), torch.zeros_like(x)))
    return _FromRest.apply(x, y, rest)


class _Odds(torch.autograd.Function):
    """p = softmax(x) = sigmoid(u), where u = log(p / (1 - p)) flows back with the shares of the others constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: Tensor, dim: int) -> Tensor:
        ctx.save_for_backward(x, p)
        ctx.dim = dim
        return p.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, p = ctx.saved_tensors
        others = (1 - p).clamp_min(torch.finfo(p.dtype).tiny)
        u = torch.log_softmax(x, ctx.dim) - others.log()
        own = grad * torch.where(u.abs() < 1e-6, 0.25, (p - 0.5) / u)  # dR/du; the limit at u = 0 is 1/4
        weights = own / others
        return own - p * (weights.sum(ctx.dim, keepdim=True) - weights), None, None


def odds(func: Func, x: Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A softmax as the sigmoid of its log-odds."""
    named = kwargs if dim is None else {"dim": dim, **kwargs}
    with torch.no_grad():
        p = func(x.detach(), *(() if dim is None else (dim,)), *args, **kwargs)
    return _Odds.apply(x.to(p.dtype), p, named["dim"])


def opened(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], ratios: bool) -> Func | None:
    """How a gate of this name passes on what it adds to its value at rest; None where that is not known.

    `ratios`: the rules pass activations by the identity rule, else by their gradient.
    """
    x = args[0] if args else None
    if not isinstance(x, Tensor) or not x.requires_grad or not x.is_floating_point():
        return None
    alone = not any(isinstance(one, Tensor) and one.requires_grad for one in (*args[1:], *kwargs.values()))
    if name == "softmax" and isinstance(args[1] if len(args) > 1 else kwargs.get("dim"), int):
        return odds
    if name in POINTWISE_GATES and name not in UNBOUNDED and alone:
        return from_rest
    if name == "sqrt" or (name == "pow" and len(args) > 1 and (number_of(args[1]) or 0) > 0):
        return constant_ratio if ratios else _native
    return _native if name == "norm" else None


def _native(func: Func, *args: Any, **kwargs: Any) -> Any:
    return func(*args, **kwargs)
