"""`Explanation`: what a user gets back. Numbers, lists and pictures of them; saved as JSON that loads back equal."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from relprop.errors import InputError
from relprop.types import Entry, Heatmap, Ledger, Unit

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
    prediction: str = ""  # the likeliest class
    probability: float | None = None  # and its probability
    ledger: Ledger | None = None
    baseline: float | None = None  # the value at the baseline, for methods that have one
    truncated: str | None = None  # what was cut off
    merged: bool = False  # True for words made of sub-words

    @property
    def accounted(self) -> float:
        """The sum of the scores: how much of the value they account for."""
        return sum(self.scores)

    def words(self) -> Explanation:
        """The same explanation with sub-words merged: a word's score is the sum of its pieces'."""
        if any(unit.word is None and not unit.special for unit in self.units):
            raise InputError("words cannot be made: the tokenizer gives no places in the text (use a fast tokenizer)")
        merged: list[tuple[Unit, float]] = []
        for unit, score in zip(self.units, self.scores, strict=True):
            last = merged[-1][0] if merged else None
            if (
                last
                and not unit.special
                and (last.word, last.segment, last.special) == (unit.word, unit.segment, False)
            ):
                start, end = last.start, max(last.end or 0, unit.end or 0)
                whole = self.text[unit.segment][start:end]
                merged[-1] = (replace(last, text=whole, end=end), merged[-1][1] + score)
            else:
                merged.append((unit, score))
        units, scores = zip(*merged, strict=True)
        return replace(self, units=units, scores=scores, merged=True)

    def without_special(self) -> Explanation:
        """The same explanation without the scores of special tokens."""
        kept = [pair for pair in zip(self.units, self.scores, strict=True) if not pair[0].special]
        units, scores = zip(*kept, strict=True)
        return replace(self, units=units, scores=scores)

    def top(self, count: int = 5) -> list[tuple[Unit, float]]:
        """The units that weigh most, either way."""
        return sorted(zip(self.units, self.scores, strict=True), key=lambda pair: -abs(pair[1]))[:count]

    def heatmap(self) -> Heatmap:
        """What the renderers draw."""
        sure = f" ({self.probability:.2f})" if self.probability is not None else ""
        prediction = f"{self.prediction}{sure}" if self.prediction else ""
        return Heatmap(self.units, self.scores, self.method, self.target, self.value, prediction, self.truncated or "")

    def show(self) -> None:
        """Print the coloured text to the terminal."""
        show([self])

    def to_html(self) -> str:
        """A self-contained page."""
        return to_html([self])

    def _repr_html_(self) -> str:
        from relprop.render.html import html

        return html([self.heatmap()], full_page=False)

    def save(explanations: Sequence[Explanation], path: str | os.PathLike[str]) -> None:
    """Write explanations to one file, by the ending of its name. A file is replaced whole or not at all."""
    target = Path(path)
    check_path(target)
    try:
        _write(explanations, target)
    except OSError as error:
        raise _unwritable(target, error) from error


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
        raise _unwritable(path, error) from error


def _either(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f'cannot write "{path}": {error.strerror or error}')


def _write(explanations: Sequence[Explanation], path: Path) -> None:
    kind = path.suffix.lower()
    if kind in PICTURES:
        from relprop.render import picture

        picture.save([one.heatmap() for one in explanations], path)
    elif kind == ".html":
        _write_text(path, to_html(explanations))
    else:
        lines = [one.to_json() for one in explanations]
        _write_text(path, lines[0] if len(lines) == 1 else "[" + ",\n".join(lines) + "]")


def _write_text(path: Path, text: str) -> None:
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
