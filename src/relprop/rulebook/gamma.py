"""The gamma rule: in products with weights, terms that agree with the output's sign weigh more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from relprop.errors import UnruledOpError
from relprop.ops import at_least_float32
from relprop.rulebook import product
from relprop.rulebook.quantised import with_value
from relprop.rulebook.relevance_flow import safe_divide

Func = Callable[..., Any]
GAMMA = 0.05


class _GammaProduct(torch.autograd.Function):
    """y = xW + b, whose backward pass is that of z' * const(z / z'), z = xW (see `layer`)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, func: Func, of: Func, gamma: float, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(x, *weights)
        ctx.of, ctx.gamma = of, gamma
        y: Tensor = func(x)
        return y.clone() if y._is_view() else y  # autograd forbids in-place writes to views that a function returned

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        with torch._C._DisableAutocast():
            share = _shares(at_least_float32(grad), x, weights, ctx.of, ctx.gamma)
        return share.to(x.dtype), *[None] * (3 + len(weights))


def _shares(grad: Tensor, x: Tensor, weights: list[Tensor], of: Func, gamma: float) -> Tensor:
    """The gradient of x. With a = |x||W|, the sum of the products of z's own sign is (z + sign(z) a) / 2."""
    with torch.enable_grad():
        plain = at_least_float32(x.detach()).requires_grad_()
        absolute = plain.detach().abs().requires_grad_()
        z, a = of(plain, *map(at_least_float32, weights)), of(absolute, *map(_size, weights))
    sign = z.detach().sign()
    z_gamma = z.detach() * (1 + gamma / 2) + sign * a.detach() * (gamma / 2)
    s = grad * safe_divide(z.detach(), z_gamma)
    to_plain, to_absolute = torch.autograd.grad(
        (z, a), (plain, absolute), (s * (1 + gamma / 2), s * sign * (gamma / 2))
    )
    return to_plain + to_absolute * plain.detach().sign()


def _size(weight: Tensor) -> Tensor:
    try:
        return at_least_float32(weight).abs()
    except NotImplementedError as error:  # quantised weights that can only be multiplied
        raise UnruledOpError(
            f"relevance reached a layer with {type(weight).__name__} weights, which have no signs to read: use "
            "lrp_conservative"
        ) from error


def layer(
    func: Func, x: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, gamma: float = GAMMA, **kwargs: Any
) -> Any:
    """Gamma rule (Montavon et al. 2019, for inputs of both signs as in zennit) of a linear layer or convolution.

    z = xW; z > 0: z' = x+ (W + gamma W+) + x- (W + gamma W-); z < 0: z' = x+ (W + gamma W-) + x- (W + gamma W+);
    relevance flows as in z' * const(z / z'). The bias keeps its own share.
    """

    def call(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return func(x, weight, bias, *args, **kwargs)  # type: ignore[no-any-return]

    if x.requires_grad and weight.requires_grad:
        return product.layer(call, x, weight, bias)
    if bias is None or not bias.requires_grad:
        return _product(call, (x, weight), (bias,), gamma)
    flows = _product(call, (x, weight), (), gamma) + bias.reshape(-1, *[1] * (weight.dim() - 2))
    with torch.no_grad():
        value = call(x, weight, bias)
    return with_value(flows, value)


def contraction(func: Func, *args: Any, gamma: float = GAMMA, **kwargs: Any) -> Any:
    """The same for any product of one live tensor and constants; several live tensors get equal shares."""
    factors: list[Tensor] = []
    blank = _blank(args, factors)
    live = len(product.live_tensors(*args))
    if live == len(factors) > 1:
        return product.equal_shares(func, *args, **kwargs)
    if len(factors) > 2:
        raise UnruledOpError(
            "the gamma rule needs the weights as one tensor: multiply them first, or use lrp_conservative"
        )
    return _product(lambda *given: func(*_filled(blank, given), **kwargs), tuple(factors), (), gamma)


def _product(call: Func, factors: tuple[Tensor, ...], rest: tuple[Any, ...], gamma: float) -> Any:
    """`call(*factors, *rest)`, one factor live, by the gamma rule of `call(*factors)`."""
    place = next((i for i, one in enumerate(factors) if one.requires_grad), None)
    if place is None:
        return call(*factors, *rest)
    before, after = factors[:place], factors[place + 1 :]

    def of(x: Tensor, *weights: Tensor) -> Tensor:
        return call(*weights[:place], x, *weights[place:])  # type: ignore[no-any-return]

    return _GammaProduct.apply(factors[place], lambda x: call(*before, x, *after, *rest), of, gamma, *before, *after)


class _Slot(int):
    """The place of a tensor among the arguments."""


def _blank(value: Any, tensors: list[Tensor]) -> Any:
    """The arguments with slots for their tensors, which are added to `tensors`."""
    if isinstance(value, list | tuple):
        return type(value)(_blank(one, tensors) for one in value)
    if not isinstance(value, Tensor):
        return value
    tensors.append(value)
    return _Slot(len(tensors) - 1)


def _filled(value: Any, tensors: tuple[Tensor, ...]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_filled(one, tensors) for one in value)
    return tensors[value] if isinstance(value, _Slot) else value
