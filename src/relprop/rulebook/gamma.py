"""The gamma rule: in linear layers and convolutions, products that agree with the output's sign weigh more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from relprop.errors import UnruledOpError
from relprop.ops import at_least_float32
from relprop.rulebook.product import equal_shares
from relprop.rulebook.relevance_flow import safe_divide

Func = Callable[..., Any]
GAMMA = 0.05


class _GammaLayer(torch.autograd.Function):
    """y = xW + b, whose backward pass is that of z' * const(z / z'), z = xW (see `layer`)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, func: Func, product: Func, gamma: float) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.product, ctx.gamma = product, gamma
        y: Tensor = func(x)
        return y.clone() if y._is_view() else y  # autograd forbids in-place writes to views that a function returned

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        x, weight = ctx.saved_tensors
        with torch._C._DisableAutocast():
            share = _shares(at_least_float32(grad), x, weight, ctx.product, ctx.gamma)
        return share.to(x.dtype), None, None, None, None


def _shares(grad: Tensor, x: Tensor, weight: Tensor, product: Func, gamma: float) -> Tensor:
    """The gradient of x. With a = |x||W|, the sum of the products of z's own sign is (z + sign(z) a) / 2."""
    try:
        w, size = at_least_float32(weight), at_least_float32(weight).abs()
    except NotImplementedError as error:  # quantised weights that can only be multiplied
        raise UnruledOpError(
            f"relevance reached a layer with {type(weight).__name__} weights, which have no signs to read: use "
            "lrp_conservative"
        ) from error
    with torch.enable_grad():
        plain = at_least_float32(x.detach()).requires_grad_()
        absolute = plain.detach().abs().requires_grad_()
        z, a = product(plain, w), product(absolute, size)
    sign = z.detach().sign()
    z_gamma = z.detach() * (1 + gamma / 2) + sign * a.detach() * (gamma / 2)
    s = grad * safe_divide(z.detach(), z_gamma)
    to_plain, to_absolute = torch.autograd.grad(
        (z, a), (plain, absolute), (s * (1 + gamma / 2), s * sign * (gamma / 2))
    )
    return to_plain + to_absolute * plain.detach().sign()


def layer(
    func: Func, x: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, gamma: float = GAMMA, **kwargs: Any
) -> Any:
    """Gamma rule (Montavon et al. 2019, for inputs of both signs as in zennit) of a linear layer or convolution.

    z = xW; z > 0: z' = x+ (W + gamma W+) + x- (W + gamma W-); z < 0: z' = x+ (W + gamma W-) + x- (W + gamma W+);
    relevance flows as in z' * const(z / z'). The bias keeps its own share.
    """
    if not x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad):
        return equal_shares(func, x, weight, bias, *args, **kwargs)

    def product(own: Tensor, w: Tensor) -> Tensor:
        return func(own, w, None, *args, **kwargs)  # type: ignore[no-any-return]

    return _GammaLayer.apply(x, weight, lambda own: func(own, weight, bias, *args, **kwargs), product, gamma)


def matmul(func: Func, a: Tensor, b: Tensor, *, gamma: float = GAMMA) -> Any:
    """A product with a constant matrix on the right is a linear layer; other products in equal shares."""
    if b.requires_grad or b.dim() != 2 or not a.requires_grad:
        return equal_shares(func, a, b)
    return _GammaLayer.apply(a, b, lambda own: func(own, b), torch.matmul, gamma)
