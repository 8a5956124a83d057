"""`FeaturePart`: scores of the columns of one row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from relprop.part import Part, Words
from relprop.render.features.layout import FeatureMap

Scores = tuple[float, ...]


@dataclass(frozen=True)
class FeaturePart(Part):
    """The columns of one row, their values, and one score per column."""

    kind: ClassVar[str] = "features"
    rendering: ClassVar[str] = "relprop.render.features"
    scored: ClassVar[tuple[str, ...]] = ("scores", "rest")

    name: str
    units: tuple[str, ...]  # the columns
    values: tuple[str, ...]  # as they are shown
    scores: Scores
    rest: float = 0.0  # scores of class tokens and the like
    by_step: tuple[tuple[Scores, float], ...] = ()  # per step its own `scores` and `rest`

    def __post_init__(self) -> None:
        for own in (self.values, self.scores, *(scores for scores, _ in self.by_step)):
            if len(own) != len(self.units):
                raise ValueError(f"{len(self.units)} columns, {len(own)} values or scores")

    @property
    def total(self) -> float:
        return sum(self.scores) + self.rest

    def top(self, count: int) -> list[tuple[str, float]]:
        return sorted(zip(self.units, self.scores, strict=True), key=lambda pair: -abs(pair[1]))[:count]

    def without_special(self) -> Self:
        return replace(self, rest=0.0, by_step=tuple((scores, 0.0) for scores, _ in self.by_step))

    def columns(self) -> dict[str, Sequence[object]]:
        """One row per column of the table; class tokens are one row, special."""
        rows: list[tuple[object, ...]] = [
            (*row, False, score) for *row, score in zip(self.units, self.values, self.scores, strict=True)
        ]
        if self.rest:
            rows.append((None, None, True, self.rest))
        return {name: [row[k] for row in rows] for k, name in enumerate(("column", "value", "special", "score"))}

    def to_dict(self) -> dict[str, object]:
        plain = {name: getattr(self, name) for name in ("name", "units", "values", "scores", "rest")}
        return {"kind": self.kind, **plain, **({"by_step": self.by_step} if self.by_step else {})}

    @classmethod
    def from_dict(cls, data: dict[str, Any], attached: Any = None) -> Self:
        lists = {name: tuple(data[name]) for name in ("units", "values", "scores")}
        steps = tuple((tuple(scores), rest) for scores, rest in data.get("by_step", ()))
        return cls(**{**data, **lists, "by_step": steps})

    @classmethod
    def drawing(cls, parts: Sequence[Self], words: Words) -> FeatureMap:
        """The columns of all parts in one table."""
        several = len(parts) > 1
        columns = tuple(f"{part.name}: {unit}" if several else unit for part in parts for unit in part.units)
        values = tuple(value for part in parts for value in part.values)
        scores = tuple(score for part in parts for score in part.scores)
        return FeatureMap(columns, values, scores, sum(part.rest for part in parts), words)
