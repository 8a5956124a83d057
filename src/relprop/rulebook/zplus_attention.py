"""The rules of [Chefer21] through fused attention: weights made anew, some queries at a time; none is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.ops import repeat_heads
from relprop.rulebook.attention import Shares, gradient_shares, weights_by_rows
from relprop.rulebook.zplus import ALONE, Way, safe_divide

Func = Callable[..., Any]
Outflow = Callable[[], Tensor | None]


class _Attention(torch.autograd.Function):
    """Softmax(q k^T) v whose relevance is shared by the z-rule, half to each factor of both products."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float, way: Way,
        tell: Func | None, outflow: Outflow,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(query, key, value, mask)
        ctx.causal, ctx.scale, ctx.way, ctx.tell, ctx.outflow = causal, scale, way, tell, outflow
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, scale=scale)

    @staticmethod
    def backward(ctx: Any, flowing: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask = ctx.saved_tensors
        if ctx.way.phase is not None and ctx.way.phase.gradient:
            if ctx.tell is not None:  # the weights' gradient is made of it when their relevance is known
                ctx.outflow = lambda: flowing
            shares = gradient_shares(flowing, q, k, v, mask, ctx.causal, ctx.scale, _silent)
            return *shares, None, None, None, None, None, None
        outflow, gathered, own_type = ctx.outflow(), Shares(), q.dtype
        q, k, v, flowing = (one.to(torch.promote_types(own_type, torch.float32)) for one in (q, k, v, flowing))
        outflow = None if outflow is None else outflow.to(q.dtype)
        for chunk, a in weights_by_rows(q, k, mask, ctx.causal, ctx.scale):
            s = safe_divide(flowing[..., chunk, :], a @ v, ctx.way.stabiliser).mul_(0.5)
            to_v = a.transpose(-2, -1) @ s
            r = (s @ v.transpose(-2, -1)).mul_(a)  # of the weights; softmax, mask and scale pass it on
            if ctx.tell is not None:
                ctx.tell(chunk, a, None if outflow is None else outflow[..., chunk, :] @ v.transpose(-2, -1), r)
            own = q[..., chunk, :]
            s = safe_divide(r, own @ k.transpose(-2, -1), ctx.way.stabiliser).mul_(0.5)
            gathered.add(s @ k, s.transpose(-2, -1) @ own, to_v)
        parts = [one.mul_(x).sum_to_size(x.shape) for one, x in zip(gathered.whole(), (q, k, v), strict=True)]
        return *(part.to(own_type) for part in parts), None, None, None, None, None, None


def _silent(*_: Any) -> None:
    pass


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
    *,
    way: Way = ALONE,
    tell: Func | None = None,
    outflow: Outflow = lambda: None,
) -> Any:
    """Fused attention of live q, k and v.

    On the way back `tell(chunk, A, G, R)` gets the weights, their gradient and their relevance. G is known where the
    gradient flowed back before: through the same graph, or as the `outflow` that reached the result in an earlier one.
    """
    key, value = (repeat_heads(one, query.shape[-3]) for one in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return _Attention.apply(query, key, value, attn_mask, is_causal, scale, way, tell, outflow)
