"""Normalisation layers: 1/std is constant, the mean stays differentiable (LN-rule of [Ali22])."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Func = Callable[..., Any]


class _LayerNorm(torch.autograd.Function):
    """y = z * rstd * w + b, z = x - mean(x). Only rstd and w are kept, less than a plain backward pass keeps.

    With `carry` the share of b goes to x as well, spread as z^2 is: x is kept too.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float, carry: bool
    ) -> Tensor:
        y, mean, rstd = torch.native_layer_norm(x, list(shape), weight, bias, eps)
        carried = (x, mean, bias) if carry and bias is not None else (None, None, None)
        ctx.save_for_backward(rstd, weight, *carried)
        ctx.dims = tuple(range(-len(shape), 0))
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rstd, weight, x, mean, bias = ctx.saved_tensors
        scaled = (grad if weight is None else grad * weight).to(rstd.dtype) * rstd
        scaled = scaled.sub_(scaled.mean(ctx.dims, keepdim=True))
        if bias is not None:
            z = x.to(rstd.dtype) - mean
            size = z.square().sum(ctx.dims, keepdim=True)
            share = (grad.to(rstd.dtype) * bias).sum(ctx.dims, keepdim=True)
            scaled = scaled.add_(z * torch.where(size > 0, share / size, 0))
        return scaled.to(grad.dtype), None, None, None, None, None


def layer_norm(
    func: Func,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    """LayerNorm with 1/sqrt(eps + Var) constant."""
    return _LayerNorm.apply(x, normalized_shape, weight, bias, eps, False)


def carrying_layer_norm(
    func: Func,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    """LayerNorm with 1/sqrt(eps + Var) constant, whose bias takes nothing: all that arrives is x's."""
    return _LayerNorm.apply(x, normalized_shape, weight, bias, eps, True)


CARRYING = (carrying_layer_norm,)  # rules that leave nothing to the bias


def rms_norm(
    func: Func, x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """RMSNorm with 1/sqrt(eps + mean square) constant."""
    dims = tuple(range(-len(normalized_shape), 0))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    y = x * torch.rsqrt(wide.square().mean(dims, keepdim=True) + eps).to(x.dtype)
    return y if weight is None else y * weight


def group_norm(
    func: Func,
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *unused: Any,
) -> Tensor:
    """GroupNorm with each group's 1/sqrt(eps + Var) constant."""
    groups = x.reshape(x.shape[0], num_groups, -1)
    centred = groups - groups.mean(-1, keepdim=True)
    rstd = torch.rsqrt(groups.detach().var(-1, unbiased=False, keepdim=True) + eps)
    y = (centred * rstd).reshape(x.shape)
    per_channel = (-1, *(1,) * (x.dim() - 2))
    y = y if weight is None else y * weight.reshape(per_channel)
    return y if bias is None else y + bias.reshape(per_channel)


def small_power(func: Func, base: Any, exponent: Any, *args: Any, **kwargs: Any) -> Any:
    """`(variance + eps) ** -0.5` and its like are the 1/std of a norm written by hand; other powers are left alone."""
    if isinstance(base, Tensor) and isinstance(exponent, float) and exponent in (-0.5, 0.5):
        base = base.detach()
    return func(base, exponent, *args, **kwargs)
