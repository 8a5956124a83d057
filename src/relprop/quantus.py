"""Quantus: any method of relprop as its `explain_func`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from relprop.attribution import DEFAULT_METHOD, attribute
from relprop.engine.model_call import device_of
from relprop.errors import InputError


def explain_func(
    model: nn.Module,
    inputs: NDArray[Any],
    targets: Iterable[Any],
    method: str = DEFAULT_METHOD,
    device: str | None = None,
    **options: object,
) -> NDArray[np.float64]:
    """Scores of the numbers that the model reads, as Quantus wants them: one per number, or one per pixel.

    `metric(model=model, x_batch=x, y_batch=y, explain_func=explain_func, explain_func_kwargs={"method": "lrp_ah_ln"})`.
    Of pictures [batch, colours, height, width] the scores are [batch, 1, height, width]. No package is needed for it.
    """
    dtype = next((one.dtype for one in model.parameters() if one.is_floating_point()), torch.float32)
    given = torch.as_tensor(np.asarray(inputs), dtype=dtype, device=device or device_of(model))
    wanted = [int(target) for target in targets]
    if len(wanted) != len(given):
        raise InputError(f"{len(wanted)} targets for {len(given)} inputs")
    scores = attribute(model, given, wanted, method, **{"at": "input", **options}).scores.double().cpu().numpy()
    for shape in (given.shape[1:], (1, *given.shape[2:])):
        if scores.shape[1] == math.prod(shape):
            return scores.reshape(len(given), *shape)
    raise InputError(
        f'"{method}" gives {scores.shape[1]} scores for inputs of shape {list(given.shape[1:])}: Quantus hides single '
        "numbers, so take a method and a place that score them"
    )
