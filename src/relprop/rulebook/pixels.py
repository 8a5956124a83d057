"""Relevance down to the pixels, as in the full LRP of [Chefer21]: the z^B rule, and constants that take a share.

The z+ rule assumes that an input of 0 means "nothing there". Pixels are bounded and have no such zero, so the z^B rule
(Montavon et al. 2017, Deep Taylor decomposition) measures each pixel against the lowest and highest possible value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from relprop.rulebook.rulesets import RuleSet

Rule = Callable[..., Any]


def down_to_pixels(rules: RuleSet) -> RuleSet:
    """The same relevance rules, continued to the model's own float input."""
    layers = {name: at_input(rules[name]) for name in ("conv1d", "conv2d", "conv3d")}
    return rules | RuleSet("pixels", {**layers, "add": with_constants(rules["add"])}, carries="relevance")


def at_input(layer: Rule) -> Rule:
    """`layer`, replaced by the z^B rule where a layer reads the input itself."""

    def rule(func: Rule, x: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        if not is_input(x):
            return layer(func, x, weight, bias, *args, **kwargs)
        return _ZBLayer.apply(x, weight, bias, lambda x, w, b: func(x, w, b, *args, **kwargs))

    return rule


def is_input(x: Tensor) -> bool:
    """Whether x is the input or a reshaped view of it: under relevance rules all else is an autograd function."""
    nodes = [x.grad_fn]
    while nodes:
        node = nodes.pop()
        if hasattr(node, "_forward_cls"):
            return False
        nodes.extend(parent for parent, _ in (node.next_functions if node is not None else ()))
    return True


class _ZBLayer(torch.autograd.Function):
    """z^B rule for a layer on x in [l, h]: Z = xW - lW+ - hW-, R_x = x(SW^T) - l(SW+^T) - h(SW-^T), S = R/Z."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: Rule) -> Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x, weight)
        result: Tensor = layer(x, weight, bias)
        return result

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None, None, None]:
        x, weight = ctx.saved_tensors
        pixels = tuple(range(1, x.dim()))
        low, high = x.amin(pixels, keepdim=True).expand_as(x), x.amax(pixels, keepdim=True).expand_as(x)
        with torch.enable_grad():
            x, low, high = (tensor.detach().clone().requires_grad_() for tensor in (x, low, high))
            z = ctx.layer(x, weight, None)
            z = z - ctx.layer(low, weight.clamp_min(0), None) - ctx.layer(high, weight.clamp_max(0), None)
        s = torch.where(z == 0, 0, relevance / torch.where(z == 0, 1, z)).detach()
        to_x, to_low, to_high = torch.autograd.grad(z, (x, low, high), s)
        return (x * to_x + low * to_low + high * to_high).detach(), None, None, None


def with_constants(add: Rule) -> Rule:
    """`add`, where a constant of the same size takes a share too, as position embeddings do in [Chefer21]'s code."""

    def rule(func: Rule, u: Any, v: Any, **kwargs: Any) -> Any:
        if isinstance(u, Tensor) and isinstance(v, Tensor) and u.shape[1:] == v.shape[1:] and u.dim() > 2:
            u, v = (tensor if tensor.requires_grad else _live(tensor) for tensor in (u, v))
        return add(func, u, v, **kwargs)

    return rule


def _live(constant: Tensor) -> Tensor:
    """The constant as a live leaf: the relevance that it takes is not read."""
    return constant.detach().requires_grad_(bool(constant.is_floating_point() and constant.isfinite().all()))
