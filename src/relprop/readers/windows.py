"""Scores of an input of floats, each with the span of the input that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relprop.errors import ModelError
from relprop.types import Attribution


@dataclass(frozen=True, eq=False)
class SpanScores:
    """One score per unit, which reads elements `low` to `high`, both included, along each axis of the input."""

    low: NDArray[np.int64]  # [units, axes]
    high: NDArray[np.int64]
    scores: NDArray[np.float64]  # [units]
    rest: float  # of rows that read nothing of the input, such as class tokens


def span_scores(found: Attribution, part: str, number: int, shape: tuple[int, ...]) -> SpanScores:
    """The scores of one example. `shape`: that of its input, without the batch axis."""
    scores = found.parts[part][number].double().cpu().numpy()
    windows = found.windows.get(part)
    if windows is None:
        low, high = _elements(len(scores), shape, found.method, part)
        return SpanScores(low, high, scores, 0.0)
    low, high = windows[min(number, len(windows) - 1)].cpu().numpy().transpose(2, 0, 1)
    real = (low <= high).all(1)
    return SpanScores(low[real], high[real], scores[real], float(scores[~real].sum()))


def _elements(
    count: int, shape: tuple[int, ...], method: str, part: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Scores of single numbers; or of those along one axis, joined along the others."""
    whole = np.array(shape) - 1
    if count == np.prod(shape):
        low = np.stack(np.unravel_index(np.arange(count), shape), -1) if shape else np.zeros((1, 0), dtype=np.int64)
        return low, low
    fitting = [axis for axis, size in enumerate(shape) if size == count]
    if len(fitting) != 1:
        raise ModelError(f'"{method}" gives {count} scores of "{part}", which has {list(shape)} numbers')
    low, high = np.zeros((count, len(shape)), dtype=np.int64), np.tile(whole, (count, 1))
    low[:, fitting[0]] = high[:, fitting[0]] = np.arange(count)
    return low, high
