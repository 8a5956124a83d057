"""Class sensitivity: how alike are the maps of two classes? A map that says why this class differs from the other's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relprop.metrics.correlation import pairs, pearson, spearman
from relprop.metrics.results import Floats, mean


@dataclass(frozen=True, eq=False)
class ClassSensitivity:
    """Correlations, one an example; NaN where a map has equal scores everywhere. Lower is more class-specific."""

    pearson: Floats
    spearman: Floats

    def summary(self) -> dict[str, float]:
        """Means over the examples where the correlation is defined."""
        return {"class_pearson": mean(self.pearson), "class_spearman": mean(self.spearman)}


def class_sensitivity(scores: Any, other: Any, where: Any = None) -> ClassSensitivity:
    """Compare the scores [examples, ...] of one class with those of another, on the same examples.

    `where`, a mask of the same shape, says which scores count: padding, equal in both, would look like agreement.
    """
    rows = pairs(scores, other, where)
    return ClassSensitivity(*(np.concatenate([of(a, b) for a, b in rows]) for of in (pearson, spearman)))
