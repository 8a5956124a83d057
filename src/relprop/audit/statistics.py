"""Do groups differ? Distributions, tests and effect sizes of numbers by group. Knows nothing of models or texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
LEVEL, POWER = 0.95, 0.8  # of intervals; of what is called detectable
Z = float(stats.norm.ppf((1 + LEVEL) / 2))
_AT_ONCE = 4_000_000  # numbers shuffled at a time
NAN = float("nan")


class Interval(NamedTuple):
    low: float
    high: float


UNKNOWN = Interval(NAN, NAN)


@dataclass(frozen=True)
class Summary:
    """The distribution of one group's numbers. `interval` is of the mean, 95 %."""

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
    """Two groups: how far apart, how surely, how much. Differences are of the first less the second, intervals 95 %.

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


def summary(group: str, values: Floats) -> Summary:
    count = len(values)
    if not count:
        return Summary(group, 0, NAN, UNKNOWN, NAN, NAN, NAN, NAN)
    mean, sd = float(values.mean()), float(values.std(ddof=1)) if count > 1 else NAN
    reach = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * sd / math.sqrt(count) if count > 1 else NAN
    quartiles = (float(one) for one in np.quantile(values, [0.25, 0.5, 0.75]))
    return Summary(group, count, mean, Interval(mean - reach, mean + reach), sd, *quartiles)


def comparisons(groups: Mapping[str, Floats], *, draws: int, seed: int) -> tuple[Comparison, ...]:
    """Every pair of groups that have two numbers or more each."""
    pairs = [(a, b) for a, b in combinations(groups, 2) if min(len(groups[a]), len(groups[b])) > 1]
    permuted = [permutation_test(groups[a], groups[b], draws, seed) for a, b in pairs]
    ranked = [stats.mannwhitneyu(groups[a], groups[b], alternative="two-sided") for a, b in pairs]
    by_rank = [float(one.pvalue) for one in ranked]
    both = zip(holm(permuted), holm(by_rank), strict=True)
    return tuple(
        _comparison(pair, groups, p, float(u.statistic), by_ranks, corrected)
        for pair, p, u, by_ranks, corrected in zip(pairs, permuted, ranked, by_rank, both, strict=True)
    )


def _comparison(
    pair: tuple[str, str], groups: Mapping[str, Floats], p: float, u: float, by_rank: float, both: tuple[float, float]
) -> Comparison:
    x, y = groups[pair[0]], groups[pair[1]]
    delta, delta_interval = cliffs_delta(x, y)
    d, d_interval = cohens_d(x, y)
    return Comparison(
        first=pair[0],
        second=pair[1],
        counts=(len(x), len(y)),
        difference=float(x.mean() - y.mean()),
        interval=welch_interval(x, y),
        permutation=p,
        permutation_corrected=both[0],
        u=u,
        mann_whitney=by_rank,
        mann_whitney_corrected=both[1],
        cliffs_delta=delta,
        cliffs_interval=delta_interval,
        cohens_d=d,
        cohens_interval=d_interval,
        detectable=detectable(len(x), len(y)),
    )


def detectable(n: int, m: int) -> float:
    """The Cohen's d that a test of so many numbers shows with a chance of 80 %; infinite where none could."""
    least = (2 if n == m else 1) / math.comb(n + m, n)  # the smallest p that there can be; a mirrored deal is as far
    if least >= 1 - LEVEL:
        return math.inf
    quantiles = stats.t.ppf([(1 + LEVEL) / 2, POWER], n + m - 2)
    return float(quantiles.sum() * math.sqrt(1 / n + 1 / m))


def permutation_test(x: Floats, y: Floats, draws: int, seed: int) -> float:
    """How often labels dealt at random part the means as far, either way: of all deals if they are few, else of draws.

    With draws, the deal found counts as one of them, so that p is never 0 and the test holds its level.
    """
    pooled, count = np.concatenate([x, y]), len(x)
    total, size = pooled.sum(), len(pooled)

    def apart(sums: Floats) -> Floats:
        gaps: Floats = np.abs(sums / count - (total - sums) / (size - count))
        return gaps

    least = apart(np.atleast_1d(x.sum()))[0] * (1 - 1e-9) - 1e-12 * np.abs(pooled).max()  # rounding is no difference
    if math.comb(size, count) <= draws:
        every = np.array(list(combinations(range(size), count)))
        return float((apart(pooled[every].sum(1)) >= least).mean())
    generator, step = np.random.default_rng(seed), max(1, _AT_ONCE // size)
    as_far = 0
    for start, stop in pairwise([*range(0, draws, step), draws]):
        dealt = generator.permuted(np.tile(pooled, (stop - start, 1)), axis=1)
        as_far += int((apart(dealt[:, :count].sum(1)) >= least).sum())
    return (as_far + 1) / (draws + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected for the number of tests, step by step from the smallest."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, so_far = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = so_far
    return corrected


def welch_interval(x: Floats, y: Floats) -> Interval:
    """Of the difference of means, where the groups may vary differently."""
    one, other = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    if one + other == 0:
        return UNKNOWN
    freedom = (one + other) ** 2 / (one**2 / (len(x) - 1) + other**2 / (len(y) - 1))
    reach = float(stats.t.ppf((1 + LEVEL) / 2, freedom) * math.sqrt(one + other))
    difference = float(x.mean() - y.mean())
    return Interval(difference - reach, difference + reach)


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
    """How much more often the first group's number is the larger one: from -1 to 1. Interval: Feng and Cliff 2004."""
    n, m = len(x), len(y)
    above, ties = _dominance(x, y), _ties(x, y)
    below = -_dominance(y, x)
    d = float(above.mean())
    if abs(d) == 1:  # no spread is left to reckon with
        bound = (min(n, m) - Z**2) / (min(n, m) + Z**2)
        return d, Interval(bound, 1.0) if d > 0 else Interval(-1.0, -bound)
    cells = n * m - ties - n * m * d**2  # the sum over all pairs of (d_ij - d) ** 2
    rows, columns = ((above - d) ** 2).sum(), ((below - d) ** 2).sum()
    variance = float((m**2 * rows + n**2 * columns - cells) / (n * m * (n - 1) * (m - 1)))
    variance = max(variance, (1 - d**2) / (n * m - 1))
    reach = Z * math.sqrt(variance * ((1 - d**2) ** 2 + Z**2 * variance))
    below_one = 1 - d**2 + Z**2 * variance
    return d, Interval((d - d**3 - reach) / below_one, (d - d**3 + reach) / below_one)


def _dominance(x: Floats, y: Floats) -> Floats:
    """For each of x the share of y below it, less the share above."""
    ordered = np.sort(y)
    below, up_to = np.searchsorted(ordered, x, "left"), np.searchsorted(ordered, x, "right")
    shares: Floats = (below - (len(y) - up_to)) / len(y)
    return shares


def _ties(x: Floats, y: Floats) -> int:
    ordered = np.sort(y)
    return int((np.searchsorted(ordered, x, "right") - np.searchsorted(ordered, x, "left")).sum())
