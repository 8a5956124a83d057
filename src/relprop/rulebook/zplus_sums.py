"""Sums under the rules of [Chefer21]: relevance is shared among the summands."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relprop.rulebook.relevance_flow import DEFAULT, FlowSettings, Func, Shares, carry_relevance, safe_divide


def pool(func: Func, x: Tensor, *args: Any, settings: FlowSettings = DEFAULT, **kwargs: Any) -> Tensor:
    """Mean and sum: R is shared in proportion to |x| (relprop's own; the papers give no rule)."""

    def call(x: Tensor) -> Tensor:
        return func(x, *args, **kwargs)  # type: ignore[no-any-return]

    def share(relevance: Tensor, _: Tensor, x: Tensor, stabiliser: float) -> Shares:
        with torch.enable_grad():
            magnitude = x.detach().abs().requires_grad_()
            pooled = call(magnitude)
        (part,) = torch.autograd.grad(pooled, magnitude, safe_divide(relevance, pooled.detach(), stabiliser))
        return (magnitude.detach() * part,)

    return carry_relevance(settings, call, share, x)


def sum_of_products(func: Func, x: Tensor, *args: Any, settings: FlowSettings = DEFAULT, **kwargs: Any) -> Tensor:
    """[Chefer21] Eq. 6 for a matrix product written as a sum of products: z-rule to these."""

    def call(x: Tensor) -> Tensor:
        return func(x, *args, **kwargs)  # type: ignore[no-any-return]

    def share(relevance: Tensor, y: Tensor, x: Tensor, stabiliser: float) -> Shares:
        with torch.enable_grad():
            z = x.detach().requires_grad_()
            total = call(z)
        (part,) = torch.autograd.grad(total, z, safe_divide(relevance, y, stabiliser))
        return (z.detach() * part,)

    return carry_relevance(settings, call, share, x)


def weighted_sum(func: Func, x: Tensor, *args: Any, settings: FlowSettings = DEFAULT, **kwargs: Any) -> Tensor:
    """[Chefer21] Eq. 5 for a linear layer written as products with weights and their sum: the z+ rule."""

    def call(x: Tensor) -> Tensor:
        return func(x, *args, **kwargs)  # type: ignore[no-any-return]

    def share(relevance: Tensor, _: Tensor, x: Tensor, stabiliser: float) -> Shares:
        with torch.enable_grad():
            positive = x.detach().clamp_min(0).requires_grad_()
            total = call(positive)
        (part,) = torch.autograd.grad(total, positive, safe_divide(relevance, total.detach(), stabiliser))
        return (positive.detach() * part,)

    return carry_relevance(settings, call, share, x)


def soft_maximum(
    func: Func, x: Tensor, dim: Any, *args: Any, settings: FlowSettings = DEFAULT, **kwargs: Any
) -> Tensor:
    """R is shared in proportion to exp(x), as by `pool` in log(sum(exp(x))) written out."""

    def call(x: Tensor) -> Tensor:
        return func(x, dim, *args, **kwargs)  # type: ignore[no-any-return]

    def share(relevance: Tensor, _: Tensor, x: Tensor, stabiliser: float) -> Shares:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            total = call(x)
        return torch.autograd.grad(total, x, relevance)  # softmax(x) R

    return carry_relevance(settings, call, share, x)


RULES: frozenset[Func] = frozenset((pool, sum_of_products, weighted_sum, soft_maximum))
