"""Class sensitivity, [Chefer21] Fig. 3: how alike are the scores of two classes?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relprop.metrics.correlation import compared_rows, pearson, spearman
from relprop.metrics.score_arrays import Floats, Values, mean_defined


@dataclass(frozen=True, eq=False)
class ClassSensitivity:
    """One correlation per example; NaN where all scores of a map are equal. Lower is more class-specific."""

    pearson: Floats
    spearman: Floats

    def summary(self) -> dict[str, float]:
        """Means over the examples where the correlation is defined."""
        return {"class_pearson": mean_defined(self.pearson), "class_spearman": mean_defined(self.spearman)}


def class_sensitivity(scores: Values, other: Values, where: Values | None = None) -> ClassSensitivity:
    """Correlation of the scores [examples, ...] of one class with those of another, on the same examples.

    `where`, a mask of the same shape, marks the scores that count: padding, equal in both, would look like agreement.
    """
    rows = compared_rows(scores, other, where)
    return ClassSensitivity(*(np.concatenate([of(a, b) for a, b in rows]) for of in (pearson, spearman)))
