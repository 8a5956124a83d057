"""Products of live tensors: each factor gets an equal share ([AttnLRP] Prop. 3.2 and 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

Func = Callable[..., Any]


def live_tensors(*args: Any) -> list[Tensor]:
    """Tensors that depend on the explained input, also those inside lists."""
    live: list[Tensor] = []
    for value in args:
        if isinstance(value, Tensor):
            live += [value] if value.requires_grad else []
        elif isinstance(value, list | tuple):
            live += live_tensors(*value)
    return live


def equal_shares(func: Func, *args: Any, **kwargs: Any) -> Any:
    """[AttnLRP] Prop. 3.2-3.3: each of n live factors gets 1/n of its gradient; the shares sum to the product."""
    factors = len(live_tensors(*args))
    if factors < 2:
        return func(*args, **kwargs)
    return func(*scaled(args, 1 / factors), **kwargs)


def layer(func: Func, x: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
    """[AttnLRP] Prop. 3.3 for a linear layer or convolution: a live bias is a summand and keeps what is its own."""
    if x.requires_grad and weight.requires_grad:
        x, weight = scaled((x, weight), 1 / 2)
    return func(x, weight, bias, *args, **kwargs)


def scaled(value: Any, factor: float) -> Any:
    """The same values; gradients that flow back to them are multiplied by `factor`."""
    if isinstance(value, list | tuple):
        return type(value)(scaled(one, factor) for one in value)
    if not isinstance(value, Tensor) or not value.requires_grad:
        return value
    alias = value.view_as(value)
    alias.register_hook(lambda grad: grad * factor)
    return alias
