"""The floor that every method must beat."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.run import predict, propagate
from relprop.methods.reading import Inputs, content_generator, real_units, singles, unit_scores
from relprop.registry import METHODS
from relprop.rulebook import rulesets
from relprop.types import Attribution


@METHODS.register(family="baseline", signed=False, gradients=False, citation="the floor of every benchmark")
def random(model: nn.Module, inputs: Inputs, target: Any, *, seed: int = 0) -> Attribution:
    """Uniform scores in [0, 1), seeded by each example's own content, so neither order nor padding changes them."""
    chosen = predict(model, inputs, target)
    scores = torch.stack([_scores(one, seed, _units(model, one)) for one in singles(inputs)])
    return Attribution(scores.to(chosen.value), chosen.value, chosen.names, "random", chosen.rows)


def _units(model: nn.Module, inputs: Inputs) -> Tensor:
    """Which units there are: the tokens, or whatever rows the other methods score."""
    if "input_ids" in inputs:
        return real_units(inputs)
    flow = propagate(model, inputs, None, rulesets.gradient)
    found, real = unit_scores(flow, flow.relevance(), inputs)[0].isfinite().cpu(), real_units(inputs)
    return found & real if len(found) == len(real) else found


def _scores(inputs: Inputs, seed: int, units: Tensor) -> Tensor:
    scores = torch.zeros(len(units))
    scores[units] = torch.rand(int(units.sum()), generator=content_generator(inputs, seed))
    return scores
