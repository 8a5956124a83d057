"""One curve per example: what the model returns while more and more of the input is hidden, or shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from relprop.metrics.score_arrays import Floats, Ints, mean_defined


def trapezoid_area(values: Floats, fractions: Sequence[float]) -> Floats:
    """[examples]: the area under values [examples, fractions] by the trapezoid rule."""
    area: Floats = (values[:, 1:] + values[:, :-1]) / 2 @ np.diff(fractions)
    return area


@dataclass(frozen=True, eq=False)
class Curve:
    """One metric's values per example and fraction; NaN for examples that the metric leaves out."""

    name: str
    fractions: tuple[float, ...]
    by: Literal["area", "mean"]  # how the metric turns a curve into one number
    values: Floats  # [examples, fractions]
    labels: Ints  # [examples], the classes whose probability was read

    def area(self) -> Floats:
        """[examples]: the area by the trapezoid rule."""
        return trapezoid_area(self.values, self.fractions)

    def mean(self) -> Floats:
        """[examples]: the mean over the fractions."""
        average: Floats = self.values.mean(1)
        return average

    def scores(self) -> Floats:
        """[examples]: the metric's own number, an area or a mean. Their mean is the metric."""
        return self.area() if self.by == "area" else self.mean()

    def curve(self) -> Floats:
        """[fractions]: the mean over examples, to be drawn."""
        return np.array([mean_defined(column) for column in self.values.T])

    def summary(self) -> dict[str, float]:
        return {self.name: mean_defined(self.scores())}
