"""An operation expanded into another function: that function makes the graph, the operation itself the values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relprop.engine.carried_rows import copy_carried_rows
from relprop.rulebook.quantised import rounding


def detached(values: Any, copies: dict[int, Tensor]) -> Any:
    """The same arguments as constants; one tensor stays one tensor, because torch tests identity (`query is key`)."""
    if isinstance(values, Tensor):
        return copies.setdefault(id(values), values.detach())
    if isinstance(values, dict):
        return {name: detached(value, copies) for name, value in values.items()}
    return type(values)(detached(value, copies) for value in values) if type(values) in (tuple, list) else values


def with_values_of(plain: Any, result: Any) -> Any:
    """The graph of `result` with the values of `plain`."""
    if isinstance(result, tuple):
        return tuple(with_values_of(*pair) for pair in zip(plain, result, strict=True))
    if not isinstance(result, Tensor) or not result.requires_grad:
        return plain
    if result.dtype == plain.dtype and torch.equal(result.detach(), plain):
        return result
    rounded = rounding(result, plain)
    copy_carried_rows(result, rounded)
    return rounded
