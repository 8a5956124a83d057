"""Pairs of units of two texts, one score per pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from relprop.errors import InputError
from relprop.part import Part, Words
from relprop.render.pairs.layout import PairMap
from relprop.render.text.part import TextPart
from relprop.types import Unit

Groups = Sequence[Sequence[int]]


@dataclass(frozen=True)
class PairPart(Part):
    """How much each unit of one text makes with each unit of another: `scores[i][k]` is of first[i] and second[k]."""

    kind: ClassVar[str] = "pairs"
    rendering: ClassVar[str] = "relprop.render.pairs"

    name: str
    text: tuple[str, str]
    first: tuple[Unit, ...]  # the units of the first text
    second: tuple[Unit, ...]  # and of the second
    scores: tuple[tuple[float, ...], ...]
    merged: bool = False  # True for words made of sub-words
    truncated: str | None = None  # what was cut off

    def __post_init__(self) -> None:
        if len(self.scores) != len(self.first) or any(len(row) != len(self.second) for row in self.scores):
            raise ValueError(f"{len(self.first)} x {len(self.second)} units do not fit the scores")

    @property
    def units(self) -> list[tuple[Unit, Unit]]:
        """The pairs, row by row."""
        return [(row, column) for row in self.first for column in self.second]

    @property
    def total(self) -> float:
        return sum(map(sum, self.scores))

    @property
    def sides(self) -> tuple[TextPart, TextPart]:
        """Each text with the sums over the other."""
        sums = [tuple(map(sum, self.scores)), tuple(map(sum, zip(*self.scores, strict=True)))]
        return (
            TextPart("first", self.text[:1], self.first, sums[0], merged=self.merged),
            TextPart("second", self.text[1:], self.second, sums[1], merged=self.merged),
        )

    def top(self, count: int) -> list[tuple[tuple[Unit, Unit], float]]:
        flat = [score for row in self.scores for score in row]
        return sorted(zip(self.units, flat, strict=True), key=lambda pair: -abs(pair[1]))[:count]

    def grouped(self, rows: Groups, columns: Groups) -> Self:
        """Units added together on both sides; those in no group are left out."""
        first, second = self.sides
        return replace(
            self,
            first=first.grouped(rows).units,
            second=second.grouped(columns).units,
            scores=tuple(
                tuple(sum(self.scores[i][k] for i in one for k in other) for other in columns) for one in rows
            ),
        )

    def merged_by(self, groups_of: Any) -> Self:
        """Words or sentences, as `TextPart.word_groups` and `TextPart.sentence_groups` find them."""
        first, second = (groups_of(side, len(side.units)) for side in self.sides)
        return replace(self.grouped(first, second), merged=True)

    def without_special(self) -> Self:
        first, second = (side.content_groups() for side in self.sides)
        if not first or not second:
            raise InputError("a text has no units but special ones")
        return self.grouped(first, second)

    def columns(self) -> dict[str, Sequence[object]]:
        return {
            "first": [row.text for row, _ in self.units],
            "second": [column.text for _, column in self.units],
            "score": [score for row in self.scores for score in row],
        }

    def to_dict(self) -> dict[str, object]:
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any], attached: Any = None) -> Self:
        units = {name: tuple(Unit(**unit) for unit in data[name]) for name in ("first", "second")}
        first, second = data["text"]
        return cls(**{**data, **units, "text": (first, second), "scores": tuple(map(tuple, data["scores"]))})

    @classmethod
    def drawing(cls, parts: Sequence[Self], words: Words) -> PairMap:
        (part,) = parts
        told = (words.method, words.target, words.value, part.truncated or "", words.beside)
        return PairMap(part.first, part.second, part.scores, *told)
