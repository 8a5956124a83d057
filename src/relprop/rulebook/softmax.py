"""Softmax whose relevance goes on to its logits, by itself and in fused attention; queries and keys get shares then.

Weights *at rest* are equal ones, 1/n each: those of equal logits. What values give at rest is theirs alone; only what
weights add to this is shared between weights and values.

A softmax rule is a function `through(p, g)`: from the weights p of a row (last dimension) and the gradient g at these
weights, the gradient at the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.errors import UnruledOpError
from relprop.ops import at_least_float32, repeat_heads
from relprop.rulebook.attention import GatheredShares, weights_by_rows
from relprop.rulebook.product import equal_shares, live_tensors
from relprop.rulebook.quantised import with_value

Func = Callable[..., Any]
Through = Callable[[Tensor, Tensor], Tensor]
WRITTEN_OUT = (
    "a softmax that is written out in several calls hides its logits, to which relevance should go: use "
    "lrp_conservative"
)


def at_rest(p: Tensor, dim: int) -> Tensor:
    """u: equal weights where p has any; weights of 0 are hidden by a mask."""
    shown = p > 0
    return shown / shown.sum(dim, keepdim=True).clamp_min(1).to(p.dtype)


def secant(p: Tensor, g: Tensor) -> Tensor:
    """The softmax as its weights at rest, u = 1/n, plus a sum of shares of the logits x, exactly.

    log p - log u = x - c, so p - u = L (x - c) with L = (p - u) / (log p - log u), the logarithmic mean of p and u.
    Weights sum to 1 on both sides, hence c = sum L x / sum L and

        sum_j g_j (p_j - u_j) = sum_j x_j L_j (g_j - sum L g / sum L).

    This is the softmax rule of [AttnLRP] (Prop. 3.1) with L in place of p, and it leaves no remainder. Weights of 0
    (hidden by a mask) take no part.
    """
    u = at_rest(p, -1)
    d = torch.where(u > 0, p / u, 1).log()
    mean = u * torch.where(d == 0, 1, torch.expm1(d) / d)
    centre = (mean * g).sum(-1, keepdim=True) / mean.sum(-1, keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)
    return mean * (g - centre)


def tempered(p: Tensor, g: Tensor) -> Tensor:
    """[GIM]: the gradient of the softmax at temperature 2, without its factor 1/2; softmax(x / 2) ~ sqrt(p)."""
    flat = p.sqrt()
    flat = flat / flat.sum(-1, keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)
    return flat * (g - (flat * g).sum(-1, keepdim=True))


class _Softmax(torch.autograd.Function):
    """p = softmax(x) along a dimension, whose backward pass is `through`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, func: Func, dim: int, through: Through) -> Tensor:
        p: Tensor = func(x)
        ctx.save_for_backward(p)
        ctx.dim, ctx.through, ctx.dtype = dim, through, x.dtype
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (p,) = ctx.saved_tensors
        p, grad = (at_least_float32(one).movedim(ctx.dim, -1) for one in (p, grad))
        return ctx.through(p, grad).movedim(-1, ctx.dim).to(ctx.dtype), None, None, None


def softmax_by(through: Through) -> Func:
    """The rule of `softmax` by `through`."""

    def softmax(func: Func, x: Any, *args: Any, **kwargs: Any) -> Any:
        dim = args[0] if args else kwargs.get("dim")
        if not isinstance(x, Tensor) or not isinstance(dim, int):
            raise UnruledOpError(WRITTEN_OUT)
        return _Softmax.apply(x, lambda own: func(own, *args, **kwargs), dim, through)

    return softmax


class _Attention(torch.autograd.Function):
    """Fused attention whose backward pass goes through its softmax by `through`, some query rows at a time."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float,
        through: Through, rests: bool,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(query, key, value, mask)
        ctx.causal, ctx.scale, ctx.through, ctx.rests = causal, scale, through, rests
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, scale=scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask = ctx.saved_tensors
        dtype = q.dtype
        with torch._C._DisableAutocast():
            q, k, v, grad = (at_least_float32(one) for one in (q, k, v, grad))
            mask = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
            shares = GatheredShares()
            for chunk, p in weights_by_rows(q, k, mask, ctx.causal, ctx.scale):
                own = grad[..., chunk, :]
                # [AttnLRP] Prop. 3.3: weights and values get half each, q and k half each of what the weights get.
                s = ctx.through(p, own @ v.transpose(-2, -1)) * (ctx.scale / 4)
                to_values = (p + at_rest(p, -1)) / 2 if ctx.rests else p / 2
                shares.add(s @ k, s.transpose(-2, -1) @ q[..., chunk, :], to_values.transpose(-2, -1) @ own)
        to_q, to_k, to_v = (
            one.sum_to_size(given.shape).to(dtype) for one, given in zip(shares.joined(), (q, k, v), strict=True)
        )
        return to_q, to_k, to_v, None, None, None, None, None


def attention_by(through: Through, rests: bool) -> Func:
    """The rule of fused attention with live query, key and value: equal shares, and its softmax by `through`.

    `rests`: values get all of what they give at rest.
    """

    def attention(
        func: Func,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        key, value = (repeat_heads(one, query.shape[-3] if query.dim() > 2 else 1) for one in (key, value))
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        return _Attention.apply(query, key, value, attn_mask, is_causal, scale, through, rests)

    return attention


def matmul(func: Func, a: Tensor, b: Tensor) -> Any:
    """A matrix product in equal shares; of weights and values, those get all of what they give at rest."""
    return _product(func, a, b, -1, -2 if b.dim() > 1 else -1)


def mul(func: Func, a: Any, b: Any, *args: Any) -> Any:
    """The same for weights and values that are multiplied number by number, as before a sum."""
    for p, v in ((a, b), (b, a)):
        if len(live_tensors(p, v)) < 2:
            break
        dim = next((dim for dim in range(p.dim()) if _are_weights(p, dim)), None)
        if dim is not None:
            return _weighted(func, p, v, dim)
    return equal_shares(func, a, b, *args)


def einsum(func: Func, equation: str, *operands: Any) -> Any:
    """The same for an `einsum` of two tensors that sums over one index."""
    given = operands[0] if len(operands) == 1 and not isinstance(operands[0], Tensor) else operands
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    letters = inputs.split(",")
    summed = set(letters[0]) & set(letters[-1]) - set(output) - {"."}
    if len(given) != 2 or not arrow or len(summed) != 1 or "." in equation:
        return equal_shares(func, equation, *operands)
    index = summed.pop()
    places = [one.index(index) for one in letters]
    return _product(lambda a, b: func(equation, a, b), *given, *places)


def _product(func: Func, a: Tensor, b: Tensor, dim_a: int, dim_b: int) -> Any:
    if not (a.requires_grad and b.requires_grad):
        return func(a, b)
    if _are_weights(a, dim_a):
        return _weighted(func, a, b, dim_a)
    if _are_weights(b, dim_b):
        return _weighted(lambda p, v: func(v, p), b, a, dim_b)
    return equal_shares(func, a, b)


def _are_weights(p: Tensor, dim: int) -> bool:
    """Whether the numbers along a dimension are weights: none below 0, and their sum is 1 (0 where all is hidden)."""
    values = at_least_float32(p.detach())
    if not values.numel() or values.min() < 0:
        return False
    total = values.sum(dim)
    rounding = torch.finfo(torch.float32).eps  # models with wider numbers may take the softmax in float32
    near = 4 * max(torch.finfo(p.dtype).eps, rounding) + values.shape[dim] * rounding
    return bool((((total - 1).abs() <= near) | (total == 0)).all())


def _weighted(product: Func, p: Tensor, v: Tensor, dim: int) -> Tensor:
    """p v = u v + (p - u) v: v gets the first and half of the second, p the other half of the second.

    The gradient of p is shifted so that u gets nothing: weights sum to 1, so p gets what p - u should.
    """
    u = at_rest(p.detach(), dim)
    shifted = p.view_as(p)
    shifted.register_hook(lambda g: g - (u * g).sum(dim, keepdim=True))
    flows = product(shifted, v.detach()) / 2 + product((p.detach() + u) / 2, v)
    return with_value(flows, product(p.detach(), v.detach()))


secant_softmax, secant_attention = softmax_by(secant), attention_by(secant, rests=True)
tempered_softmax, tempered_attention = softmax_by(tempered), attention_by(tempered, rests=False)
AT_REST = (secant_softmax, secant_attention)  # rules that leave to a constant what weights at rest, or a mask, give


def constant_lerp(func: Func, start: Any, end: Any, weight: Any) -> Any:
    """[GIM] keeps the gradient of an activation: raises where a `lerp` hides whether its product is one."""
    if isinstance(weight, Tensor) and weight.requires_grad:
        raise UnruledOpError("a lerp by a live weight may be an activation or a gate: use lrp_conservative")
    return func(start, end, weight)
