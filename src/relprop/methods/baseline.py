"""The floor that every method must beat."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.run import predict
from relprop.methods.reading import Inputs, batch_size, content_generator, example, real_units
from relprop.registry import METHODS
from relprop.types import Attribution


@METHODS.register(family="baseline", signed=False, gradients=False, citation="")
def random(model: nn.Module, inputs: Inputs, target: Any, *, seed: int = 0) -> Attribution:
    """Uniform scores in [0, 1), seeded by each example's own content, so neither order nor padding changes them."""
    chosen = predict(model, inputs, target)
    scores = torch.stack([_scores(example(inputs, i), seed) for i in range(batch_size(inputs))])
    return Attribution(scores.to(chosen.value), chosen.value, chosen.names, "random", chosen.rows)


def _scores(inputs: Inputs, seed: int) -> Tensor:
    real = real_units(inputs)
    scores = torch.zeros(len(real))
    scores[real] = torch.rand(int(real.sum()), generator=content_generator(inputs, seed))
    return scores
