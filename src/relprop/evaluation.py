"""Methods compared on the user's own texts: every method by every metric, with intervals, as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relprop.bootstrap import LEVEL, Floats, bootstrap, mean
from relprop.metrics import METRICS, Curve, merged


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One curve per method, metric and text, in the order given; printed, it is a Markdown table."""

    curves: Mapping[str, Mapping[str, Curve]]

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(next(iter(self.curves.values())))

    def table(self) -> dict[str, dict[str, float]]:
        """The mean over texts, by method and metric."""
        return {method: {m: _mean(curve) for m, curve in found.items()} for method, found in self.curves.items()}

    def interval(self, method: str, metric: str, level: float = LEVEL, seed: int = 0) -> tuple[float, float]:
        """The bootstrap interval of the mean over texts."""
        values = _known(self.curves[method][metric])
        estimate = bootstrap(mean(values), len(values), seed)
        return (math.nan, math.nan) if estimate is None else estimate.interval(level)

    def best(self, metric: str) -> str:
        """The method with the best mean of a metric, which may be the highest or the lowest."""
        sign = 1 if METRICS[metric].better == "higher" else -1
        return max(self.curves, key=lambda method: sign * _mean(self.curves[method][metric]))

    def __str__(self) -> str:
        heads = [f"{metric} ({'+' if METRICS[metric].better == 'higher' else '-'})" for metric in self.metrics]
        lines = [f"| method | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
        best = {metric: self.best(metric) for metric in self.metrics}
        for method, row in self.table().items():
            cells = []
            for metric, value in row.items():
                low, high = self.interval(method, metric)
                cell = f"{value:.3f} ± {(high - low) / 2:.3f}"
                cells.append(f"**{cell}**" if best[metric] == method else cell)
            lines.append(f"| {method} | {' | '.join(cells)} |")
        return "\n".join(lines)


def join_batches(parts: Sequence[Mapping[str, Mapping[str, Curve]]], order: Sequence[int]) -> Evaluation:
    """One evaluation from the curves of all batches, with the texts in their original order."""
    back = np.argsort(order)
    methods = parts[0]

    def joined(method: str, metric: str) -> Curve:
        curve = merged([part[method][metric] for part in parts])
        return replace(curve, values=curve.values[back], labels=curve.labels[back])

    return Evaluation({method: {metric: joined(method, metric) for metric in methods[method]} for method in methods})


def _known(curve: Curve) -> Floats:
    scores = curve.scores()
    return scores[~np.isnan(scores)]


def _mean(curve: Curve) -> float:
    known = _known(curve)
    return float(known.mean()) if len(known) else math.nan
