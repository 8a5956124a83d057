"""Random scores: the baseline that every method must beat."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.forward_passes import forward_flow
from relprop.methods.examples import (
    examples_first,
    single_examples,
)
from relprop.methods.unit_scores import (
    Inputs,
    attribution,
    content_generator,
    real_units,
    unit_index_of,
)
from relprop.registry import METHODS
from relprop.types import Attribution


@METHODS.register(family="baseline", signed=False, gradients=False, citation="the floor of every benchmark")
def random(model: nn.Module, inputs: Inputs, target: Any, *, seed: int = 0) -> Attribution:
    """Uniform scores in [0, 1), seeded by each example's own content, so neither order nor padding changes them."""
    flow = forward_flow(model, inputs, target)
    examples_first(flow)
    parts = {}
    for source in flow.sources:
        units = unit_index_of(flow, source).units
        real = real_units(source.part, inputs, units)
        own = seed if source.part == flow.sources[0].part else f"{seed}/{source.part}"  # each part has its own draw
        parts[source.part] = torch.stack([_scores(one, own, real[i]) for i, one in enumerate(single_examples(inputs))])
    value = flow.chosen.value
    return attribution(flow, "random", {name: scores.to(value) for name, scores in parts.items()})


def _scores(inputs: Inputs, seed: int | str, units: Tensor) -> Tensor:
    scores = torch.zeros(len(units))
    scores[units] = torch.rand(int(units.sum()), generator=content_generator(inputs, seed))
    return scores
