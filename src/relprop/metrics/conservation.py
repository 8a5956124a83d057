"""Conservation, [Ali22] Fig. 3: do the scores add up to the output that they explain?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from relprop.errors import InputError
from relprop.metrics.correlation import pearson
from relprop.metrics.score_arrays import Floats, Values, finite_scores


@dataclass(frozen=True, eq=False)
class Conservation:
    """The points of the scatter plot: sum R against y, one per example. On the diagonal, relevance is conserved."""

    totals: Floats  # [examples], sum over units of R
    values: Floats  # [examples], y of the target

    @property
    def correlation(self) -> float:
        """Pearson's; NaN for one example, or where all sums or all outputs are equal."""
        return float(pearson(self.totals[None], self.values[None])[0])

    @property
    def line(self) -> tuple[float, float]:
        """Slope and intercept of the least-squares line of sum R on y; (1, 0) is the diagonal."""
        y = self.values - self.values.mean()
        slope = float(y @ self.totals / (y @ y)) if y.any() else float("nan")
        return slope, float(self.totals.mean() - slope * self.values.mean())

    @property
    def gap(self) -> float:
        """The distance from the diagonal: mean |sum R - y| in units of mean |y|."""
        size = np.abs(self.values).mean()
        return float(np.abs(self.totals - self.values).mean() / size) if size else float("nan")

    @property
    def wrong_sign(self) -> float:
        """The share of examples whose sum R has another sign than y."""
        return float((np.sign(self.totals) != np.sign(self.values)).mean())

    @property
    def median_miss(self) -> float:
        """The median of |sum R - y| / |y|, over the examples whose y is not 0."""
        some = self.values != 0
        return float(np.median(np.abs(self.totals[some] / self.values[some] - 1))) if some.any() else float("nan")

    def summary(self) -> dict[str, float]:
        return {
            "conservation_correlation": self.correlation,
            "conservation_gap": self.gap,
            "conservation_wrong_sign": self.wrong_sign,
            "conservation_median_miss": self.median_miss,
        }


def conservation(scores: Values | Mapping[str, Values], values: Values) -> Conservation:
    """Sums of scores [examples, ...] beside the outputs [examples] they explain; `Attribution` holds both.

    `scores` may be a dict with the scores of several parts, which are summed together.
    """
    if isinstance(scores, Mapping):
        parts = [finite_scores(part) for part in scores.values()]
        scores = np.concatenate([part.reshape(len(part), -1) for part in parts], 1)
    totals, outputs = finite_scores(scores), finite_scores(values, "values")
    if totals.ndim < 2 or outputs.shape != totals.shape[:1]:
        raise InputError(
            f"scores [examples, ...] and one value each, got {list(totals.shape)} and {list(outputs.shape)}"
        )
    return Conservation(totals.reshape(len(totals), -1).sum(1), outputs)
