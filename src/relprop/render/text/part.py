"""`TextPart`: tokens or words of one text or of a pair, with their scores."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby
from typing import Any, ClassVar, Self

from relprop.errors import InputError
from relprop.part import Part, Words
from relprop.types import Heatmap, Unit

Scores = tuple[float, ...]
# Up to a full stop, question or exclamation mark with the quotes that close behind it, and the blanks after that.
_SENTENCE = re.compile(r".*?(?:[.!?…]+[\"'”’)\]]*(?:\s+|$)|[。！？]+|$)", re.DOTALL)


@dataclass(frozen=True, repr=False)
class TextPart(Part):
    """The units of one text, or of the two of a pair, and one score per unit."""

    kind: ClassVar[str] = "text"
    rendering: ClassVar[str] = "relprop.render.text"
    whole_columns: ClassVar[tuple[str, ...]] = ("start", "end", "word")
    naming: ClassVar[int] = 1

    name: str
    text: tuple[str, ...]  # one text, or the two of a pair
    units: tuple[Unit, ...]
    scores: Scores
    by_step: tuple[Scores, ...] = ()  # per generated token its own scores; `scores` are their sums
    written_from: int | None = None  # the character from which on the model wrote the text itself
    merged: bool = False  # True for words made of sub-words
    truncated: str | None = None  # what was cut off
    answer: tuple[int, int] | None = None  # of a question: the explained answer's characters in the context

    def __post_init__(self) -> None:
        for scores in (self.scores, *self.by_step):
            if len(scores) != len(self.units):
                raise ValueError(f"{len(self.units)} units, {len(scores)} scores")

    def step_values(self, index: int) -> tuple[Scores]:
        return (self.by_step[index],)

    def with_steps(self, steps: Sequence[tuple[Any, ...]]) -> Self:
        """`by_step` holds the scores themselves: a text has no others."""
        rows = tuple(scores for (scores,) in steps)
        sums = tuple(map(sum, zip(*rows, strict=True))) if rows else self.scores
        return replace(self, scores=sums, by_step=rows)

    def as_read(self, index: int, given: int) -> Self:
        """The text as far as the model had read it when it wrote a token, with the token's own scores."""
        count = given + index
        ends = [unit.end for unit in self.units[given:count] if unit.end is not None]
        stop = max(ends, default=self.written_from or 0)
        text = (*self.text[:-1], self.text[-1][:stop])
        return replace(self, text=text, units=self.units[:count], scores=self.by_step[index][:count], by_step=())

    def joined_steps(self, groups: Sequence[Sequence[int]]) -> Self:
        return self.grouped([[i] for i in range(len(self.units))], groups)

    @property
    def total(self) -> float:
        return sum(self.scores)

    def top(self, count: int) -> list[tuple[Unit, float]]:
        return sorted(zip(self.units, self.scores, strict=True), key=lambda pair: -abs(pair[1]))[:count]

    def word_groups(self, given: int) -> list[list[int]]:
        """Indices of the units of each word. What was generated, from `given` on, joins no word that was given."""
        if any(unit.word is None and not unit.special for unit in self.units):
            raise InputError("words cannot be made: the tokenizer gives no places in the text (use a fast tokenizer)")

        def word(i: int) -> object:
            unit = self.units[i]
            return i if unit.special else (unit.segment, unit.word, i < given)

        return [list(group) for _, group in groupby(range(len(self.units)), key=word)]

    def sentence_groups(self, given: int) -> list[list[int]]:
        """Indices of the units of each sentence. What was generated, from `given` on, is a sentence of its own."""
        if any(unit.start is None and not unit.special for unit in self.units):
            raise InputError(
                "sentences cannot be made: the tokenizer gives no places in the text (use a fast tokenizer)"
            )
        ends = [[found.end() for found in _SENTENCE.finditer(text)] for text in self.text]

        def sentence(i: int) -> object:
            unit = self.units[i]
            return i if unit.special else (unit.segment, bisect_right(ends[unit.segment], unit.start or 0), i < given)

        return [list(group) for _, group in groupby(range(len(self.units)), key=sentence)]

    def content_groups(self) -> list[list[int]]:
        """One group per unit that is not special."""
        return [[i] for i, unit in enumerate(self.units) if not unit.special]

    def grouped(self, groups: Sequence[Sequence[int]], steps: Sequence[Sequence[int]] = ()) -> Self:
        """Units added together; those in no group are left out. `steps`: the same for the generated tokens' scores."""
        return replace(self, **self._grouped_fields(groups, steps))

    def _grouped_fields(self, groups: Sequence[Sequence[int]], steps: Sequence[Sequence[int]]) -> dict[str, Any]:
        """What there is one of per unit, for units that were added together."""
        rows = [[sum(self.by_step[i][k] for i in rows) for k in range(len(self.units))] for rows in steps]
        return {
            "units": tuple(self._whole([self.units[i] for i in group]) for group in groups),
            "scores": _added(self.scores, groups),
            "by_step": tuple(_added(row, groups) for row in rows),
        }

    def _whole(self, pieces: Sequence[Unit]) -> Unit:
        """The word that pieces make, without a blank that only leads it."""
        shown = [piece for piece in pieces if piece.text != " "] or pieces
        first, last = shown[0], shown[-1]
        if first.special or first is last:
            return first
        return replace(first, text=self.text[first.segment][first.start : last.end], end=last.end)

    def without_special(self) -> Self:
        return self.grouped(self.content_groups(), [[i] for i in range(len(self.by_step))])

    def columns(self) -> dict[str, Sequence[object]]:
        units = {field.name: [getattr(unit, field.name) for unit in self.units] for field in fields(Unit)}
        return {**units, "score": self.scores}

    def to_dict(self) -> dict[str, object]:
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any], attached: Any = None) -> Self:
        units = tuple(Unit(**unit) for unit in data["units"])
        answer = None if data.get("answer") is None else tuple(data["answer"])
        own = {"text": tuple(data["text"]), "units": units, "scores": tuple(data["scores"]), "answer": answer}
        return cls(**{**data, **own, "by_step": tuple(map(tuple, data.get("by_step", ())))})

    @classmethod
    def drawing(cls, parts: Sequence[Self], words: Words) -> Heatmap:
        """All texts of an explanation in one row, one behind the other."""
        units, scores = joined_units(parts)
        note = "; ".join(part.truncated for part in parts if part.truncated)
        answer = next((part.answer for part in parts if part.answer is not None), None)
        told = (words.method, words.target, words.value, words.prediction, note)
        own = (words.beside is not None, answer, words.signed, line_starts(parts))
        heatmap = Heatmap(units, scores, *told, *own)
        return replace(heatmap, beside=words.beside or (), quantity=words.quantity)


def joined_units(parts: Sequence[TextPart]) -> tuple[tuple[Unit, ...], Scores]:
    """The units and scores of several texts in one row: each text is a segment of its own."""
    units: list[Unit] = []
    before = 0
    for part in parts:
        units += [replace(unit, segment=unit.segment + before) if before else unit for unit in part.units]
        before += len(part.text)
    return tuple(units), tuple(score for part in parts for score in part.scores)


def line_starts(parts: Sequence[TextPart]) -> frozenset[int]:
    """Which units, counted through all texts, begin a new line of their text."""
    found, number = set(), 0
    for part in parts:
        before: Unit | None = None  # the last unit that has a place in the text
        for unit in part.units:
            if unit.start is not None:
                if before is not None and before.segment == unit.segment:
                    gap = part.text[unit.segment][len(before.text.rstrip()) + (before.start or 0) : unit.start]
                    led = unit.text[: len(unit.text) - len(unit.text.lstrip())] if unit.text.strip() else ""
                    if "\n" in gap + led:
                        found.add(number)
                before = unit
            number += 1
    return frozenset(found)


def _added(scores: Sequence[float], groups: Sequence[Sequence[int]]) -> Scores:
    return tuple(sum(scores[i] for i in group) for group in groups)
