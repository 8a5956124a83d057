"""A curve an example: what the model says while more and more of the input is hidden, or shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from relprop.metrics.results import Floats, Ints, mean


@dataclass(frozen=True, eq=False)
class Curve:
    """One metric's values, example by example and fraction by fraction; NaN for examples that it leaves out."""

    name: str
    fractions: tuple[float, ...]
    by: Literal["area", "mean"]  # how the metric makes one number of a curve
    values: Floats  # [examples, fractions]
    labels: Ints  # [examples], the classes whose probability was read

    def area(self) -> Floats:
        """[examples]: by the trapezoid rule over the fractions."""
        heights = (self.values[:, 1:] + self.values[:, :-1]) / 2
        area: Floats = heights @ np.diff(self.fractions)
        return area

    def mean(self) -> Floats:
        """[examples]: the plain mean over the fractions."""
        average: Floats = self.values.mean(1)
        return average

    def scores(self) -> Floats:
        """[examples]: the metric's own number, an area or a mean. Their mean is the metric."""
        return self.area() if self.by == "area" else self.mean()

    def curve(self) -> Floats:
        """[fractions]: the mean over examples, to be drawn."""
        return np.array([mean(column) for column in self.values.T])

    def summary(self) -> dict[str, float]:
        return {self.name: mean(self.scores())}
