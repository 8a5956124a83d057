"""`Explanation`: what a user gets back. Numbers, lists and pictures of them; saved as JSON that loads back equal."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from relprop.errors import InputError, RelpropError
from relprop.types import Heatmap, Ledger, Unit

SCHEMA_VERSION = 1
PICTURES = (".png", ".svg", ".pdf")
ENDINGS = (".html", ".json", *PICTURES)


@dataclass(frozen=True)
class Explanation:
    """The scores of one text's units for one target."""

    text: tuple[str, ...]  # one text, or the two of a pair
    units: tuple[Unit, ...]
    scores: tuple[float, ...]
    method: str
    target: str
    value: float  # the explained number: the target's logit, or a difference of logits
    prediction: str = ""  # the likeliest class, or the answer
    probability: float | None = None  # and its probability
    ledger: Ledger | None = None
    baseline: float | None = None  # the value at the baseline, for methods that have one
    truncated: str | None = None  # what was cut off
    merged: bool = False  # True for words made of sub-words
    answer: tuple[int, int] | None = None  # of a question: the explained answer's characters in the context

    @property
    def accounted(self) -> float:
        """The sum of the scores: how much of the value they account for."""
        return sum(self.scores)

    def words(self) -> Explanation:
        """The same explanation with sub-words merged: a word's score is the sum of its pieces'."""
        if any(unit.word is None and not unit.special for unit in self.units):
            raise InputError("words cannot be made: the tokenizer gives no places in the text (use a fast tokenizer)")
        groups = groupby(
            range(len(self.units)),
            key=lambda i: i if self.units[i].special else (self.units[i].segment, self.units[i].word),
        )
        places = [list(group) for _, group in groups]
        return replace(
            self,
            units=tuple(self._whole([self.units[i] for i in group]) for group in places),
            scores=tuple(sum(self.scores[i] for i in group) for group in places),
            merged=True,
        )

    def _whole(self, pieces: list[Unit]) -> Unit:
        """The word that pieces make, without a blank that only leads it."""
        seen = [piece for piece in pieces if piece.text != " "] or pieces
        first, last = seen[0], seen[-1]
        if first.special:
            return first
        return replace(first, text=self.text[first.segment][first.start : last.end], end=last.end)

    def without_special(self) -> Explanation:
        """The same explanation without the scores of special tokens."""
        kept = [pair for pair in zip(self.units, self.scores, strict=True) if not pair[0].special]
        units, scores = zip(*kept, strict=True)
        return replace(self, units=units, scores=scores)

    def top(self, count: int = 5) -> list[tuple[Unit, float]]:
        """The units that weigh most, either way."""
        return sorted(zip(self.units, self.scores, strict=True), key=lambda pair: -abs(pair[1]))[:count]

    def to_frame(self) -> Any:
        """A pandas frame: a row a unit, with its place and score; method, target and value in every row."""
        columns = {field.name: [getattr(unit, field.name) for unit in self.units] for field in fields(Unit)}
        return pandas_frame(
            {**columns, "score": self.scores},
            ("start", "end", "word"),
            method=self.method,
            target=self.target,
            value=self.value,
        )

    def heatmap(self) -> Heatmap:
        """What the renderers draw."""
        sure = f" ({self.probability:.2f})" if self.probability is not None else ""
        prediction = f"{self.prediction}{sure}" if self.prediction else ""
        note, shares = self.truncated or "", self.ledger is not None
        words = (self.method, self.target, self.value, prediction, note)
        return Heatmap(self.units, self.scores, *words, shares, self.answer)

    def show(self) -> None:
        """Print the coloured text to the terminal."""
        show([self])

    def to_html(self) -> str:
        """A self-contained page."""
        return to_html([self])

    def _repr_html_(self) -> str:
        from relprop.render.text.html import html

        return html([self.heatmap()], full_page=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write .html, .json, .png, .svg or .pdf, by the ending of the name."""
        save([self], path)

    def to_json(self) -> str:
        """One line of JSON, with its schema version; `from_json` loads it back."""
        try:
            return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise InputError("the explanation holds a number that is not finite, which JSON cannot tell") from None

    @classmethod
    def from_json(cls, text: str) -> Explanation:
        """Load what `to_json` wrote; the result equals the original."""
        try:
            data = json.loads(text, parse_constant=_not_finite)
        except ValueError as error:
            raise InputError(f"this is no explanation saved by relprop: it is not JSON ({error})") from None
        if not isinstance(data, dict) or "schema_version" not in data:
            raise InputError("this is no explanation saved by relprop: it has no schema_version")
        version = data.pop("schema_version")
        if version != SCHEMA_VERSION:
            raise InputError(f"the explanation has schema version {version}; this relprop reads {SCHEMA_VERSION}")
        try:
            return cls(**_revive(data))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the saved explanation is damaged ({type(error).__name__}: {error})") from None


def _not_finite(name: str) -> float:
    raise ValueError(f"{name} is not a finite number")


def _revive(data: dict[str, Any]) -> dict[str, Any]:
    ledger = Ledger.revived(data.get("ledger"))
    units, scores = tuple(Unit(**unit) for unit in data["units"]), tuple(data["scores"])
    if len(units) != len(scores):
        raise ValueError(f"{len(units)} units, {len(scores)} scores")
    answer = None if data.get("answer") is None else tuple(data["answer"])
    return {**data, "text": tuple(data["text"]), "units": units, "scores": scores, "ledger": ledger, "answer": answer}


def pandas_frame(columns: Mapping[str, Sequence[Any]], whole: Sequence[str], **same: Any) -> Any:
    """Columns, and values that are the same in every row. `whole` numbers stay whole where some are missing."""
    try:
        import pandas
    except ImportError:
        raise RelpropError('to_frame needs the pandas package: pip install "relprop[pandas]"') from None
    return pandas.DataFrame({**columns, **same}).astype(dict.fromkeys(whole, "Int64"))


def show(explanations: Sequence[Explanation]) -> None:
    """Print explanations to the terminal, stacked for comparison."""
    from rich.console import Console

    from relprop.render.text.terminal import terminal

    Console().print(terminal([one.heatmap() for one in explanations]))


def to_html(explanations: Sequence[Explanation]) -> str:
    """One self-contained page for several explanations, stacked for comparison."""
    from relprop.render.text.html import html

    return html([one.heatmap() for one in explanations])


def save(explanations: Sequence[Explanation], path: str | os.PathLike[str]) -> None:
    """Write explanations to one file, by the ending of its name. A file is replaced whole or not at all."""
    target = Path(path)
    check_path(target)
    try:
        _write(explanations, target)
    except OSError as error:
        raise unwritable(target, error) from error


def check_path(path: Path, endings: Sequence[str] = ENDINGS) -> None:
    """Can a result be written here? Asked before any work."""
    if path.suffix.lower() not in endings:
        raise InputError(f'cannot write "{path}": the name must end in {_either(endings)}')
    if not path.parent.is_dir():
        raise InputError(f'cannot write "{path}": there is no folder "{path.parent}"')
    if path.is_dir():
        raise InputError(f'cannot write "{path}": it is a folder')
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise unwritable(path, error) from error


def _either(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f'cannot write "{path}": {error.strerror or error}')


def _write(explanations: Sequence[Explanation], path: Path) -> None:
    kind = path.suffix.lower()
    if kind in PICTURES:
        from relprop.render.text import figure

        figure.save([one.heatmap() for one in explanations], path)
    elif kind == ".html":
        write_text(path, to_html(explanations))
    else:
        lines = [one.to_json() for one in explanations]
        write_text(path, lines[0] if len(lines) == 1 else "[" + ",\n".join(lines) + "]")


def write_text(path: Path, text: str) -> None:
    """Write to a neighbour first, then take its place."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
