"""The relevance-carrying rules of [Chefer21]: what flows back is relevance itself, and its total stays the same.

A rule is a function that shares R out: `share(R, y, *args)` says what of the relevance R of y = f(*args) each live
argument gets. S(a, b) = a / b, and 0 where b = 0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.rulebook import elementwise
from relprop.rulebook.quantised import rounded
from relprop.rulebook.relevance_flow import ALONE as ALONE
from relprop.rulebook.relevance_flow import Func, Shares, per_example, ruled
from relprop.rulebook.relevance_flow import OneWayError as OneWayError
from relprop.rulebook.relevance_flow import Phase as Phase
from relprop.rulebook.relevance_flow import Way as Way
from relprop.rulebook.relevance_flow import safe_divide as safe_divide


def linear(func: Func, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, way: Way = ALONE) -> Tensor:
    """A linear layer by the z+ rule. A constant bias takes nothing."""
    if weight.requires_grad or (bias is not None and bias.requires_grad):
        product = matmul(torch.matmul, x, weight.t(), way=way)
        result = product if bias is None else add(torch.add, product, bias, way=way)
        return _valued(result, func, x, weight, bias)
    return ruled(way, func, positive_products, x, weight, bias)


def _valued(result: Tensor, func: Func, *args: Any) -> Tensor:
    """The graph of `result` with the operation's own value, which is rounded differently."""
    with torch.no_grad():
        value = func(*(arg.detach() if isinstance(arg, Tensor) else arg for arg in args))
    return rounded(result, value)


def positive_products(
    relevance: Tensor, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, stabiliser: float
) -> Shares:
    """z+ rule: only products x_j w_ji >= 0 count. Z = (xW + |x||W|)/2, R_x = [x(S W^T) + |x|(S |W|^T)]/2, S = R/Z.

    xW is the result at hand without its bias. Rows that no relevance reaches are left out: all but one, in a last block
    that the head reads one row of.
    """
    r, y, own = (tensor.reshape(-1, tensor.shape[-1]) for tensor in (relevance, y, x))
    reached = (r != 0).any(-1).nonzero().flatten()
    rows = len(r)
    few = len(reached) < rows // 2
    if few:
        r, y, own = r[reached], y[reached], own[reached]
    size, strength = own.abs(), weight.abs()
    absolute = F.linear(size, strength)
    z = y + absolute if bias is None else (y - bias).add_(absolute)  # 2Z
    scale = absolute if bias is None else absolute.add_(bias.abs())
    s = _divide(r, z, scale, weight.shape[1], stabiliser)
    share = (s @ weight).mul_(own).addcmul_(s @ strength, size)
    if few:
        share = x.new_zeros(rows, x.shape[-1]).index_copy_(0, reached, share)
    return share.reshape(x.shape), None, None


def _divide(relevance: Tensor, z: Tensor, scale: Tensor, count: int, stabiliser: float) -> Tensor:
    """R / 2Z, and 0 where Z, the difference of two sums of `count` numbers of this scale, is but their rounding."""
    nothing = z <= scale * (4 * count**0.5 * torch.finfo(z.dtype).eps)
    return torch.div(relevance, z + 2 * stabiliser if stabiliser else z).masked_fill_(nothing, 0)


def add_matmul(
    func: Func,
    bias: Tensor,
    x: Tensor,
    weight: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    way: Way = ALONE,
) -> Tensor:
    """`addmm(bias, x, W)`: a linear layer with the weight the other way round (GPT-2's Conv1D)."""
    if bias.requires_grad or weight.requires_grad or not x.requires_grad:
        product = matmul(torch.matmul, x, weight, way=way)
        product = product if alpha == 1 else unchanged(torch.mul, product, alpha, way=way)
        if beta != 0:
            scaled = bias if beta == 1 else unchanged(torch.mul, bias, beta, way=way)
            product = add(torch.add, scaled, product, way=way)
        return _valued(product, lambda *given: func(*given, beta=beta, alpha=alpha), bias, x, weight)

    def call(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return func(bias, x, weight, beta=beta, alpha=alpha)  # type: ignore[no-any-return]

    def share(relevance: Tensor, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, stabiliser: float) -> Shares:
        return positive_products(relevance, y, x, (weight * alpha).t(), bias * beta, stabiliser)

    return ruled(way, call, share, x, weight, bias)


def convolution(
    func: Func,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *args: Any,
    way: Way = ALONE,
    **kwargs: Any,
) -> Tensor:
    """A convolution by the z+ rule."""
    return _layer(lambda x, w, b: func(x, w, b, *args, **kwargs), x, weight, bias, _positive_products, way)


def split_linear(
    func: Func,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *args: Any,
    way: Way = ALONE,
    **kwargs: Any,
) -> Tensor:
    """A linear layer or convolution by the released code's LRP."""
    return _layer(lambda x, w, b: func(x, w, b, *args, **kwargs), x, weight, bias, split_products, way)


def _layer(layer: Func, x: Tensor, weight: Tensor, bias: Tensor | None, rule: Func, way: Way) -> Tensor:
    """Any operation that is linear in x; `rule(R, x, weight, layer, stabiliser)` says what of R reaches x."""

    def share(
        relevance: Tensor, _: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, stabiliser: float
    ) -> Shares:
        return rule(relevance, x, weight, layer, stabiliser), None, None

    return ruled(way, layer, share, x, weight, bias)


def _positive_products(relevance: Tensor, x: Tensor, weight: Tensor, layer: Func, stabiliser: float) -> Tensor:
    """`positive_products` of any layer, by its gradient."""
    with torch.enable_grad():
        x, size = x.detach().requires_grad_(), x.detach().abs().requires_grad_()
        plain, absolute = layer(x, weight, None), layer(size, weight.abs(), None)
    s = _divide(relevance, (plain + absolute).detach(), absolute.detach(), weight[0].numel(), stabiliser)
    to_x, to_size = torch.autograd.grad((plain, absolute), (x, size), (s, s))
    return (x * to_x + size * to_size).detach()


def split_products(relevance: Tensor, x: Tensor, weight: Tensor, layer: Func, stabiliser: float) -> Tensor:
    """The released code's LRP: x+W+ and x-W- each share all of R, so that a layer may return up to 2 R."""
    total = torch.zeros_like(x)
    for part, part_weight in ((x.clamp_min(0), weight.clamp_min(0)), (x.clamp_max(0), weight.clamp_max(0))):
        with torch.enable_grad():
            part = part.requires_grad_()
            z = layer(part, part_weight, None)
        (share,) = torch.autograd.grad(z, part, safe_divide(relevance, z.detach(), stabiliser))
        total += part.detach() * share
    return total


def add(func: Func, u: Any, v: Any, *, alpha: float = 1, share: Func | None = None, way: Way = ALONE) -> Tensor:
    """u + alpha v: two live tensors share; a constant takes nothing."""

    def call(u: Any, v: Any) -> Tensor:
        return torch.add(u, v) if alpha == 1 else torch.add(u, v, alpha=alpha)

    def shared(relevance: Tensor, y: Tensor, u: Tensor, v: Tensor, stabiliser: float) -> Shares:
        parts: Shares = (share or normalised)(relevance, y, u, v if alpha == 1 else v * alpha, stabiliser)
        return parts

    if isinstance(u, Tensor) and isinstance(v, Tensor) and u.requires_grad and v.requires_grad:
        return ruled(way, call, shared, u, v)
    return unchanged(call, u, v, way=way)


def normalised(relevance: Tensor, y: Tensor, u: Tensor, v: Tensor, stabiliser: float) -> Shares:
    """Proportional shares, their totals A and B then scaled per example: to |A|/(|A|+|B|) of sum R, and likewise B."""
    a, b = proportional(relevance, y, u, v, stabiliser)
    total, sum_a, sum_b = per_example(relevance), per_example(a), per_example(b)
    magnitude = sum_a.abs() + sum_b.abs()
    for part, own in ((a, sum_a), (b, sum_b)):
        scale = safe_divide(own.abs(), magnitude, stabiliser) * safe_divide(total, own, stabiliser)
        part.mul_(scale.to(part))
    return a, b


def proportional(relevance: Tensor, y: Tensor, u: Tensor, v: Tensor, stabiliser: float) -> tuple[Tensor, Tensor]:
    """a = uS, b = vS with S = R/(u+v): the released code's LRP stops here, with shares large and of either sign."""
    s = safe_divide(relevance, y, stabiliser)
    return u * s, v * s


def plain_add(func: Func, u: Any, v: Any, *, alpha: float = 1, way: Way = ALONE) -> Any:
    """An addition by the released code's LRP."""
    return add(func, u, v, alpha=alpha, share=proportional, way=way)


def subtract(func: Func, u: Any, v: Any, *, alpha: float = 1, way: Way = ALONE) -> Any:
    """u - v is u + (-v)."""
    return add(torch.add, u, v, alpha=-alpha, way=way)


def plain_subtract(func: Func, u: Any, v: Any, *, alpha: float = 1, way: Way = ALONE) -> Any:
    """A subtraction by the released code's LRP."""
    return add(torch.add, u, v, alpha=-alpha, share=proportional, way=way)


def matmul(func: Func, a: Tensor, b: Tensor, *, way: Way = ALONE) -> Tensor:
    """A product of two live tensors; a live tensor times a constant is a linear layer."""
    if not (a.requires_grad or b.requires_grad):
        return func(a, b)  # type: ignore[no-any-return]
    if a.requires_grad and b.requires_grad:
        return ruled(way, torch.matmul, half_each, a, b)
    if a.requires_grad:
        return _layer(lambda x, w, _: func(x, w), a, b, None, _positive_products, way)
    return _layer(lambda x, w, _: func(w, x), b, a, None, _positive_products, way)


def half_each(relevance: Tensor, y: Tensor, a: Tensor, b: Tensor, stabiliser: float) -> Shares:
    """z-rule to both factors of a matrix product, each halved."""
    s = safe_divide(relevance, y, stabiliser).mul_(0.5)
    return (s @ b.transpose(-2, -1)).mul_(a), (a.transpose(-2, -1) @ s).mul_(b)


def einsum(func: Func, equation: str, *operands: Any, way: Way = ALONE) -> Tensor:
    """A product of two tensors, live or not."""
    a, b = operands[0] if len(operands) == 1 else operands
    if a.requires_grad and b.requires_grad:
        return _bilinear(lambda a, b: func(equation, a, b), a, b, way)
    if a.requires_grad:
        return _layer(lambda x, w, _: func(equation, x, w), a, b, None, _positive_products, way)
    return _layer(lambda x, w, _: func(equation, w, x), b, a, None, _positive_products, way)


def _bilinear(product: Func, a: Tensor, b: Tensor, way: Way) -> Tensor:
    """`half_each` of any bilinear operation, by its gradient."""

    def share(relevance: Tensor, y: Tensor, a: Tensor, b: Tensor, stabiliser: float) -> Shares:
        with torch.enable_grad():
            a, b = (tensor.detach().requires_grad_() for tensor in (a, b))
            z = product(a, b)
        to_a, to_b = torch.autograd.grad(z, (a, b), safe_divide(relevance, y, stabiliser) / 2)
        return a.detach() * to_a, b.detach() * to_b

    return ruled(way, product, share, a, b)


def unchanged(func: Func, *args: Any, way: Way = ALONE, **kwargs: Any) -> Tensor:
    """Softmax, norms, activations, dropout, scaling: R passes unchanged. A product of two live tensors: half each."""
    return ruled(way, lambda *a: func(*a, **kwargs), None, *args)


def stabilised_softmax(
    func: Func, x: Tensor, *args: Any, share: Func = normalised, way: Way = ALONE, **kwargs: Any
) -> Tensor:
    """Softmax in the released code, which always adds a mask before, and stabilises that addition."""
    finite = unchanged(torch.clamp_min, x, torch.finfo(x.dtype).min / 2, way=way)
    return to_first(func, ruled(way, torch.add, share, finite, torch.zeros_like(x)), *args, way=way, **kwargs)


def plain_softmax(func: Func, x: Tensor, *args: Any, way: Way = ALONE, **kwargs: Any) -> Tensor:
    """The same by the released code's LRP."""
    return stabilised_softmax(func, x, *args, share=proportional, way=way, **kwargs)


def pool(func: Func, x: Tensor, *args: Any, way: Way = ALONE, **kwargs: Any) -> Tensor:
    """Mean and sum: R is shared by magnitude."""

    def call(x: Tensor) -> Tensor:
        return func(x, *args, **kwargs)  # type: ignore[no-any-return]

    def share(relevance: Tensor, _: Tensor, x: Tensor, stabiliser: float) -> Shares:
        with torch.enable_grad():
            magnitude = x.detach().abs().requires_grad_()
            pooled = call(magnitude)
        (part,) = torch.autograd.grad(pooled, magnitude, safe_divide(relevance, pooled.detach(), stabiliser))
        return (magnitude.detach() * part,)

    return ruled(way, call, share, x)


def to_first(func: Func, x: Any, *args: Any, way: Way = ALONE, **kwargs: Any) -> Tensor:
    """Of a softmax or norm written by hand, which subtracts from x or divides by what is made of x: R is x's alone."""

    def share(relevance: Tensor, y: Tensor, x: Tensor, *rest: Any) -> Shares:
        return relevance, *(torch.zeros_like(y) if isinstance(one, Tensor) else None for one in rest[:-1])

    if not _live(x):
        return unchanged(func, x, *args, way=way, **kwargs)
    return ruled(way, lambda *a: func(*a, **kwargs), share if any(map(_live, args)) else None, x, *args)


def quotient(func: Func, u: Any, v: Any, *args: Any, way: Way = ALONE, **kwargs: Any) -> Any:
    """R passes unchanged to a live numerator, in halves where both are live; over a constant, v is a gate."""
    return (unchanged if _live(u) else gate)(func, u, v, *args, way=way, **kwargs)


def power(func: Func, base: Any, exponent: Any, *args: Any, way: Way = ALONE, **kwargs: Any) -> Any:
    """R passes unchanged; a root, or one over it, is the 1/std of a norm written by hand: a gate."""
    root = isinstance(exponent, float) and exponent in (-0.5, 0.5)
    return (gate if root or exponent == -1 else unchanged)(func, base, exponent, *args, way=way, **kwargs)


def _live(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def gate(func: Func, *args: Any, way: Way = ALONE, **kwargs: Any) -> Any:
    """A constant, for relevance; its gradient is lost, so that it takes a forward pass of its own."""
    _check_one_way(way)
    return elementwise.gate(func, *args, **kwargs)


def variance_and_mean(func: Func, *args: Any, way: Way = ALONE, **kwargs: Any) -> Any:
    """The variance is a gate; the mean passes relevance on."""
    _check_one_way(way)
    return elementwise.variance_and_mean(func, *args, **kwargs)


def _check_one_way(way: Way) -> None:
    if way.phase is not None:
        raise OneWayError


RULES: frozenset[Func] = frozenset(
    (linear, split_linear, add_matmul, convolution, add, plain_add, subtract, matmul, einsum, unchanged, pool, gate,
     variance_and_mean, stabilised_softmax, plain_softmax, plain_subtract, to_first, quotient, power)
)  # fmt: skip
