"""The words of a page with their boxes, as a text recogniser or a PDF gives them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from relprop.errors import InputError
from relprop.readers.series import table_rows
from relprop.readers.words import WordList

PAGE = 1000  # boxes are thousandths of the page's width and height, as models of documents read them
ThousandthsBox = tuple[int, int, int, int]
_FORM = "[left, top, right, bottom]"
_COLUMNS = ("word", "left", "top", "right", "bottom")  # of a table


@dataclass(frozen=True, eq=False)
class Document:
    """One page: `Document(["Total", "12.50"], [[100, 40, 180, 60], [700, 40, 790, 60]], image="page.png")`.

    `boxes`: [left, top, right, bottom] per word, whole numbers from 0 to 1000, as processors of transformers take them;
    with `size` (width, height of the page) in the units of that, for instance pixels. `image`: the page's picture, for
    models that read it, and to draw on: a path, a Pillow image or an array.
    """

    words: tuple[str, ...]
    boxes: tuple[ThousandthsBox, ...]
    image: Any = None
    size: tuple[float, float] | None = None

    def __init__(
        self,
        words: Iterable[str],
        boxes: Iterable[Sequence[float]],
        image: Any = None,
        size: Sequence[float] | None = None,
    ) -> None:
        every = WordList(words).words
        known = list(boxes) if isinstance(boxes, Iterable) and not isinstance(boxes, str | Mapping) else None
        if known is None or len(known) != len(every):
            got = type(boxes).__name__ if known is None else f"{len(known)}"
            raise InputError(f"a document has one box {_FORM} per word: {len(every)} words, and {got} boxes")
        page = None if size is None else _checked_size(size)
        own = tuple(_thousandths(i, word, box, page) for i, (word, box) in enumerate(zip(every, known, strict=True)))
        for name, value in (("words", every), ("boxes", own), ("image", image), ("size", page)):
            object.__setattr__(self, name, value)

    @property
    def word_list(self) -> WordList:
        return WordList(self.words)


def document_of(record: Mapping[str, Any], image: Any = None) -> Document:
    """From {"words": [...], "boxes": [[...], ...]}, with "size" where boxes are in its units."""
    known = {"words", "boxes", "size"}
    if not isinstance(record, Mapping) or not {"words", "boxes"} <= set(record) <= known:
        got = ", ".join(map(str, record)) if isinstance(record, Mapping) else type(record).__name__
        raise InputError(
            f'a document is {{"words": [...], "boxes": [{_FORM}, ...]}}, with "size" or without; got {got}'
        )
    return Document(record["words"], record["boxes"], image, record.get("size"))


def document_of_table(table: Path | StringIO, image: Any = None, size: Sequence[float] | None = None) -> Document:
    """From a .csv file, or its text, with the columns word, left, top, right and bottom."""
    names, rows = table_rows(table)
    if not set(_COLUMNS) <= set(names):
        raise InputError(f"the table of a document has the columns {', '.join(_COLUMNS)}; got {', '.join(names):.120}")
    word, *edges = (names.index(name) for name in _COLUMNS)
    boxes = []
    for number, row in enumerate(rows):
        try:
            boxes.append([float(row[k]) for k in edges])
        except ValueError:
            raise InputError(f"line {number + 2} of the table holds a box that is not four numbers") from None
    return Document([row[word] for row in rows], boxes, image, size)


def _checked_size(size: Sequence[float]) -> tuple[float, float]:
    numbers = _numbers(size, 2)
    if numbers is None or min(numbers) <= 0:
        raise InputError(f"the size of a page is its (width, height), two numbers above 0; got {size!r:.80}")
    return numbers[0], numbers[1]


def _thousandths(number: int, word: str, box: Any, size: tuple[float, float] | None) -> ThousandthsBox:
    """A box in thousandths of the page, rounded down, as is usual for these models."""
    which = f"box {number}, of the word {word!r:.40},"
    edges = _numbers(box, 4)
    if edges is None:
        raise InputError(f"{which} should be four numbers {_FORM}, got {box!r:.80}")
    width, height = size or (PAGE, PAGE)
    left, top, right, bottom = edges
    if left < 0 or top < 0 or right > width or bottom > height:
        hint = "" if size else "; for boxes in pixels or points say size=(width, height) of the page"
        raise InputError(
            f"{which} lies outside of the page: {_told(edges)}, and the page is {width:g} x {height:g}{hint}"
        )
    if left > right or top > bottom:
        raise InputError(f"{which} ends before it begins: {_told(edges)} should be {_FORM}")
    if size is None and any(edge != int(edge) for edge in edges):
        raise InputError(
            f"{which} is {_told(edges)}: without the page's size boxes are whole numbers from 0 to {PAGE}; for shares "
            "of the page say size=(1, 1)"
        )
    across, down = PAGE / width, PAGE / height
    return int(left * across), int(top * down), int(right * across), int(bottom * down)


def _numbers(given: Any, count: int) -> list[float] | None:
    """So many finite numbers; None where it is something else."""
    given = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(given, list | tuple) or len(given) != count:
        return None
    fits = all(isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) for one in given)
    return list(given) if fits else None


def _told(edges: Sequence[float]) -> str:
    return f"[{', '.join(f'{edge:g}' for edge in edges)}]"
