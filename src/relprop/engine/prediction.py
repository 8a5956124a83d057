"""The explained numbers as the model gives them, from a plain forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.model_call import call, check_finite, cloned_inputs, evaluating, read_target
from relprop.engine.restoring import restoring
from relprop.ops import at_least_float32
from relprop.targets import ChosenTarget


@restoring
def predict(model: nn.Module, inputs: Mapping[str, Any], target: Any) -> ChosenTarget:
    """The target, read from a plain forward pass."""
    with torch.no_grad(), evaluating(model):
        chosen = read_target(model, target, call(model, cloned_inputs(inputs), target), inputs)
    check_finite(model, chosen)
    return detached_target(chosen)


def detached_target(chosen: ChosenTarget) -> ChosenTarget:
    """The target without its graph, in float32 or better."""
    rows = None if chosen.rows is None else at_least_float32(chosen.rows.detach())
    return ChosenTarget(at_least_float32(chosen.value.detach()), chosen.names, rows, chosen.exact)


def same_target(one: ChosenTarget, other: ChosenTarget) -> bool:
    """Whether two passes explain the same numbers, but for rounding errors of float32."""

    def size(chosen: ChosenTarget) -> Tensor:
        return (chosen.value if chosen.rows is None else chosen.rows).abs().max()

    if one.names != other.names or one.value.shape != other.value.shape:
        return False
    return bool((one.value - other.value).abs().max() <= 1e-3 * torch.maximum(size(one), size(other)))
