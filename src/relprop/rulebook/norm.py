"""Normalisation layers: 1/std is constant, the mean stays differentiable ([Ali22] LN-rule).

The *carrying* rules also give the share of the layer's bias to its input (`lrp_carried`, relprop's own).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from relprop.ops import at_least_float32
from relprop.rulebook.elementwise import number_of

Func = Callable[..., Any]


class _LayerNorm(torch.autograd.Function):
    """y = z * rstd * w + b, z = x - mean(x), with rstd constant. Saves rstd and w only.

    With `carry` the share of b goes to x as well, in proportion to z^2; x is saved too.
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
    """[Ali22] LN-rule: LayerNorm with 1/sqrt(eps + Var) constant."""
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
    """LayerNorm with 1/sqrt(eps + Var) constant, whose bias takes nothing: x gets all that arrives."""
    return _LayerNorm.apply(x, normalized_shape, weight, bias, eps, True)


class _LinearNorm(torch.autograd.Function):
    """A norm with torch's own value, whose backward pass is `back(gradient)`: linear, with 1/std constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, func: Func, args: tuple[Any, ...], back: Func) -> Tensor:
        ctx.back = back
        y: Tensor = func(x, *args)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.back(grad), None, None, None


def batch_norm(
    func: Func,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """BatchNorm in eval mode, which is linear. (torch's own backward is wrong for some strides of a single example.)"""
    args = (running_mean, running_var, weight, bias, training, momentum, eps)
    if training or running_var is None:
        return func(x, *args)
    scale = (running_var.detach() + eps).rsqrt()
    scale = (scale if weight is None else scale * weight.detach()).to(x.dtype).view(-1, *(1,) * (x.dim() - 2))
    return _LinearNorm.apply(x, func, args, lambda grad: grad * scale)


def constant_batch_norm(
    func: Func,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    carry: bool = False,
) -> Any:
    """[Ali22] LN-rule for BatchNorm by the input's own statistics: a GroupNorm with one group per channel."""
    args = (running_mean, running_var, weight, bias, training, momentum, eps)
    if not training and running_var is not None:
        return batch_norm(func, x, *args)
    channels = x.transpose(0, 1)

    def values(*_: Any) -> Tensor:
        y: Tensor = func(x.detach(), *args).transpose(0, 1).reshape(1, len(channels), -1)
        return y

    y = group_norm(values, channels.reshape(1, len(channels), -1), len(channels), weight, bias, eps, carry=carry)
    return y.reshape(channels.shape).transpose(0, 1)


def carrying_batch_norm(func: Func, *args: Any, **kwargs: Any) -> Any:
    """BatchNorm by the input's own statistics whose bias takes nothing: x gets all that arrives."""
    return constant_batch_norm(func, *args, **kwargs, carry=True)


def rms_norm(
    func: Func, x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Any:
    """[Ali22] LN-rule for RMSNorm: 1/sqrt(eps + mean square) is constant."""
    dims, dtype = tuple(range(-len(normalized_shape), 0)), x.dtype
    least = torch.finfo(x.dtype).eps if eps is None else eps
    rstd = torch.rsqrt(at_least_float32(x.detach()).square().mean(dims, keepdim=True) + least)

    def back(grad: Tensor) -> Tensor:
        return ((grad if weight is None else grad * weight).to(rstd.dtype) * rstd).to(dtype)

    return _LinearNorm.apply(x, func, (normalized_shape, weight, eps), back)


def group_norm(
    func: Func,
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *unused: Any,
    carry: bool = False,
) -> Any:
    """[Ali22] LN-rule for GroupNorm: 1/sqrt(eps + Var) per group is constant. `carry`: x gets the bias's share too."""
    shape, dtype = x.shape, x.dtype
    groups = at_least_float32(x.detach()).reshape(shape[0], num_groups, -1)
    rstd = torch.rsqrt(groups.var(-1, unbiased=False, keepdim=True) + eps)
    z = groups - groups.mean(-1, keepdim=True) if carry and bias is not None else None
    per_channel = (-1, *(1,) * (x.dim() - 2))

    def grouped(tensor: Tensor) -> Tensor:
        return tensor.to(rstd.dtype).reshape(shape[0], num_groups, -1)

    def back(grad: Tensor) -> Tensor:
        scaled = grouped(grad if weight is None else grad * weight.reshape(per_channel)) * rstd
        scaled = scaled - scaled.mean(-1, keepdim=True)
        if z is not None and bias is not None:
            size = z.square().sum(-1, keepdim=True)
            share = grouped(grad * bias.reshape(per_channel)).sum(-1, keepdim=True)
            scaled = scaled + z * torch.where(size > 0, share / size, 0)
        return scaled.reshape(shape).to(dtype)

    return _LinearNorm.apply(x, func, (num_groups, weight, bias, eps), back)


def carrying_group_norm(func: Func, *args: Any, **kwargs: Any) -> Any:
    """GroupNorm whose bias takes nothing: x gets all that arrives."""
    return group_norm(func, *args, **kwargs, carry=True)


class _CarriedBias(torch.autograd.Function):
    """u + b, where u is z = x - mean(x) times constants: the share of b goes to z, in proportion to z^2."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, z: Tensor, bias: Tensor, dims: Any) -> Tensor:
        ctx.save_for_backward(z, bias)
        ctx.dims, ctx.shape = dims, u.shape
        return u + bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        z, bias = ctx.saved_tensors
        z32 = at_least_float32(z)
        size = z32.square().sum(ctx.dims, keepdim=True)
        share = (grad.to(z32.dtype) * bias).sum(ctx.dims, keepdim=True)
        return grad.sum_to_size(ctx.shape), (z32 * torch.where(size > 0, share / size, 0)).to(z.dtype), None, None


def carried_bias(func: Func, u: Tensor, bias: Tensor, z: Tensor, dims: Any) -> Any:
    """The bias of a LayerNorm written out by hand, as `carrying_layer_norm` treats it."""
    return _CarriedBias.apply(u, z, bias, dims)


def small_power(func: Func, base: Any, exponent: Any, *args: Any, **kwargs: Any) -> Any:
    """[Ali22] LN-rule for norms written by hand: powers of +-0.5 give 1/std, a constant; other powers stay live."""
    if isinstance(base, Tensor) and number_of(exponent) in (-0.5, 0.5):
        base = base.detach()
    return func(base, exponent, *args, **kwargs)


CARRYING = (carrying_layer_norm, carrying_group_norm, carrying_batch_norm)  # rules that leave nothing to the bias
