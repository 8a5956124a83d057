"""Numbers with their uncertainty, by the bootstrap over examples.

A statistic is a function of weights [draws, examples] to numbers [draws]. With all weights 1 it is the number itself;
with the counts of examples drawn with replacement it is the number of another sample. One seed gives the same draws
for every statistic, so that differences of two estimates are paired; this is what `scipy.stats.bootstrap` lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
DRAWS, LEVEL = 2000, 0.95


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number, and the same number of many samples drawn with replacement."""

    value: float
    draws: Floats

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The middle `level` of the draws; the number itself where no draw has one."""
        known = self.draws[~np.isnan(self.draws)]
        if not known.size:
            return self.value, self.value
        low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    @property
    def half_width(self) -> float:
        low, high = self.interval()
        return (high - low) / 2

    def minus(self, other: Estimate) -> Estimate:
        """The paired difference: both must have the same examples and seed."""
        return Estimate(self.value - other.value, self.draws - other.draws)

    def times(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.draws * factor)


@lru_cache(maxsize=8)
def _drawn_counts(examples: int, seed: int) -> Floats:
    counts = np.random.default_rng(seed).multinomial(examples, np.full(examples, 1 / examples), size=DRAWS)
    return counts.astype(np.float64)


def bootstrap(statistic: Statistic, examples: int, seed: int) -> Estimate | None:
    """The statistic's estimate; None where it is not defined."""
    if not examples:
        return None
    value = float(statistic(np.ones((1, examples)))[0])
    return None if np.isnan(value) else Estimate(value, statistic(_drawn_counts(examples, seed)))


def mean(values: Floats) -> Statistic:
    """The mean of the values that are defined."""
    return ratio(values, np.ones_like(values))


def ratio(above: Floats, below: Floats) -> Statistic:
    """The ratio of two sums, over the examples where both are defined."""
    both = ~np.isnan(above) & ~np.isnan(below)
    above, below = np.where(both, above, 0.0), np.where(both, below, 0.0)
    return lambda weights: divide(weights @ above, weights @ below)


def divide(above: Floats, below: Floats) -> Floats:
    """NaN where the divisor is 0."""
    quotients: Floats = np.divide(above, below, out=np.full(len(below), np.nan), where=below != 0)
    return quotients
