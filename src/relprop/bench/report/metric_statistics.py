"""How each metric is computed from the columns of numbers that a run keeps, as a statistic for the bootstrap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from relprop.bootstrap import Floats, Statistic, divide, mean, ratio

Columns = Mapping[str, Sequence[float]]  # one number per example


def metric_statistic(metric: str, columns: Columns) -> Statistic | None:
    """A few metrics combine several columns, the others are the mean of their own. None: the columns are missing."""
    names, combine = _recipe(metric, columns)
    if any(name not in columns for name in names):
        return None
    return combine(*(np.asarray(columns[name], np.float64) for name in names))


def known_examples(metric: str, columns: Columns) -> int:
    """How many examples the metric has a number for."""
    names, _ = _recipe(metric, columns)
    return int((~np.isnan([columns[name] for name in names])).all(0).sum())


def _recipe(metric: str, columns: Columns) -> tuple[tuple[str, ...], Callable[..., Statistic]]:
    own = (metric,), mean
    return own if metric in columns else _COMBINED.get(metric, own)


def correlation(a: Floats, b: Floats) -> Statistic:
    """Pearson's; NaN where one of them does not vary."""
    both = ~np.isnan(a) & ~np.isnan(b)
    x, y = _centred(a, both), _centred(b, both)

    def weighted(weights: Floats) -> Floats:
        count = weights @ both.astype(np.float64)
        mean_x, mean_y, xx, yy, xy = (divide(weights @ one, count) for one in (x, y, x * x, y * y, x * y))
        spread = np.maximum(xx - mean_x**2, 0.0) * np.maximum(yy - mean_y**2, 0.0)
        varied = np.where(spread > 1e-20, spread, 0.0)
        return divide(xy - mean_x * mean_y, np.sqrt(varied)).clip(-1, 1)

    return weighted


def _centred(values: Floats, where: NDArray[np.bool_]) -> Floats:
    """Mean 0 and largest deviation 1, which changes no correlation; 0 elsewhere."""
    centred = np.where(where, values - values[where].mean() if where.any() else 0.0, 0.0)
    return centred / (np.abs(centred).max(initial=0.0) or 1.0)


def gap(totals: Floats, values: Floats) -> Statistic:
    """Mean |sum R - y| in units of mean |y|."""
    return ratio(np.abs(totals - values), np.abs(values))


def wrong_sign(totals: Floats, values: Floats) -> Statistic:
    """The share of examples where sum R has another sign than y."""
    known = ~np.isnan(totals) & ~np.isnan(values)
    return mean(np.where(known, np.sign(totals) != np.sign(values), np.nan))


def median_miss(totals: Floats, values: Floats) -> Statistic:
    """The median of |sum R - y| / |y|."""
    misses = np.abs(np.divide(totals, values, out=np.full(len(values), np.nan), where=values != 0) - 1)
    order = np.argsort(misses)  # NaN last
    ranked, known = misses[order], ~np.isnan(misses[order])

    def weighted(weights: Floats) -> Floats:
        counted = (weights[:, order] * known).cumsum(1)
        half = counted[:, -1:] / 2
        middle = [(counted < half).sum(1), (counted <= half).sum(1)]  # the two in the middle, or the same one twice
        medians: Floats = ranked.take(middle, mode="clip").mean(0)
        return np.where(half[:, 0] > 0, medians, np.nan)

    return weighted


def mean_iou(*tallies: Floats) -> Statistic:
    """Intersection over union, accumulated; the mean of background and object, where they occur."""
    classes = [ratio(tallies[0], tallies[1]), ratio(tallies[2], tallies[3])]

    def both(weights: Floats) -> Floats:
        each = np.stack([one(weights) for one in classes])
        known = ~np.isnan(each)
        return divide(np.where(known, each, 0.0).sum(0), known.sum(0).astype(np.float64))

    return both


def share(values: Floats, floor: Floats, ceiling: Floats) -> Statistic:
    """Share of what is possible: (value - floor) / (ceiling - floor), over the examples where all three are known."""
    return ratio(values - floor, ceiling - floor)


_COMBINED: dict[str, tuple[tuple[str, ...], Callable[..., Statistic]]] = {
    "conservation_correlation": (("total", "value"), correlation),
    "conservation_gap": (("total", "value"), gap),
    "conservation_wrong_sign": (("total", "value"), wrong_sign),
    "conservation_median_miss": (("total", "value"), median_miss),
    "mean_iou": (("intersection_0", "union_0", "intersection_1", "union_1"), mean_iou),
    "pixel_accuracy": (("correct", "labelled"), ratio),
    "pooled_recall_at_k": (("hits", "answer"), ratio),
}
