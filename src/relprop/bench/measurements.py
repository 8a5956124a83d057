"""What was measured: numbers by method, metric and example, and things to look at. Stored as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import nan
from typing import Any

from relprop.errors import InputError

Numbers = dict[str, dict[str, list[float]]]
Exhibit = dict[str, Any]  # "kind", "example" and what the kind needs; stored as JSON
CEILING = "ceiling"  # the label of the best order that a search finds
UNIFORM = "uniform map"  # the label of a map that is the same everywhere
MARKED = {  # metrics of marked words or patches, each with its field of `relprop.metrics.MarkedWords`
    "marked_precision": "precision",
    "marked_reciprocal_rank": "reciprocal_rank",
    "marked_auprc": "average_precision",
}


@dataclass(frozen=True)
class Curves:
    """One metric's curve for every example, over the positions `at`."""

    at: list[float]
    values: list[list[float]]  # [examples][at]


@dataclass
class Measurements:
    """All numbers of some examples; NaN where a method has none for an example.

    `scores[method][metric]` has one number per example, `curves[method][metric]` one curve per example. `exhibits` are
    things to look at, {"kind": ..., ...}. `seconds` is the time of each method, which is not exported.
    """

    examples: list[int]  # their numbers in the dataset's split
    scores: Numbers = field(default_factory=dict)
    curves: dict[str, dict[str, Curves]] = field(default_factory=dict)
    exhibits: list[Exhibit] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, method: str, metric: str, values: Sequence[float]) -> None:
        """Append the numbers of further examples."""
        self.scores.setdefault(method, {}).setdefault(metric, []).extend(float(value) for value in values)

    def add_curve(self, method: str, metric: str, at: Sequence[float], values: Sequence[Sequence[float]]) -> None:
        own = self.curves.setdefault(method, {}).setdefault(metric, Curves([float(x) for x in at], []))
        own.values.extend([float(value) for value in row] for row in values)

    def leave_out(self, which: Sequence[bool]) -> None:
        """Take the numbers of some of the examples away."""
        for own in self.scores.values():
            for metric, values in own.items():
                own[metric] = [nan if out else value for out, value in zip(which, values, strict=True)]
        for curves in self.curves.values():
            for curve in curves.values():
                curve.values[:] = [
                    [nan] * len(row) if out else row for out, row in zip(which, curve.values, strict=True)
                ]

    @contextmanager
    def timed(self, method: str) -> Iterator[None]:
        """Adds the time of the block to the method's seconds."""
        start = time.perf_counter()
        yield
        self.seconds[method] = self.seconds.get(method, 0.0) + time.perf_counter() - start

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Measurements:
        try:
            curves = {
                method: {metric: Curves(**one) for metric, one in own.items()} for method, own in data["curves"].items()
            }
            whole = cls(**{**data, "curves": curves})
            numbers: list[Sequence[object]] = [values for own in whole.scores.values() for values in own.values()]
            numbers += [curve.values for own in curves.values() for curve in own.values()]
            if any(len(values) != len(whole.examples) for values in numbers):
                raise ValueError("as many numbers as examples are needed")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"a stored result is no measurement ({error})") from error
        return whole


def join_measurements(parts: Sequence[Measurements]) -> Measurements:
    """All parts as one, in their order; NaN where a part has no numbers of a method that another part has."""
    whole = Measurements([number for part in parts for number in part.examples])
    scores = {(method, metric): None for part in parts for method, own in part.scores.items() for metric in own}
    curves = {
        (method, metric): curve.at
        for part in parts
        for method, own in part.curves.items()
        for metric, curve in own.items()
    }
    for part in parts:
        count = len(part.examples)
        for method, metric in scores:
            whole.add(method, metric, part.scores.get(method, {}).get(metric, [nan] * count))
        for (method, metric), at in curves.items():
            known = part.curves.get(method, {}).get(metric, Curves(at, [[nan] * len(at)] * count))
            whole.add_curve(method, metric, at, known.values)
        for method, seconds in part.seconds.items():
            whole.seconds[method] = whole.seconds.get(method, 0.0) + seconds
        whole.exhibits += part.exhibits
    return whole
