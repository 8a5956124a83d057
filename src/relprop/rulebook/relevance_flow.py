"""Relevance-carrying calls: `share(R, y, *args)` of an operation y = f(*args) returns the share of R per argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relprop.errors import UnruledOpError

Func = Callable[..., Any]
Shares = tuple[Tensor | None, ...]


@dataclass
class Phase:
    """What a backward pass carries where one forward pass serves two of them: first the gradient, then relevance."""

    gradient: bool = True


@dataclass(frozen=True)
class FlowSettings:
    """How relevance flows: by itself or after a backward pass of the gradient, and what stabilises divisions."""

    phase: Phase | None = None  # None: the pass carries relevance only
    stabiliser: float = 0.0  # the released code divides by b + 1e-9; the paper by b


DEFAULT = FlowSettings()


class GradientCutError(Exception):
    """These rules cut the gradient of an operation: gradient and relevance need one forward pass each."""


class NoGradientError(Exception):
    """An operation has no gradient, and the pass should carry the gradient too."""


def safe_divide(a: Tensor, b: Tensor, stabiliser: float = 0.0) -> Tensor:
    """S(a, b) = a / b, and 0 where b = 0."""
    b = torch.where(b == 0, b, b + stabiliser) if stabiliser else b
    return torch.div(a, b).nan_to_num_(0.0, 0.0, 0.0)


def per_example(x: Tensor) -> Tensor:
    """Sum over all but the batch dimension, shaped to broadcast; in double precision where the device has it."""
    exact = torch.float32 if x.device.type == "mps" else torch.float64
    return x.flatten(1).sum(1, dtype=exact).view(-1, *(1,) * (x.dim() - 1)) if x.dim() > 1 else x


class _RelevanceFunction(torch.autograd.Function):
    """y = f(*args) whose backward pass carries relevance by `share`, or the plain gradient in the gradient phase."""

    @staticmethod
    def forward(ctx: Any, settings: FlowSettings, func: Func, share: Func | None, *args: Any) -> Tensor:
        ctx.settings, ctx.share = settings, share
        ctx.shapes = [arg.shape if isinstance(arg, Tensor) else None for arg in args]
        result = _run(ctx, func, args, ctx.needs_input_grad[3:])
        if share is not None:
            ctx.save_for_backward(*args)
            ctx.func, ctx.result = func, result.detach()
            ctx.version = ctx.result._version
        return result

    @staticmethod
    def backward(ctx: Any, flowing: Tensor) -> tuple[Any, ...]:
        live = ctx.needs_input_grad[3:]
        if ctx.settings.phase is not None and ctx.settings.phase.gradient:
            shares: Any = iter(torch.autograd.grad(ctx.nested, ctx.leaves, flowing))
            ctx.nested = ctx.leaves = None
            return None, None, None, *(next(shares) if one else None for one in live)
        if ctx.share is None:  # R passes unchanged, in equal parts where several arguments are live
            shares = [flowing if sum(live) == 1 else flowing / sum(live)] * len(live)
        else:
            shares = _rule_shares(ctx, flowing)
        parts = zip(shares, ctx.shapes, live, strict=True)
        return None, None, None, *(part.sum_to_size(shape) if one else None for part, shape, one in parts)  # fmt: skip


def _rule_shares(ctx: Any, relevance: Tensor) -> Shares:
    """The shares by the rule, in float32 or better, whatever dtype or autocast the model uses."""
    with torch._C._DisableAutocast():
        args = ctx.saved_tensors
        dtype = torch.float32
        for tensor in (relevance, *args):
            if tensor is not None and tensor.is_floating_point():
                dtype = torch.promote_types(dtype, tensor.dtype)
        relevance, *args = (_as(tensor, dtype) for tensor in (relevance, *args))
        written = ctx.result._version != ctx.version  # the model wrote to the result: compute it again
        y = ctx.func(*args) if written else _as(ctx.result, dtype)
        try:
            shares: Shares = ctx.share(relevance, y, *args, ctx.settings.stabiliser)
        except NotImplementedError as error:  # quantised weights that can only be multiplied
            kinds = sorted({type(one).__name__ for one in args if isinstance(one, Tensor)} - {"Tensor", "Parameter"})
            raise UnruledOpError(
                f"relevance reached a layer with {', '.join(kinds)} weights: use lrp_ah_ln, or occlusion where those "
                "have no gradient"
            ) from error
        return shares


def _as(tensor: Any, dtype: torch.dtype) -> Any:
    return tensor.to(dtype) if isinstance(tensor, Tensor) and tensor.is_floating_point() else tensor


def _run(ctx: Any, func: Func, args: tuple[Any, ...], live: tuple[bool, ...]) -> Tensor:
    """f(*args); with a phase, in a small graph of its own from which the gradient is taken."""
    if ctx.settings.phase is not None:
        inner = [arg.detach().requires_grad_() if one else arg for arg, one in zip(args, live, strict=True)]
        ctx.leaves = [arg for arg, one in zip(inner, live, strict=True) if one]
        with torch.enable_grad():
            ctx.nested = func(*inner)
        if not ctx.nested.requires_grad:
            raise NoGradientError
        result: Tensor = ctx.nested.detach()
    else:
        result = func(*args)
    # The result gets its own memory: autograd forbids in-place writes to views that a function returned.
    return result.clone() if result._is_view() else result


def carry_relevance(settings: FlowSettings, func: Func, share: Func | None, *args: Any) -> Tensor:
    """f(*args), whose relevance flows back by `share`; unchanged where `share` is None."""
    result: Tensor = _RelevanceFunction.apply(settings, func, share, *args)
    return result
