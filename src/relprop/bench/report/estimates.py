"""Numbers with their uncertainty, by the bootstrap over examples.

A statistic is a function of weights [draws, examples] to numbers [draws]. With all weights 1 it is the number itself;
with counts of examples drawn with replacement it is what another sample might have given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
Columns = Mapping[str, Sequence[float]]  # one number an example
DRAWS, SHARE = 2000, 0.95


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number, and the same number of many samples drawn anew."""

    value: float
    draws: Floats

    def interval(self) -> tuple[float, float]:
        """What 95 % of the draws lie in; the number alone where no draw has one."""
        known = self.draws[~np.isnan(self.draws)]
        if not known.size:
            return self.value, self.value
        low, high = np.quantile(known, [(1 - SHARE) / 2, (1 + SHARE) / 2])
        return float(low), float(high)

    @property
    def half_width(self) -> float:
        low, high = self.interval()
        return (high - low) / 2

    def minus(self, other: Estimate) -> Estimate:
        """Paired: both must be of the same draws."""
        return Estimate(self.value - other.value, self.draws - other.draws)

    def times(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.draws * factor)


@lru_cache(maxsize=8)
def _counts(examples: int, seed: int) -> Floats:
    drawn = np.random.default_rng(seed).multinomial(examples, np.full(examples, 1 / examples), size=DRAWS)
    return drawn.astype(np.float64)


def estimate(statistic: Statistic, examples: int, seed: int) -> Estimate | None:
    """A seed draws the same examples for every statistic, so that differences are paired. None: it is not defined."""
    if not examples:
        return None
    value = float(statistic(np.ones((1, examples)))[0])
    return None if np.isnan(value) else Estimate(value, statistic(_counts(examples, seed)))


def statistic_of(metric: str, columns: Columns) -> Statistic | None:
    """How a metric is made of its columns: of several for a few, else the mean of its own. None: they are not there."""
    needs, made = _recipe(metric, columns)
    return made(*(_array(columns[name]) for name in needs)) if all(name in columns for name in needs) else None


def known(metric: str, columns: Columns) -> int:
    """How many examples the metric has a number for."""
    needs, _ = _recipe(metric, columns)
    return int((~np.isnan([columns[name] for name in needs])).all(0).sum())


def _recipe(metric: str, columns: Columns) -> tuple[tuple[str, ...], Callable[..., Statistic]]:
    needs, made = _MADE.get(metric, ((metric,), mean))
    return ((metric,), mean) if metric in columns else (needs, made)


def mean(values: Floats) -> Statistic:
    """Of the values that are defined."""
    return ratio(values, np.ones_like(values))


def ratio(above: Floats, below: Floats) -> Statistic:
    """Of two sums, over the examples where both are defined."""
    both = ~np.isnan(above) & ~np.isnan(below)
    above, below = np.where(both, above, 0.0), np.where(both, below, 0.0)
    return lambda weights: _divided(weights @ above, weights @ below)


def correlation(a: Floats, b: Floats) -> Statistic:
    """Pearson's; NaN where one of them does not vary."""
    both = ~np.isnan(a) & ~np.isnan(b)
    x, y = _unit(a, both), _unit(b, both)

    def weighted(weights: Floats) -> Floats:
        count = weights @ both.astype(np.float64)
        mean_x, mean_y, xx, yy, xy = (_divided(weights @ one, count) for one in (x, y, x * x, y * y, x * y))
        spread = np.maximum(xx - mean_x**2, 0.0) * np.maximum(yy - mean_y**2, 0.0)
        varied = np.where(spread > 1e-20, spread, 0.0)
        return _divided(xy - mean_x * mean_y, np.sqrt(varied)).clip(-1, 1)

    return weighted


def _unit(values: Floats, where: NDArray[np.bool_]) -> Floats:
    """Mean 0 and largest deviation 1, which no correlation sees; 0 elsewhere."""
    centred = np.where(where, values - values[where].mean() if where.any() else 0.0, 0.0)
    return centred / (np.abs(centred).max(initial=0.0) or 1.0)


def gap(totals: Floats, values: Floats) -> Statistic:
    """Mean |sum R - y| in units of mean |y|."""
    return ratio(np.abs(totals - values), np.abs(values))


def mean_iou(*tallies: Floats) -> Statistic:
    """Intersection over union, accumulated; the mean of background and object, where they are."""
    classes = [ratio(tallies[0], tallies[1]), ratio(tallies[2], tallies[3])]

    def both(weights: Floats) -> Floats:
        each = np.stack([one(weights) for one in classes])
        there = ~np.isnan(each)
        return _divided(np.where(there, each, 0.0).sum(0), there.sum(0).astype(np.float64))

    return both


def share(values: Floats, floor: Floats, ceiling: Floats) -> Statistic:
    """Of what is possible: (value - floor) / (ceiling - floor), over the examples where all three are known."""
    all_known = ~np.isnan(values) & ~np.isnan(floor) & ~np.isnan(ceiling)
    above, below = (np.where(all_known, one - floor, 0.0) for one in (values, ceiling))
    return lambda weights: _divided(weights @ above, weights @ below)


_MADE: dict[str, tuple[tuple[str, ...], Callable[..., Statistic]]] = {
    "conservation_correlation": (("total", "value"), correlation),
    "conservation_gap": (("total", "value"), gap),
    "mean_iou": (("intersection_0", "union_0", "intersection_1", "union_1"), mean_iou),
    "pixel_accuracy": (("correct", "labelled"), ratio),
    "pooled_recall_at_k": (("hits", "answer"), ratio),
}


def _array(values: Sequence[float]) -> Floats:
    return np.asarray(values, np.float64)


def _divided(above: Floats, below: Floats) -> Floats:
    found: Floats = np.divide(above, below, out=np.full(len(below), np.nan), where=below != 0)
    return found
