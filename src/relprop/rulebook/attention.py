"""Attention: weights held constant (AH-rule of [Ali22]), or shared in halves ([AttnLRP]); fused calls stay fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.ops import attention_weights, repeat_heads
from relprop.rulebook.product import scaled

Func = Callable[..., Any]
_CHUNK = 1 << 21  # attention weights made at a time in the backward pass: memory stays linear in tokens


class _ValueAttention(torch.autograd.Function):
    """Fused attention whose backward gives dV = A^T dO only, A made anew a chunk of queries at a time."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float | None,
        gqa: bool,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(query, key, mask)
        ctx.causal, ctx.scale, ctx.value_shape = causal, scale, value.shape
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=gqa
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor, None, None, None, None]:
        query, key, mask = ctx.saved_tensors
        heads, rows, columns = query.shape[-3] if query.dim() > 2 else 1, query.shape[-2], key.shape[-2]
        wide_key = repeat_heads(key, heads)
        step = max(1, min(rows, _CHUNK * rows // max(1, query[..., 0].numel() * columns)))
        total = grad.new_zeros((*grad.shape[:-2], columns, grad.shape[-1]))
        for start in range(0, rows, step):
            chunk = slice(start, start + step)
            seen = min(columns, start + step) if ctx.causal else columns
            part = mask
            if ctx.causal:
                places = torch.arange(rows, device=query.device)[chunk, None]
                part = torch.arange(seen, device=query.device)[None, :] <= places
            elif mask is not None and mask.dim() > 1 and mask.shape[-2] > 1:
                part = mask[..., chunk, :]
            keys = wide_key[..., :seen, :]
            weights = attention_weights(query[..., chunk, :], keys, part, scale=ctx.scale)
            total[..., :seen, :] += weights.transpose(-2, -1) @ grad[..., chunk, :]
        if total.shape != ctx.value_shape and total.dim() > 2 and total.shape[-3] != ctx.value_shape[-3]:
            total = total.unflatten(-3, (ctx.value_shape[-3], -1)).sum(-3)
        return None, None, total.sum_to_size(ctx.value_shape), None, None, None, None


def constant_weights(
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
    """AH-rule: the attention weights are constant, all relevance goes to the values."""
    mask = None if attn_mask is None else attn_mask.detach()
    return _ValueAttention.apply(query.detach(), key.detach(), value, mask, is_causal, scale, enable_gqa)


def shared_weights(func: Func, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
    """[AttnLRP]: weights and values share equally, and so do q and k what reaches the weights through their softmax."""
    between = 1 / max(1, query.requires_grad + key.requires_grad)
    outer = 1 / max(1, (query.requires_grad or key.requires_grad) + value.requires_grad)
    return func(scaled(query, outer * between), scaled(key, outer * between), scaled(value, outer), *args, **kwargs)


class _Watched(torch.autograd.Function):
    """Fused attention whose backward makes the weights A anew and tells what flows back to them."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float, tell: Func
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, mask)
        ctx.causal, ctx.scale, ctx.tell = causal, scale, tell
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, scale=scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None, None]:
        q, k, v, mask = ctx.saved_tensors
        a = attention_weights(q, k, mask, ctx.causal, ctx.scale)
        g = grad @ v.transpose(-2, -1)
        ctx.tell(a, g)
        to_v = a.transpose(-2, -1) @ grad
        g.mul_(a)
        s = g.sub_(a * g.sum(-1, keepdim=True))  # through the softmax
        to_q, to_k = (s @ k).mul_(ctx.scale), (s.transpose(-2, -1) @ q).mul_(ctx.scale)
        shares = (share.sum_to_size(x.shape) for share, x in ((to_q, q), (to_k, k), (to_v, v)))
        return *shares, None, None, None, None  # type: ignore[return-value]


def watched(
    tell: Func,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Fused attention; on the way back `tell(A, G)` gets the weights and their gradient, and none are kept."""
    key, value = (repeat_heads(one, query.shape[-3]) for one in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return _Watched.apply(query, key, value, attn_mask, is_causal, scale, tell)
