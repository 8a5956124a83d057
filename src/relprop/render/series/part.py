"""`SeriesPart`: scores of windows of a series of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from relprop.part import Part, Words
from relprop.render.series.layout import SeriesLine, SeriesMap

Scores = tuple[float, ...]


@dataclass(frozen=True)
class SeriesWindow:
    """What one row of the model reads: steps `start` to `end`, both included, of some channels in a row."""

    text: str  # the channels' name and the steps
    start: int
    end: int
    channel: int
    last_channel: int


@dataclass(frozen=True, eq=False)
class SeriesPart(Part):
    """The windows of one series, and one score per window."""

    kind: ClassVar[str] = "series"
    rendering: ClassVar[str] = "relprop.render.series"
    whole_columns: ClassVar[tuple[str, ...]] = ("start", "end", "channel", "last_channel")
    scored: ClassVar[tuple[str, ...]] = ("scores", "rest")

    name: str
    channels: tuple[str, ...]
    values: NDArray[np.float64]  # [steps, channels]
    observed: NDArray[np.float64]  # [steps, channels]: 0 where nothing was observed, and the value is 0
    units: tuple[SeriesWindow, ...]
    scores: Scores
    rest: float = 0.0  # scores of rows that read nothing of the series, such as class tokens
    note: str = ""  # what was left out
    by_step: tuple[tuple[Scores, float], ...] = ()  # per step its own `scores` and `rest`

    def __post_init__(self) -> None:
        if self.values.shape != self.observed.shape or self.values.shape[1:] != (len(self.channels),):
            raise ValueError(f"{len(self.channels)} channels, values {list(self.values.shape)}")
        for scores in (self.scores, *(own for own, _ in self.by_step)):
            if len(scores) != len(self.units):
                raise ValueError(f"{len(self.units)} windows, {len(scores)} scores")

    @property
    def total(self) -> float:
        return sum(self.scores) + self.rest

    def top(self, count: int) -> list[tuple[SeriesWindow, float]]:
        return sorted(zip(self.units, self.scores, strict=True), key=lambda pair: -abs(pair[1]))[:count]

    def map(self) -> NDArray[np.float64]:
        """[steps, channels]: each window's score, spread evenly over what it reads; overlapping ones are added."""
        spread = np.zeros(self.values.shape)
        for unit, score in zip(self.units, self.scores, strict=True):
            size = (unit.end - unit.start + 1) * (unit.last_channel - unit.channel + 1)
            spread[unit.start : unit.end + 1, unit.channel : unit.last_channel + 1] += score / size
        return spread

    def without_special(self) -> Self:
        return replace(self, rest=0.0, by_step=tuple((scores, 0.0) for scores, _ in self.by_step))

    def columns(self) -> dict[str, Sequence[object]]:
        """One row per window; rows that read nothing of the series are one row, special."""
        rows: list[tuple[object, ...]] = [
            (*asdict(unit).values(), False, score) for unit, score in zip(self.units, self.scores, strict=True)
        ]
        if self.rest:
            rows.append((None, None, None, None, None, True, self.rest))
        names = ("text", "start", "end", "channel", "last_channel", "special", "score")
        return {name: [row[k] for row in rows] for k, name in enumerate(names)}

    def to_dict(self) -> dict[str, object]:
        plain = {name: getattr(self, name) for name in ("name", "channels", "scores", "rest", "note")}
        arrays = {"values": self.values.tolist(), "observed": self.observed.tolist()}
        steps = {"by_step": self.by_step} if self.by_step else {}
        return {"kind": self.kind, "units": [asdict(unit) for unit in self.units], **arrays, **plain, **steps}

    @classmethod
    def from_dict(cls, data: dict[str, Any], attached: Any = None) -> Self:
        units = tuple(SeriesWindow(**unit) for unit in data["units"])
        values, observed = (np.array(data[name], dtype=np.float64) for name in ("values", "observed"))
        for unit in units:
            if not (
                0 <= unit.start <= unit.end < len(values) and 0 <= unit.channel <= unit.last_channel < values.shape[1]
            ):
                raise ValueError(f"a window lies at steps {unit.start} to {unit.end} of {len(values)}")
        steps = tuple((tuple(scores), rest) for scores, rest in data.get("by_step", ()))
        own = {"units": units, "values": values, "observed": observed, "channels": tuple(data["channels"])}
        return cls(**{**data, **own, "scores": tuple(data["scores"]), "by_step": steps})

    def lines(self, several: bool) -> list[SeriesLine]:
        """Its channels; with the part's name where there are several parts."""
        values, shares = np.where(self.observed > 0, self.values, np.nan), self.map()
        names = [f"{self.name}: {channel}" if several else channel for channel in self.channels]
        return [SeriesLine(name, values[:, k], shares[:, k]) for k, name in enumerate(names)]

    @classmethod
    def drawing(cls, parts: Sequence[Self], words: Words) -> SeriesMap:
        """All series of an explanation, one under the other."""
        lines = tuple(line for part in parts for line in part.lines(len(parts) > 1))
        top = max((pair for part in parts for pair in part.top(1)), key=lambda pair: abs(pair[1]), default=None)
        strongest = "nothing" if top is None or not top[1] else top[0].text
        note = "; ".join(part.note for part in parts if part.note)
        return SeriesMap(lines, tuple((part.name, part.total) for part in parts), strongest, words, note)
