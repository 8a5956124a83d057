"""Do groups differ? Distributions, tests and effect sizes of numbers by group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
LEVEL, POWER = 0.95, 0.8  # of intervals; of what is called detectable
Z = float(stats.norm.ppf((1 + LEVEL) / 2))
_AT_ONCE = 4_000_000  # numbers permuted at a time
NAN = float("nan")


class Interval(NamedTuple):
    low: float
    high: float


UNKNOWN = Interval(NAN, NAN)


@dataclass(frozen=True)
class GroupSummary:
    """The distribution of one group's numbers. `interval` is the 95 % interval of the mean."""

    group: str
    count: int
    mean: float
    interval: Interval
    sd: float
    quartile: float
    median: float
    upper_quartile: float


@dataclass(frozen=True)
class Comparison:
    """The difference of two groups, the first less the second, with tests and effect sizes; intervals are 95 %.

    `permutation` and `mann_whitney` are two-sided p-values, the `corrected` ones by Holm over all pairs of groups.
    `detectable` is the Cohen's d that as many numbers would show in four of five cases (p < 0.05, not corrected).
    """

    first: str
    second: str
    counts: tuple[int, int]
    difference: float
    interval: Interval
    permutation: float
    permutation_corrected: float
    u: float
    mann_whitney: float
    mann_whitney_corrected: float
    cliffs_delta: float
    cliffs_interval: Interval
    cohens_d: float
    cohens_interval: Interval
    detectable: float


def group_summary(group: str, values: Floats) -> GroupSummary:
    count = len(values)
    if not count:
        return GroupSummary(group, 0, NAN, UNKNOWN, NAN, NAN, NAN, NAN)
    mean, sd = float(values.mean()), float(values.std(ddof=1)) if count > 1 else NAN
    reach = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * sd / math.sqrt(count) if count > 1 else NAN
    quartiles = (float(one) for one in np.quantile(values, [0.25, 0.5, 0.75]))
    return GroupSummary(group, count, mean, Interval(mean - reach, mean + reach), sd, *quartiles)


def compare_groups(groups: Mapping[str, Floats], *, draws: int, seed: int) -> tuple[Comparison, ...]:
    """Every pair of groups that have two numbers or more each."""
    pairs = [(a, b) for a, b in combinations(groups, 2) if min(len(groups[a]), len(groups[b])) > 1]
    found = [_compare(a, b, groups[a], groups[b], draws, seed) for a, b in pairs]
    permutation, mann_whitney = holm([one.permutation for one in found]), holm([one.mann_whitney for one in found])
    return tuple(
        replace(one, permutation_corrected=p, mann_whitney_corrected=q)
        for one, p, q in zip(found, permutation, mann_whitney, strict=True)
    )


def _compare(first: str, second: str, x: Floats, y: Floats, draws: int, seed: int) -> Comparison:
    """The p-values are not corrected yet."""
    permutation, ranks = permutation_test(x, y, draws, seed), stats.mannwhitneyu(x, y, alternative="two-sided")
    delta, delta_interval = cliffs_delta(x, y)
    d, d_interval = cohens_d(x, y)
    return Comparison(
        first, second, (len(x), len(y)),
        difference=float(x.mean() - y.mean()), interval=welch_interval(x, y),
        permutation=permutation, permutation_corrected=permutation,
        u=float(ranks.statistic), mann_whitney=float(ranks.pvalue), mann_whitney_corrected=float(ranks.pvalue),
        cliffs_delta=delta, cliffs_interval=delta_interval, cohens_d=d, cohens_interval=d_interval,
        detectable=detectable(len(x), len(y)),
    )  # fmt: skip


def detectable(n: int, m: int) -> float:
    """The Cohen's d that a test of so many numbers shows with a chance of 80 %; infinite if none could."""
    least = (2 if n == m else 1) / math.comb(n + m, n)  # the smallest p; the mirrored split has the same difference
    if least >= 1 - LEVEL:
        return math.inf
    quantiles = stats.t.ppf([(1 + LEVEL) / 2, POWER], n + m - 2)
    return float(quantiles.sum() * math.sqrt(1 / n + 1 / m))


def permutation_test(x: Floats, y: Floats, draws: int, seed: int) -> float:
    """How often random groups of the same sizes have means as far apart: over all splits if they are few, else draws.

    With draws, the observed split counts as one of them, so that p is never 0 and the test keeps its level.
    """
    scale = float(np.abs([*x, *y]).max()) or 1.0

    def distance(a: Floats, b: Floats, axis: int) -> Floats:
        apart: Floats = np.round(np.abs(a.mean(axis) - b.mean(axis)) / scale, 10)  # rounding errors are no difference
        return apart

    found = stats.permutation_test(
        (x, y), distance, vectorized=True, alternative="greater", n_resamples=draws,
        batch=max(1, _AT_ONCE // (len(x) + len(y))), random_state=np.random.default_rng(seed),
    )  # fmt: skip
    return float(found.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for the number of tests, from the smallest upwards [Holm 1979]."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, so_far = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = so_far
    return corrected


def welch_interval(x: Floats, y: Floats) -> Interval:
    """Of the difference of means, for groups that may have different variances."""
    if x.var() + y.var() == 0:
        return UNKNOWN
    low, high = stats.ttest_ind(x, y, equal_var=False).confidence_interval(LEVEL)
    return Interval(float(low), float(high))


def cohens_d(x: Floats, y: Floats) -> tuple[float, Interval]:
    """The difference of means in units of the pooled standard deviation; the interval by its large-sample error."""
    n, m = len(x), len(y)
    spread = math.sqrt(((n - 1) * x.var(ddof=1) + (m - 1) * y.var(ddof=1)) / (n + m - 2))
    if spread == 0:
        return NAN, UNKNOWN
    d = float(x.mean() - y.mean()) / spread
    error = math.sqrt((n + m) / (n * m) + d**2 / (2 * (n + m)))
    return d, Interval(d - Z * error, d + Z * error)


def cliffs_delta(x: Floats, y: Floats) -> tuple[float, Interval]:
    """How much more often the first group's number is the larger one, from -1 to 1; interval of Feng and Cliff 2004."""
    n, m = len(x), len(y)
    (above, ties), (below, _) = _dominance(x, y), _dominance(y, x)
    d = float(above.mean())
    if abs(d) == 1:  # the variance is 0
        bound = (min(n, m) - Z**2) / (min(n, m) + Z**2)
        return d, Interval(bound, 1.0) if d > 0 else Interval(-1.0, -bound)
    cells = n * m - ties - n * m * d**2  # the sum over all pairs of (d_ij - d) ** 2
    rows, columns = ((above - d) ** 2).sum(), ((below + d) ** 2).sum()
    variance = float((m**2 * rows + n**2 * columns - cells) / (n * m * (n - 1) * (m - 1)))
    variance = max(variance, (1 - d**2) / (n * m - 1))
    reach = Z * math.sqrt(variance * ((1 - d**2) ** 2 + Z**2 * variance))
    below_one = 1 - d**2 + Z**2 * variance
    return d, Interval((d - d**3 - reach) / below_one, (d - d**3 + reach) / below_one)


def _dominance(x: Floats, y: Floats) -> tuple[Floats, int]:
    """For each x, the share of y below it less the share above; and the number of ties."""
    ordered = np.sort(y)
    below, up_to = np.searchsorted(ordered, x, "left"), np.searchsorted(ordered, x, "right")
    return (below - (len(y) - up_to)) / len(y), int((up_to - below).sum())
