"""Methods compared on texts of one's own: every method by every metric, with intervals, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relprop.metrics import METRICS, Curve, merged

_DRAWS = 2000


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Per method and metric a curve for every text, in the order given; printed, it is a Markdown table."""

    curves: Mapping[str, Mapping[str, Curve]]

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(next(iter(self.curves.values())))

    def table(self) -> dict[str, dict[str, float]]:
        """Per method and metric the mean over texts."""
        return {method: {m: self._mean(curve) for m, curve in found.items()} for method, found in self.curves.items()}

    def interval(self, method: str, metric: str, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
        """Bootstrap over texts: where the mean lies in this share of the draws."""
        values = self._known(self.curves[method][metric])
        draws = np.random.default_rng(seed).integers(len(values), size=(_DRAWS, len(values)))
        low, high = np.quantile(values[draws].mean(1), [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    def best(self, metric: str) -> str:
        """The method that does best by a metric, whichever way is better."""
        sign = 1 if METRICS[metric].better == "higher" else -1
        return max(self.curves, key=lambda method: sign * self._mean(self.curves[method][metric]))

    @staticmethod
    def _known(curve: Curve) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        scores = curve.scores()
        return scores[~np.isnan(scores)]

    def _mean(self, curve: Curve) -> float:
        known = self._known(curve)
        return float(known.mean()) if len(known) else float("nan")

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


def collected(parts: Sequence[Mapping[str, Mapping[str, Curve]]], order: Sequence[int]) -> Evaluation:
    """One evaluation of the batches' curves, the texts put back into their order."""
    back = np.argsort(order)
    methods = parts[0]
    return Evaluation({
        method: {metric: _ordered(merged([part[method][metric] for part in parts]), back) for metric in methods[method]}
        for method in methods
    })  # fmt: skip


def _ordered(curve: Curve, order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Curve:
    return Curve(curve.name, curve.fractions, curve.by, curve.values[order], curve.labels[order])
