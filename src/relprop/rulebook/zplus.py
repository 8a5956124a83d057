"""The relevance-carrying rules of [Chefer21]: what flows back is relevance itself, and its total stays the same.

Each backward receives R and returns every live input's share. S(a, b) = a / b, and 0 where b = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Func = Callable[..., Any]


def safe_divide(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where b = 0."""
    return torch.where(b == 0, 0, a / torch.where(b == 0, 1, b))


def _owned(result: Tensor) -> Tensor:
    """A result with memory of its own: autograd forbids a model to write to views that a function returned."""
    return result.clone() if result._is_view() else result


def per_example(x: Tensor) -> Tensor:
    """Sum over all but the batch dimension, kept broadcastable."""
    return x.flatten(1).sum(1).view(-1, *(1,) * (x.dim() - 1)) if x.dim() > 1 else x


class _Layer(torch.autograd.Function):
    """A linear layer or convolution; `share(x, weight, R, layer)` says what of R reaches x. The bias takes nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: Func, share: Func) -> Tensor:
        ctx.layer, ctx.share = layer, share
        ctx.save_for_backward(x, weight)
        return _owned(layer(x, weight, bias))

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None, None, None, None]:
        x, weight = ctx.saved_tensors
        return ctx.share(x, weight, relevance, ctx.layer), None, None, None, None


def positive_products(x: Tensor, weight: Tensor, relevance: Tensor, layer: Func) -> Tensor:
    """z+ rule: only products x_j w_ji >= 0 count. Z = (xW + |x||W|)/2."""
    with torch.enable_grad():
        x, magnitude = x.detach().requires_grad_(), x.detach().abs().requires_grad_()
        plain, absolute = layer(x, weight, None), layer(magnitude, weight.abs(), None)
    s = safe_divide(relevance, (plain + absolute).detach() / 2)
    to_x, to_magnitude = torch.autograd.grad((plain, absolute), (x, magnitude), (s, s))
    return (x * to_x + magnitude * to_magnitude).detach() / 2


def split_products(x: Tensor, weight: Tensor, relevance: Tensor, layer: Func) -> Tensor:
    """The released code's LRP: x+W+ and x-W- each share all of R, so that a layer may return up to 2 R."""
    total = torch.zeros_like(x)
    for part, part_weight in ((x.clamp_min(0), weight.clamp_min(0)), (x.clamp_max(0), weight.clamp_max(0))):
        with torch.enable_grad():
            part = part.requires_grad_()
            z = layer(part, part_weight, None)
        (share,) = torch.autograd.grad(z, part, safe_divide(relevance, z.detach()))
        total += part.detach() * share
    return total


def linear(func: Func, x: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
    """A linear layer or convolution by the z+ rule."""
    return _Layer.apply(x, weight, bias, lambda x, w, b: func(x, w, b, *args, **kwargs), positive_products)


def split_linear(func: Func, x: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
    """A linear layer or convolution by the released code's LRP."""
    return _Layer.apply(x, weight, bias, lambda x, w, b: func(x, w, b, *args, **kwargs), split_products)


def add_matmul(func: Func, bias: Tensor, x: Tensor, weight: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """`addmm(bias, x, W)`: a linear layer with the weight the other way round (GPT-2's Conv1D)."""

    def layer(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return x @ weight * alpha if bias is None else func(bias, x, weight, beta=beta, alpha=alpha)

    return _Layer.apply(x, weight, bias, layer, positive_products)


class _Sum(torch.autograd.Function):
    """u + v; `share(u, v, R)` says what of R reaches each."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, share: Func) -> Tensor:
        ctx.share = share
        ctx.save_for_backward(u, v)
        return u + v

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, Tensor, None]:
        u, v = ctx.saved_tensors
        a, b = ctx.share(u, v, relevance)
        return a.sum_to_size(u.shape), b.sum_to_size(v.shape), None


def proportional(u: Tensor, v: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """a = uS, b = vS with S = R/(u+v): the released code's LRP stops here, with shares large and of either sign."""
    s = safe_divide(relevance, u + v)
    return u * s, v * s


def normalised(u: Tensor, v: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Proportional shares, their totals A and B then scaled per example: to |A|/(|A|+|B|) of sum R, and likewise B."""
    a, b = proportional(u, v, relevance)
    total, sum_a, sum_b = per_example(relevance), per_example(a), per_example(b)
    magnitude = sum_a.abs() + sum_b.abs()
    a = a * safe_divide(sum_a.abs(), magnitude) * safe_divide(total, sum_a)
    b = b * safe_divide(sum_b.abs(), magnitude) * safe_divide(total, sum_b)
    return a, b


def add(func: Func, u: Any, v: Any, *, alpha: float = 1, share: Func = normalised) -> Any:
    """Two live tensors share; a constant takes nothing."""
    if alpha != 1:
        v = v * alpha
    if isinstance(u, Tensor) and isinstance(v, Tensor) and u.requires_grad and v.requires_grad:
        return _Sum.apply(u, v, share)
    return unchanged(torch.add, u, v)


def plain_add(func: Func, u: Any, v: Any, *, alpha: float = 1) -> Any:
    """An addition by the released code's LRP."""
    return add(func, u, v, alpha=alpha, share=proportional)


def subtract(func: Func, u: Any, v: Any, *, alpha: float = 1) -> Any:
    """u - v is u + (-v)."""
    minus_v = unchanged(torch.neg, v) if isinstance(v, Tensor) and v.requires_grad else -v
    return add(torch.add, u, minus_v, alpha=alpha)


class _MatMul(torch.autograd.Function):
    """z-rule to both factors, each halved."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return _owned(a @ b)

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        s = safe_divide(relevance, a @ b) / 2
        to_a, to_b = a * (s @ b.transpose(-2, -1)), b * (a.transpose(-2, -1) @ s)
        return to_a.sum_to_size(a.shape), to_b.sum_to_size(b.shape)


def matmul(func: Func, a: Tensor, b: Tensor) -> Any:
    """A product of two live tensors; a live tensor times a constant is a linear layer."""
    if a.requires_grad and b.requires_grad:
        return _MatMul.apply(a, b)
    if a.requires_grad:
        return _Layer.apply(a, b, None, lambda x, w, _: func(x, w), positive_products)
    return _Layer.apply(b, a, None, lambda x, w, _: func(w, x), positive_products)


class _Bilinear(torch.autograd.Function):
    """z-rule to both factors of any bilinear operation, each halved."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, product: Func) -> Tensor:
        ctx.product = product
        ctx.save_for_backward(a, b)
        return _owned(product(a, b))

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, Tensor, None]:
        with torch.enable_grad():
            a, b = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
            z = ctx.product(a, b)
        to_a, to_b = torch.autograd.grad(z, (a, b), safe_divide(relevance, z.detach()) / 2)
        return a.detach() * to_a, b.detach() * to_b, None


def einsum(func: Func, equation: str, *operands: Any) -> Any:
    """A product of two tensors, live or not."""
    a, b = operands[0] if len(operands) == 1 else operands
    if a.requires_grad and b.requires_grad:
        return _Bilinear.apply(a, b, lambda a, b: func(equation, a, b))
    if a.requires_grad:
        return _Layer.apply(a, b, None, lambda x, w, _: func(equation, x, w), positive_products)
    return _Layer.apply(b, a, None, lambda x, w, _: func(equation, w, x), positive_products)


class _Unchanged(torch.autograd.Function):
    """R passes as it is, summed where the input was broadcast, in equal shares where several inputs are live."""

    @staticmethod
    def forward(ctx: Any, func: Func, *args: Any) -> Tensor:
        ctx.shapes = [a.shape if isinstance(a, Tensor) and need else None
                      for a, need in zip(args, ctx.needs_input_grad[1:], strict=True)]  # fmt: skip
        return _owned(func(*args))

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor | None, ...]:
        live = sum(shape is not None for shape in ctx.shapes)
        shares = (None if shape is None else (relevance / live).sum_to_size(shape) for shape in ctx.shapes)
        return (None, *shares)


def unchanged(func: Func, *args: Any, **kwargs: Any) -> Any:
    """Softmax, norms, activations, dropout, scaling: R passes unchanged. A product of two live tensors: half each."""
    return _Unchanged.apply(lambda *a: func(*a, **kwargs), *args)


class _Pool(torch.autograd.Function):
    """A sum or mean over positions: R is shared by magnitude."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.call = lambda y: func(y, *args, **kwargs)
        return _owned(func(x, *args, **kwargs))

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None, None, None]:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            magnitude = x.detach().abs().requires_grad_()
            pooled = ctx.call(magnitude)
        (share,) = torch.autograd.grad(pooled, magnitude, safe_divide(relevance, pooled.detach()))
        return magnitude.detach() * share, None, None, None


def pool(func: Func, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Mean and sum."""
    return _Pool.apply(x, func, args, kwargs)
