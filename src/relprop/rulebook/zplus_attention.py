"""The rules of [Chefer21] through fused attention; weights are recomputed for some query rows at a time, not kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.ops import repeat_heads
from relprop.rulebook.attention import GatheredShares, gradient_shares, weights_by_rows
from relprop.rulebook.relevance_flow import DEFAULT, FlowSettings, safe_divide

Func = Callable[..., Any]
OutputGradient = Callable[[], Tensor | None]


class _ZPlusAttention(torch.autograd.Function):
    """[Chefer21] Eq. 6 for both products of softmax(q k^T) v: z-rule, half to each factor."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float,
        settings: FlowSettings, observe: Func | None, output_gradient: OutputGradient,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(query, key, value, mask)
        ctx.causal, ctx.scale, ctx.settings = causal, scale, settings
        ctx.observe, ctx.output_gradient = observe, output_gradient
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, scale=scale)

    @staticmethod
    def backward(ctx: Any, flowing: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask = ctx.saved_tensors
        if ctx.settings.phase is not None and ctx.settings.phase.gradient:
            if ctx.observe is not None:  # from which the weights' gradient is computed in the relevance phase
                ctx.output_gradient = lambda: flowing
            shares = gradient_shares(flowing, q, k, v, mask, ctx.causal, ctx.scale, _silent)
            return *shares, None, None, None, None, None, None
        output_gradient, gathered, own_type = ctx.output_gradient(), GatheredShares(), q.dtype
        q, k, v, flowing = (one.to(torch.promote_types(own_type, torch.float32)) for one in (q, k, v, flowing))
        output_gradient = None if output_gradient is None else output_gradient.to(q.dtype)
        for chunk, a in weights_by_rows(q, k, mask, ctx.causal, ctx.scale):
            s = safe_divide(flowing[..., chunk, :], a @ v, ctx.settings.stabiliser).mul_(0.5)
            to_v = a.transpose(-2, -1) @ s
            r = (s @ v.transpose(-2, -1)).mul_(a)  # R of the weights; softmax, mask and scale pass it unchanged
            if ctx.observe is not None:
                g = None if output_gradient is None else output_gradient[..., chunk, :] @ v.transpose(-2, -1)
                ctx.observe(chunk, a, g, r)
            own = q[..., chunk, :]
            s = safe_divide(r, own @ k.transpose(-2, -1), ctx.settings.stabiliser).mul_(0.5)
            gathered.add(s @ k, s.transpose(-2, -1) @ own, to_v)
        parts = [one.mul_(x).sum_to_size(x.shape) for one, x in zip(gathered.joined(), (q, k, v), strict=True)]
        return *(part.to(own_type) for part in parts), None, None, None, None, None, None


def _silent(*_: Any) -> None:
    pass


def zplus_attention(
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
    settings: FlowSettings = DEFAULT,
    observe: Func | None = None,
    output_gradient: OutputGradient = lambda: None,
) -> Any:
    """[Chefer21] Eq. 6 through fused attention of live q, k and v.

    During the backward pass `observe(chunk, A, G, R)` gets the weights, their gradient and their relevance. G is known
    if the gradient flowed back before: through the same graph, or in an earlier pass as `output_gradient`.
    """
    key, value = (repeat_heads(one, query.shape[-3]) for one in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return _ZPlusAttention.apply(query, key, value, attn_mask, is_causal, scale, settings, observe, output_gradient)
