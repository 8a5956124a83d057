"""Attention with constant weights ([Ali22] AH-rule) or in equal shares ([AttnLRP]); fused calls stay fused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.ops import attention_weights, repeat_heads
from relprop.rulebook.product import scaled

Func = Callable[..., Any]
_CHUNK = 1 << 21  # attention weights computed at a time: memory stays linear in tokens


def rows_at_a_time(shape: Sequence[int]) -> int:
    """How many query rows of maps [..., queries, keys] are computed or read at a time."""
    *batch, rows, columns = shape
    return max(1, min(rows, _CHUNK // max(1, math.prod(batch) * columns)))


def weights_by_rows(
    query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, scale: float | None, cut: bool = False
) -> Iterator[tuple[slice, Tensor]]:
    """The attention weights, recomputed for some query rows at a time; `cut` drops keys that causal attention hides."""
    rows, columns = query.shape[-2], key.shape[-2]
    step = rows_at_a_time((*query.shape[:-1], columns))
    for start in range(0, rows, step):
        chunk = slice(start, min(rows, start + step))
        part = mask
        if causal:
            columns = min(key.shape[-2], chunk.stop) if cut else columns
            positions = torch.arange(start, chunk.stop, device=query.device)[:, None]
            part = torch.arange(columns, device=query.device)[None, :] <= positions
        elif mask is not None and mask.dim() > 1 and mask.shape[-2] > 1:
            part = mask[..., chunk, :]
        yield chunk, attention_weights(query[..., chunk, :], key[..., :columns, :], part, scale=scale)


class _ValueAttention(torch.autograd.Function):
    """Fused attention whose backward pass gives dV = A^T dO only; A is recomputed for some query rows at a time."""

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
        key = repeat_heads(key, query.shape[-3] if query.dim() > 2 else 1)
        total = grad.new_zeros((*grad.shape[:-2], key.shape[-2], grad.shape[-1]))
        for chunk, weights in weights_by_rows(query, key, mask, ctx.causal, ctx.scale, cut=True):
            total[..., : weights.shape[-1], :] += weights.transpose(-2, -1) @ grad[..., chunk, :]
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
    """[Ali22] AH-rule: the attention weights are constant, all relevance goes to the values."""
    mask = None if attn_mask is None else attn_mask.detach()
    return _ValueAttention.apply(query.detach(), key.detach(), value, mask, is_causal, scale, enable_gqa)


def shared_weights(func: Func, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
    """[AttnLRP] Prop. 3.3: weights and values get half each; through the softmax (Prop. 3.1), q and k half each."""
    between = 1 / max(1, query.requires_grad + key.requires_grad)
    outer = 1 / max(1, (query.requires_grad or key.requires_grad) + value.requires_grad)
    return func(scaled(query, outer * between), scaled(key, outer * between), scaled(value, outer), *args, **kwargs)


class _ObservedAttention(torch.autograd.Function):
    """Fused attention whose backward pass recomputes the weights A and hands A and its gradient to `observe`."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        causal: bool,
        scale: float,
        observe: Func,
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, mask)
        ctx.causal, ctx.scale, ctx.observe = causal, scale, observe
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, scale=scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None, None]:
        q, k, v, mask = ctx.saved_tensors
        shares = gradient_shares(grad, q, k, v, mask, ctx.causal, ctx.scale, ctx.observe)
        return *shares, None, None, None, None


class GatheredShares:
    """What reaches q, k and v, gathered from chunks of query rows: rows of q are joined, k and v are summed."""

    def __init__(self) -> None:
        self._rows: list[Tensor] = []
        self._sums: list[Tensor] = []

    def add(self, to_q: Tensor, to_k: Tensor, to_v: Tensor) -> None:
        self._rows.append(to_q)
        if not self._sums:
            self._sums = [to_k, to_v]
        else:
            for total, more in zip(self._sums, (to_k, to_v), strict=True):
                total += more

    def joined(self) -> tuple[Tensor, Tensor, Tensor]:
        to_k, to_v = self._sums
        return self._rows[0] if len(self._rows) == 1 else torch.cat(self._rows, -2), to_k, to_v


def gradient_shares(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float, observe: Func
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, given dO; `observe(chunk, A, G)` gets the weights and their gradient."""
    shares = GatheredShares()
    for chunk, a in weights_by_rows(q, k, mask, causal, scale):
        own = grad[..., chunk, :]
        g = own @ v.transpose(-2, -1)
        observe(chunk, a, g)
        to_v = a.transpose(-2, -1) @ own
        g.mul_(a)
        s = g.sub_(a * g.sum(-1, keepdim=True))  # through the softmax
        shares.add((s @ k).mul_(scale), (s.transpose(-2, -1) @ q[..., chunk, :]).mul_(scale), to_v)
    to_q, to_k, to_v = shares.joined()
    return to_q.sum_to_size(q.shape), to_k.sum_to_size(k.shape), to_v.sum_to_size(v.shape)


def fused_weights_by_rows(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Iterator[tuple[slice, Tensor]]:
    """The attention weights of a fused call, some query rows at a time."""
    return weights_by_rows(query, repeat_heads(key, query.shape[-3]), attn_mask, is_causal, scale)


def observed_attention(
    observe: Func,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Fused attention; during the backward pass `observe(chunk, A, G)` gets the weights and their gradient."""
    key, value = (repeat_heads(one, query.shape[-3]) for one in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return _ObservedAttention.apply(query, key, value, attn_mask, is_causal, scale, observe)
