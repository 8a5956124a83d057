"""The relevance-carrying rules of [Chefer21], Eq. 4-6: what flows back is relevance R, and its total is conserved.

Each rule has a function `share(R, y, *args)` that returns, for y = f(*args), the share of R per live argument.
S(a, b) = a / b, and 0 where b = 0. Rules whose docstring says "released" follow the papers' code, not the papers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.errors import UnruledOpError
from relprop.rulebook import elementwise
from relprop.rulebook.quantised import with_value
from relprop.rulebook.relevance_flow import (
    DEFAULT,
    FlowSettings,
    Func,
    GradientCutError,
    Shares,
    carry_relevance,
    per_example,
    safe_divide,
)


def linear(
    func: Func, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, settings: FlowSettings = DEFAULT
) -> Tensor:
    """[Chefer21] Eq. 4-5: a linear layer by the z+ rule. A constant bias takes nothing."""
    if weight.requires_grad or (bias is not None and bias.requires_grad):
        return _layer(func, x, weight, bias, _positive_products, settings)
    return carry_relevance(settings, func, positive_products, x, weight, bias)


def _with_value_of(result: Tensor, func: Func, *args: Any) -> Tensor:
    """`result` with the operation's own value, which is rounded differently."""
    with torch.no_grad():
        value = func(*(arg.detach() if isinstance(arg, Tensor) else arg for arg in args))
    return with_value(result, value)


def positive_products(
    relevance: Tensor, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, stabiliser: float
) -> Shares:
    """[Chefer21] Eq. 5, z+ rule: R is shared in proportion to the products x_j w_ji >= 0.

    Z = (xW + |x||W|)/2, R_x = [x(S W^T) + |x|(S |W|^T)]/2, S = R/Z, where xW is y without the bias. Rows without
    relevance are skipped: in the last block, all but the read-out row.
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
    """R / 2Z, and 0 where Z is a rounding error: the difference of two sums of `count` numbers of size `scale`."""
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
    settings: FlowSettings = DEFAULT,
) -> Tensor:
    """[Chefer21] Eq. 4-5 for `addmm(bias, x, W)`: a linear layer with a transposed weight (GPT-2's Conv1D)."""
    if bias.requires_grad or weight.requires_grad or not x.requires_grad:
        product = matmul(torch.matmul, x, weight, settings=settings)
        product = product if alpha == 1 else unchanged(torch.mul, product, alpha, settings=settings)
        if beta != 0:
            scaled = bias if beta == 1 else unchanged(torch.mul, bias, beta, settings=settings)
            product = add(torch.add, scaled, product, settings=settings)
        return _with_value_of(product, lambda *given: func(*given, beta=beta, alpha=alpha), bias, x, weight)

    def call(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return func(bias, x, weight, beta=beta, alpha=alpha)  # type: ignore[no-any-return]

    def share(relevance: Tensor, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, stabiliser: float) -> Shares:
        return positive_products(relevance, y, x, (weight * alpha).t(), bias * beta, stabiliser)

    return carry_relevance(settings, call, share, x, weight, bias)


def convolution(
    func: Func,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *args: Any,
    settings: FlowSettings = DEFAULT,
    **kwargs: Any,
) -> Tensor:
    """[Chefer21] Eq. 4-5: a convolution by the z+ rule."""
    return _layer(lambda x, w, b: func(x, w, b, *args, **kwargs), x, weight, bias, _positive_products, settings)


def split_linear(
    func: Func,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *args: Any,
    settings: FlowSettings = DEFAULT,
    **kwargs: Any,
) -> Tensor:
    """Released LRP: a linear layer or convolution by `split_products`."""
    return _layer(lambda x, w, b: func(x, w, b, *args, **kwargs), x, weight, bias, split_products, settings)


def _layer(layer: Func, x: Tensor, weight: Tensor, bias: Tensor | None, rule: Func, settings: FlowSettings) -> Tensor:
    """An operation that is linear in x; `rule(R, x, weight, layer, stabiliser)` returns the relevance of x.

    A live weight is a second factor, a live bias a summand: [Chefer21] Eq. 6.
    """
    if weight.requires_grad or (bias is not None and bias.requires_grad):
        if x.requires_grad and weight.requires_grad:
            product = _bilinear(lambda x, w: layer(x, w, None), x, weight, settings)
        elif weight.requires_grad:
            product = _layer(lambda w, x, _: layer(x, w, None), weight, x, None, rule, settings)
        else:
            product = _layer(layer, x, weight, None, rule, settings)
        if bias is None:
            return product
        lined_up = bias.reshape(-1, *[1] * (weight.dim() - 2))
        return _with_value_of(add(torch.add, product, lined_up, settings=settings), layer, x, weight, bias)

    def share(
        relevance: Tensor, _: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, stabiliser: float
    ) -> Shares:
        return rule(relevance, x, weight, layer, stabiliser), None, None

    return carry_relevance(settings, layer, share, x, weight, bias)


def _positive_products(relevance: Tensor, x: Tensor, weight: Tensor, layer: Func, stabiliser: float) -> Tensor:
    """[Chefer21] Eq. 5 for any linear layer: `positive_products` computed with the layer's gradient."""
    with torch.enable_grad():
        x, size = x.detach().requires_grad_(), x.detach().abs().requires_grad_()
        plain, absolute = layer(x, weight, None), layer(size, weight.abs(), None)
    s = _divide(relevance, (plain + absolute).detach(), absolute.detach(), weight[0].numel(), stabiliser)
    to_x, to_size = torch.autograd.grad((plain, absolute), (x, size), (s, s))
    return (x * to_x + size * to_size).detach()


def split_products(relevance: Tensor, x: Tensor, weight: Tensor, layer: Func, stabiliser: float) -> Tensor:
    """Released LRP: x+W+ and x-W- each share all of R, so that a layer may return up to 2 R."""
    total = torch.zeros_like(x)
    for part, part_weight in ((x.clamp_min(0), weight.clamp_min(0)), (x.clamp_max(0), weight.clamp_max(0))):
        with torch.enable_grad():
            part = part.requires_grad_()
            z = layer(part, part_weight, None)
        (share,) = torch.autograd.grad(z, part, safe_divide(relevance, z.detach(), stabiliser))
        total += part.detach() * share
    return total


def add(
    func: Func,
    u: Any,
    v: Any,
    *,
    alpha: float = 1,
    share: Func | None = None,
    settings: FlowSettings = DEFAULT,
) -> Tensor:
    """[Chefer21] Eq. 6: two live summands of u + alpha v share R; a constant takes nothing."""

    def call(u: Any, v: Any) -> Tensor:
        return torch.add(u, v) if alpha == 1 else torch.add(u, v, alpha=alpha)

    def shared(relevance: Tensor, y: Tensor, u: Tensor, v: Tensor, stabiliser: float) -> Shares:
        parts: Shares = (share or normalised)(relevance, y, u, v if alpha == 1 else v * alpha, stabiliser)
        return parts

    if isinstance(u, Tensor) and isinstance(v, Tensor) and u.requires_grad and v.requires_grad:
        return carry_relevance(settings, call, shared, u, v)
    return unchanged(call, u, v, settings=settings)


def normalised(relevance: Tensor, y: Tensor, u: Tensor, v: Tensor, stabiliser: float) -> Shares:
    """[Chefer21] Eq. 6, normalised: proportional shares a and b, scaled per example.

    With A = sum a and B = sum b: a *= |A|/(|A|+|B|) * sum R / A, b likewise.
    """
    a, b = proportional(relevance, y, u, v, stabiliser)
    total, sum_a, sum_b = per_example(relevance), per_example(a), per_example(b)
    magnitude = sum_a.abs() + sum_b.abs()
    for part, own in ((a, sum_a), (b, sum_b)):
        scale = safe_divide(own.abs(), magnitude, stabiliser) * safe_divide(total, own, stabiliser)
        part.mul_(scale.to(part))
    return a, b


def proportional(relevance: Tensor, y: Tensor, u: Tensor, v: Tensor, stabiliser: float) -> tuple[Tensor, Tensor]:
    """[Chefer21] Eq. 6 without normalisation: a = uS, b = vS with S = R/(u+v). Released LRP stops here."""
    s = safe_divide(relevance, y, stabiliser)
    return u * s, v * s


def plain_add(func: Func, u: Any, v: Any, *, alpha: float = 1, settings: FlowSettings = DEFAULT) -> Any:
    """Released LRP: an addition in proportional shares."""
    return add(func, u, v, alpha=alpha, share=proportional, settings=settings)


def subtract(func: Func, u: Any, v: Any, *, alpha: float = 1, settings: FlowSettings = DEFAULT) -> Any:
    """[Chefer21] Eq. 6 for u - v = u + (-v)."""
    return add(torch.add, u, v, alpha=-alpha, settings=settings)


def plain_subtract(func: Func, u: Any, v: Any, *, alpha: float = 1, settings: FlowSettings = DEFAULT) -> Any:
    """Released LRP: a subtraction in proportional shares."""
    return add(torch.add, u, v, alpha=-alpha, share=proportional, settings=settings)


def matmul(func: Func, a: Tensor, b: Tensor, *, settings: FlowSettings = DEFAULT) -> Tensor:
    """[Chefer21] Eq. 6 for a product of two live tensors; with a constant factor it is a linear layer, Eq. 4-5."""
    if not (a.requires_grad or b.requires_grad):
        return func(a, b)  # type: ignore[no-any-return]
    if a.requires_grad and b.requires_grad:
        return carry_relevance(settings, torch.matmul, half_each, a, b)
    if a.requires_grad:
        return _layer(lambda x, w, _: func(x, w), a, b, None, _positive_products, settings)
    return _layer(lambda x, w, _: func(w, x), b, a, None, _positive_products, settings)


def half_each(relevance: Tensor, y: Tensor, a: Tensor, b: Tensor, stabiliser: float) -> Shares:
    """[Chefer21] Eq. 6, normalised: z-rule to both factors of a matrix product, each halved."""
    s = safe_divide(relevance, y, stabiliser).mul_(0.5)
    return (s @ b.transpose(-2, -1)).mul_(a), (a.transpose(-2, -1) @ s).mul_(b)


def einsum(func: Func, equation: str, *operands: Any, settings: FlowSettings = DEFAULT) -> Tensor:
    """[Chefer21] Eq. 4-6 for an `einsum` of two tensors."""
    given = operands[0] if len(operands) == 1 else operands
    if not isinstance(equation, str) or len(given) != 2:
        raise UnruledOpError("an einsum has a z+ rule for two tensors and an equation in letters: use lrp_ah_ln")
    a, b = given
    if a.requires_grad and b.requires_grad:
        return _bilinear(lambda a, b: func(equation, a, b), a, b, settings)
    if a.requires_grad:
        return _layer(lambda x, w, _: func(equation, x, w), a, b, None, _positive_products, settings)
    return _layer(lambda x, w, _: func(equation, w, x), b, a, None, _positive_products, settings)


def _bilinear(product: Func, a: Tensor, b: Tensor, settings: FlowSettings) -> Tensor:
    """[Chefer21] Eq. 6 for any bilinear operation: `half_each` computed with its gradient."""

    def share(relevance: Tensor, y: Tensor, a: Tensor, b: Tensor, stabiliser: float) -> Shares:
        with torch.enable_grad():
            a, b = (tensor.detach().requires_grad_() for tensor in (a, b))
            z = product(a, b)
        to_a, to_b = torch.autograd.grad(z, (a, b), safe_divide(relevance, y, stabiliser) / 2)
        return a.detach() * to_a, b.detach() * to_b

    return carry_relevance(settings, product, share, a, b)


def bilinear(
    func: Func,
    x1: Tensor,
    x2: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    settings: FlowSettings = DEFAULT,
) -> Tensor:
    """[Chefer21] Eq. 4-6 for `F.bilinear`: half to each of two live inputs; one live input sees a linear layer."""
    if x1.requires_grad and x2.requires_grad:
        result = _bilinear(lambda a, b: func(a, b, weight), x1, x2, settings)
    else:
        live, other, product = (x1, x2, "oij,...j->...oi") if x1.requires_grad else (x2, x1, "oij,...i->...oj")
        matrix = torch.einsum(product, weight, other)
        result = einsum(torch.einsum, "...i,...oi->...o", live, matrix, settings=settings)
    return _with_value_of(result, func, x1, x2, weight, bias)


def sampled_map(
    func: Func, x: Tensor, grid: Tensor, *args: Any, settings: FlowSettings = DEFAULT, **kwargs: Any
) -> Tensor:
    """[Chefer21] Eq. 5 for `grid_sample`, linear in the sampled map; the sampling positions are a gate."""
    if "bicubic" in (*args[:1], kwargs.get("mode")):
        raise UnruledOpError("bicubic grid_sample has negative weights, for which no z+ rule is given: use lrp_ah_ln")
    if grid.requires_grad:
        _refuse_two_way(settings)
    places = grid.detach()
    return _layer(lambda x, *_: func(x, places, *args, **kwargs), x, places, None, _positive_products, settings)


def unchanged(func: Func, *args: Any, settings: FlowSettings = DEFAULT, **kwargs: Any) -> Tensor:
    """[Chefer21] R passes unchanged: norms, activations, dropout, constant factors; two live factors get half each."""
    return carry_relevance(settings, lambda *a: func(*a, **kwargs), None, *args)


def stabilised_softmax(
    func: Func,
    x: Tensor,
    *args: Any,
    share: Func = normalised,
    settings: FlowSettings = DEFAULT,
    **kwargs: Any,
) -> Tensor:
    """Released: softmax(x + 0), because the code always adds a mask first and stabilises that addition."""
    finite = unchanged(torch.clamp_min, x, torch.finfo(x.dtype).min / 2, settings=settings)
    return to_first(
        func,
        carry_relevance(settings, torch.add, share, finite, torch.zeros_like(x)),
        *args,
        settings=settings,
        **kwargs,
    )


def plain_softmax(func: Func, x: Tensor, *args: Any, settings: FlowSettings = DEFAULT, **kwargs: Any) -> Tensor:
    """Released LRP: the same with proportional shares."""
    return stabilised_softmax(func, x, *args, share=proportional, settings=settings, **kwargs)


def to_first(func: Func, x: Any, *args: Any, settings: FlowSettings = DEFAULT, **kwargs: Any) -> Tensor:
    """[Chefer21] R passes to x alone: softmax and norms, also written by hand, with operands computed from x."""

    def share(relevance: Tensor, y: Tensor, x: Tensor, *rest: Any) -> Shares:
        return relevance, *(torch.zeros_like(y) if isinstance(one, Tensor) else None for one in rest[:-1])

    if not _live(x):
        return unchanged(func, x, *args, settings=settings, **kwargs)
    return carry_relevance(settings, lambda *a: func(*a, **kwargs), share if any(map(_live, args)) else None, x, *args)


def zplus_quotient(func: Func, u: Any, v: Any, *args: Any, settings: FlowSettings = DEFAULT, **kwargs: Any) -> Any:
    """R passes to a live numerator u alone, as where u is multiplied by 1/v; with a constant u it is a gate."""
    return (to_first if _live(u) else zplus_gate)(func, u, v, *args, settings=settings, **kwargs)


def zplus_power(
    func: Func, base: Any, exponent: Any, *args: Any, settings: FlowSettings = DEFAULT, **kwargs: Any
) -> Any:
    """R passes unchanged; powers of +-0.5 and -1 make the 1/std of norms written by hand: a gate."""
    makes_gate = elementwise.number_of(exponent) in (-1, -0.5, 0.5)
    return (zplus_gate if makes_gate else unchanged)(func, base, exponent, *args, settings=settings, **kwargs)


def _live(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def zplus_gate(func: Func, *args: Any, settings: FlowSettings = DEFAULT, **kwargs: Any) -> Any:
    """A constant. This cuts the gradient too, which then needs a forward pass of its own."""
    _refuse_two_way(settings)
    return elementwise.gate(func, *args, **kwargs)


def zplus_variance_and_mean(func: Func, *args: Any, settings: FlowSettings = DEFAULT, **kwargs: Any) -> Any:
    """The variance is a gate; the mean stays live."""
    _refuse_two_way(settings)
    return elementwise.variance_and_mean(func, *args, **kwargs)


def _refuse_two_way(settings: FlowSettings) -> None:
    if settings.phase is not None:
        raise GradientCutError


RULES: frozenset[Func] = frozenset(
    (linear, split_linear, add_matmul, convolution, add, plain_add, subtract, plain_subtract, matmul, einsum, bilinear,
     sampled_map, unchanged, stabilised_softmax, plain_softmax, to_first, zplus_gate, zplus_variance_and_mean,
     zplus_quotient, zplus_power)
)  # fmt: skip
