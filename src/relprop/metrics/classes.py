"""Class sensitivity: how alike are the maps of two classes? A map that says why this class differs from the other's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from relprop.errors import InputError
from relprop.metrics.maps import examples
from relprop.metrics.results import Floats, mean


@dataclass(frozen=True, eq=False)
class ClassSensitivity:
    """Correlations, one an example; NaN where a map has equal scores everywhere. Lower is more class-specific."""

    pearson: Floats
    spearman: Floats

    def summary(self) -> dict[str, float]:
        """Means over the examples where the correlation is defined."""
        return {"class_pearson": mean(self.pearson), "class_spearman": mean(self.spearman)}


def class_sensitivity(scores: Any, other: Any) -> ClassSensitivity:
    """Compare the scores [examples, ...] of one class with those of another, on the same examples."""
    a, b = examples(scores), examples(other)
    if a.shape != b.shape or a.ndim < 2:
        raise InputError(f"two sets of scores [examples, ...] of one shape, got {list(a.shape)} and {list(b.shape)}")
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    return ClassSensitivity(_correlation(a, b), _correlation(rankdata(a, axis=1), rankdata(b, axis=1)))


def _correlation(a: Floats, b: Floats) -> Floats:
    """Of each row of a with the same row of b."""
    varied = (np.ptp(a, axis=1) > 0) & (np.ptp(b, axis=1) > 0)
    a, b = _unit(a), _unit(b)
    return np.where(varied, (a * b).sum(1).clip(-1, 1), np.nan)


def _unit(rows: Floats) -> Floats:
    """Mean 0, norm 1. The largest deviation is divided out first, so that tiny scores do not vanish in the squares."""
    centred = rows - rows.mean(1, keepdims=True)
    scaled = _divided(centred, np.abs(centred).max(1, keepdims=True))
    return _divided(scaled, np.linalg.norm(scaled, axis=1, keepdims=True))


def _divided(rows: Floats, by: Floats) -> Floats:
    return np.divide(rows, by, out=np.zeros_like(rows), where=by > 0)
