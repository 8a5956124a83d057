"""`Continuation`: what each token of a generated text is made of. Numbers, pictures, and JSON that loads back equal."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relprop.errors import InputError
from relprop.explanation import PICTURES, Explanation, check_path, unwritable, write_text
from relprop.render.generation.layout import Step, Weave
from relprop.types import Ledger, Unit

SCHEMA_VERSION = 1
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Generated:
    """One token of the continuation: what was explained of it, and how sure the model was."""

    tokens: tuple[int, ...]  # its id; several for a word made of sub-words
    name: str  # the token in quotes
    target: str  # what was explained: the token, or its difference from another
    value: float  # the explained number: a logit, a difference of logits; summed for a word
    probability: float  # of the token, given all before it; of a word, that of all its pieces
    runner_up: str = ""  # the likeliest other token; none for a word of several
    runner_up_probability: float | None = None
    ledger: Ledger | None = None
    baseline: float | None = None  # the value at the baseline, for methods that have one


@dataclass(frozen=True)
class Continuation:
    """A matrix of scores: each generated token by each token before it."""

    prompt: str
    continuation: str
    units: tuple[Unit, ...]  # the prompt's, an encoder-decoder's start token, and the generated ones
    given: int  # how many of them were there before anything was generated
    generated: tuple[Generated, ...]  # one for each of the other units
    scores: tuple[tuple[float, ...], ...]  # [generated][units]; 0 for the token itself and all that come later
    method: str
    passes: str  # "shared": all tokens from one forward pass; "single": a pass for each
    two_sided: bool = False  # an encoder-decoder: the continuation is a text of its own
    merged: bool = False  # True for words made of sub-words

    @property
    def tokens(self) -> tuple[Unit, ...]:
        """The generated units: the rows of the matrix."""
        return self.units[self.given :]

    @property
    def matrix(self) -> Numbers:
        """The scores as an array [generated, units]."""
        return np.array(self.scores, dtype=np.float64)

    @property
    def text(self) -> tuple[str, ...]:
        """What was read and written: one text, or source and target."""
        return (self.prompt, self.continuation) if self.two_sided else (self.prompt + self.continuation,)

    def token(self, index: int) -> Explanation:
        """The explanation of one generated token, with all that came before it."""
        if not -len(self.generated) <= index < len(self.generated):
            raise InputError(f"token {index} is out of range: {len(self.generated)} were generated")
        index %= len(self.generated)
        one, seen = self.generated[index], self.given + index
        likeliest = one.runner_up_probability is None or one.probability >= one.runner_up_probability
        return Explanation(
            text=self._read(seen),
            units=self.units[:seen],
            scores=self.scores[index][:seen],
            method=self.method,
            target=one.target,
            value=one.value,
            prediction=one.name if likeliest else one.runner_up,
            probability=one.probability if likeliest else one.runner_up_probability,
            ledger=one.ledger,
            baseline=one.baseline,
            merged=self.merged,
        )

    def _read(self, seen: int) -> tuple[str, ...]:
        """The text as far as the model had read it."""
        last = len(self.text) - 1
        written = [unit.end for unit in self.units[self.given : seen] if unit.end is not None]
        stop = max(written, default=0 if self.two_sided else len(self.prompt))
        return (*self.text[:last], self.text[last][:stop])

    def words(self) -> Continuation:
        """The same with sub-words merged on both sides: scores and values are summed, probabilities multiplied.

        What a word's later pieces owe to its earlier ones stands at the word itself.
        """
        if any(unit.word is None and not unit.special for unit in self.units):
            raise InputError("words cannot be made: the tokenizer gives no places in the text (use a fast tokenizer)")
        groups = groupby(range(len(self.units)), key=self._word)
        return replace(self._grouped([list(group) for _, group in groups]), merged=True)

    def _word(self, i: int) -> Any:
        unit = self.units[i]  # what was generated never joins a word that was given
        return i if unit.special else (unit.segment, unit.word, i < self.given)

    def without_special(self) -> Continuation:
        """The same without special tokens, on both sides."""
        return self._grouped([[i] for i, unit in enumerate(self.units) if not unit.special])

    def _grouped(self, groups: Sequence[Sequence[int]]) -> Continuation:
        """Units added together, on both sides; those in no group are left out."""
        rows = [[i - self.given for i in group] for group in groups if group[0] >= self.given]
        matrix = self.matrix
        scores = [[float(matrix[np.ix_(row, group)].sum()) for group in groups] for row in rows]
        return replace(
            self,
            units=tuple(self._whole([self.units[i] for i in group]) for group in groups),
            given=len(groups) - len(rows),
            generated=tuple(_joined([self.generated[i] for i in row]) for row in rows),
            scores=tuple(map(tuple, scores)),
        )

    def _whole(self, pieces: Sequence[Unit]) -> Unit:
        """The word that pieces make, without a blank that only leads it."""
        seen = [piece for piece in pieces if piece.text != " "] or pieces
        first, last = seen[0], seen[-1]
        if first.special or first is last:
            return first
        return replace(first, text=self.text[first.segment][first.start : last.end], end=last.end)

    def weave(self) -> Weave:
        """What the renderers draw."""
        steps = tuple(
            Step(one.target, one.value, one.probability, one.runner_up, one.runner_up_probability)
            for one in self.generated
        )
        shares = any(one.ledger is not None for one in self.generated)
        return Weave(self.units, self.given, steps, self.scores, self.method, shares)

    def show(self) -> None:
        """Print the text with what the continuation owes to each token, and each generated token's strongest causes."""
        from rich.console import Console

        from relprop.render.generation.layout import terminal

        Console().print(terminal(self.weave()))

    def to_html(self) -> str:
        """A self-contained page: pointing at a generated token colours its causes."""
        from relprop.render.generation.html import html

        return html(self.weave())

    def _repr_html_(self) -> str:
        from relprop.render.generation.html import html

        return html(self.weave(), full_page=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write .html, .json, .png, .svg or .pdf, by the ending of the name; a file is replaced whole or not at all."""
        target = Path(path)
        check_path(target)
        kind = target.suffix.lower()
        try:
            if kind in PICTURES:
                from relprop.render.generation import figure

                figure.save(self.weave(), target)
            else:
                write_text(target, self.to_html() if kind == ".html" else self.to_json())
        except OSError as error:
            raise unwritable(target, error) from error

    def to_json(self) -> str:
        """One line of JSON, with its schema version; `from_json` loads it back."""
        data = {"schema_version": SCHEMA_VERSION, "kind": "continuation", **asdict(self)}
        try:
            return json.dumps(data, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise InputError("the explanation holds a number that is not finite, which JSON cannot tell") from None

    @classmethod
    def from_json(cls, text: str) -> Continuation:
        """Load what `to_json` wrote; the result equals the original."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise InputError(f"this is no continuation saved by relprop: it is not JSON ({error})") from None
        if not isinstance(data, dict) or data.pop("kind", None) != "continuation":
            raise InputError("this is no continuation saved by relprop")
        version = data.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise InputError(f"the continuation has schema version {version}; this relprop reads {SCHEMA_VERSION}")
        try:
            return cls(**_revived(data))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the saved continuation is damaged ({type(error).__name__}: {error})") from None


def _joined(pieces: Sequence[Generated]) -> Generated:
    """A word's numbers from its pieces'."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    books = [one.ledger for one in pieces if one.ledger is not None]
    baselines = [one.baseline for one in pieces if one.baseline is not None]
    return Generated(
        tokens=tuple(token for one in pieces for token in one.tokens),
        name=" + ".join(one.name for one in pieces),
        target=" + ".join(one.target for one in pieces),
        value=sum(one.value for one in pieces),
        probability=prod(one.probability for one in pieces),
        ledger=_summed(books) if len(books) == len(pieces) else None,
        baseline=sum(baselines) if len(baselines) == len(pieces) else None,
    )


def _summed(books: Sequence[Ledger]) -> Ledger:
    entries = tuple(entry for one in books for entry in one.entries)
    return Ledger(sum(one.value for one in books), entries, itemised=all(one.itemised for one in books))


def _revived(data: dict[str, Any]) -> dict[str, Any]:
    units = tuple(Unit(**unit) for unit in data["units"])
    generated = tuple(_revived_token(one) for one in data["generated"])
    scores = tuple(map(tuple, data["scores"]))
    if data["given"] + len(generated) != len(units) or [len(row) for row in scores] != [len(units)] * len(generated):
        raise ValueError(f"{len(units)} units, {data['given']} given, {len(generated)} generated, {len(scores)} rows")
    return {**data, "units": units, "generated": generated, "scores": scores}


def _revived_token(data: dict[str, Any]) -> Generated:
    return Generated(**{**data, "tokens": tuple(data["tokens"]), "ledger": Ledger.revived(data["ledger"])})
