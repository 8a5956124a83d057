"""A matrix of pairs to draw: units of one text down, units of another across."""

from __future__ import annotations

from dataclasses import dataclass

from relprop.render.caption import Caption
from relprop.render.text.layout import SEPARATOR, Cell, caption, cells
from relprop.types import Heatmap, Shares, Unit

SCALE = "shaded relative to the strongest pair"


@dataclass(frozen=True)
class PairMap:
    """What a renderer draws."""

    rows: tuple[Unit, ...]
    columns: tuple[Unit, ...]
    scores: tuple[tuple[float, ...], ...]
    method: str
    target: str
    value: float
    note: str = ""  # for instance what was cut off
    beside: Shares | None = None  # the value's shares beside the scores; None: no sum is claimed

    @property
    def strongest(self) -> float:
        """The largest magnitude."""
        return max((abs(score) for row in self.scores for score in row), default=0.0)

    @property
    def caption(self) -> Caption:
        """The words around it; the scores that they add up are those of all pairs."""
        sums = tuple(map(sum, self.scores))
        own = {"note": self.note, "shares": self.beside is not None, "beside": self.beside or ()}
        return caption(Heatmap(self.rows, sums, self.method, self.target, self.value, **own))  # type: ignore[arg-type]

    def shade(self, row: int, column: int) -> float:
        return self.scores[row][column] / self.strongest if self.strongest else 0.0

    def labels(self) -> tuple[list[Cell], list[Cell]]:
        """The units of either text, shaded by their sums over the other."""
        sums = (tuple(map(sum, self.scores)), tuple(map(sum, zip(*self.scores, strict=True))))
        sides = zip((self.rows, self.columns), sums, strict=True)
        laid = (cells(Heatmap(units, own, self.method, self.target, self.value)) for units, own in sides)
        first, second = ([cell for cell in side if cell is not SEPARATOR] for side in laid)
        return first, second

    def top(self, count: int) -> list[tuple[int, int, float]]:
        """The strongest pairs of either sign: row, column, score."""
        every = [(i, k, score) for i, row in enumerate(self.scores) for k, score in enumerate(row) if score]
        return sorted(every, key=lambda pair: -abs(pair[2]))[:count]
