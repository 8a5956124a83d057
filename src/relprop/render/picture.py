"""Heat maps as a figure of matplotlib, for papers: tokens in coloured boxes, saved as PNG, SVG or PDF."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path

from matplotlib import get_data_path
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ft2font import FT2Font, LoadFlags
from matplotlib.patches import FancyBboxPatch

from relprop.render import palette, saving
from relprop.render.layout import ANSWER_NOTE, SCALE_NOTE, Cell, Row, stacked
from relprop.render.saving import DPI
from relprop.types import Heatmap

FOLDER = Path(get_data_path(), "fonts", "ttf")  # the fonts that come with matplotlib: the same picture everywhere
REGULAR, BOLD = FOLDER / "DejaVuSans.ttf", FOLDER / "DejaVuSans-Bold.ttf"
MISSING = "□"
INK, SOFT, RULE = "#1f2328", "#5b636d", "#dfe3e8"

# Lengths are in inches and y counts downwards, until `_figure` turns it round.
WIDTH, MARGIN = 8.0, 0.25
METHOD_MAX, GUTTER = 1.5, 0.2  # the left column, and what parts it from the tokens
LINE, DESCENT = 0.275, 0.063  # from line to line, and from a baseline to the bottom of its line
GAP = 0.13  # above and below a rule
JOINED = 0.03  # how far a joined word reaches into the padding of the one before: together they read as one word


@dataclass(frozen=True)
class Face:
    """How words are set: the font, its size in points, the space between words and the room inside a box."""

    font: Path
    size: float
    space: float
    pad: float = 0.0

    @property
    def box(self) -> float:
        return 1.47 * self.size / 72

    @property
    def below(self) -> float:
        return 0.43 * self.size / 72


TOKEN = Face(REGULAR, 10.5, space=0.05, pad=0.03)
SPECIAL = replace(TOKEN, size=8.5)
SWATCH = Face(REGULAR, 6, space=0.06, pad=0.09)
HEADING, SUBHEADING = Face(BOLD, 10.5, space=0.045), Face(REGULAR, 10.5, space=0.045)
METHOD = Face(BOLD, 9, space=0.04)
SMALL = Face(REGULAR, 8.5, space=0.038)


@dataclass(frozen=True)
class Word:
    """A run of text that is set as a whole; joined to the last one unless a space comes before it."""

    text: str
    face: Face
    space_before: bool
    colour: str
    background: str | None = None
    answer: bool = False

    @property
    def width(self) -> float:
        return sum(_advance(char, self.face.font) for char in self.text) * self.face.size / 72 + 2 * self.face.pad


@dataclass(frozen=True)
class Placed:
    """A word with the start of its baseline, and whether it touches the one before."""

    word: Word
    x: float
    y: float
    joined: bool


@dataclass(frozen=True)
class Rule:
    y: float


@dataclass(frozen=True)
class Frame:
    """Around words of one line, from the first's left edge to the last's right."""

    first: Placed
    last: Placed

    @property
    def y(self) -> float:
        return self.first.y


Mark = Placed | Rule | Frame


def save(heatmaps: Sequence[Heatmap], path: str | os.PathLike[str]) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(heatmaps), path)


def draw(heatmaps: Sequence[Heatmap]) -> Figure:
    """The figure: methods about the same target in one stack, their names in the left column, the legend below."""
    groups = stacked(heatmaps)
    names = [_prose(row.caption.method, METHOD) for _, members in groups for row in members]
    left = MARGIN + min(METHOD_MAX, max(_length(name) for name in names)) + GUTTER
    marks: list[Mark] = []
    y = MARGIN / 2
    for subject, members in groups:
        marks += _place(_subject(subject), MARGIN, WIDTH - MARGIN, y)
        for row in members:
            y = _bottom(marks) + GAP
            marks += [Rule(y), *_row(row, left, y + GAP / 2)]
        y = _bottom(marks) + 2 * GAP
    y = _bottom(marks) + GAP
    legend = _legend(any(row.answers for _, members in groups for row in members))
    marks += [Rule(y), *_framed(_place(legend, MARGIN, WIDTH - MARGIN, y + GAP / 2))]
    return _figure(marks, _bottom(marks) + MARGIN / 2)


def _row(row: Row, left: float, y: float) -> list[Mark]:
    """The method's name, the tokens to the right of it, and under them what their scores account for."""
    name = _place(_prose(row.caption.method, METHOD), MARGIN, left - GUTTER, y)
    tokens = _place([_token(cell) for cell in row.cells], left, WIDTH - MARGIN, y)
    account = _prose(" · ".join(row.caption.account), SMALL, SOFT)
    return [*name, *_framed(tokens), *_place(account, left, WIDTH - MARGIN, _bottom(tokens, y) - 0.03)]


def _subject(parts: Sequence[str]) -> list[Word]:
    return [*_prose(parts[0], HEADING), *(word for part in parts[1:] for word in _prose(f"  {part}", SUBHEADING, SOFT))]


def _legend(answers: bool) -> list[Word]:
    swatches = [Word("", SWATCH, not i, INK, _background(shade)) for i, shade in enumerate(palette.legend())]
    answer = [Word("", SMALL, True, SOFT), Word(ANSWER_NOTE, replace(SMALL, pad=0.05), True, SOFT, answer=True)]
    scale = [*_prose("opposes", SMALL, SOFT), *swatches, *_prose(f"supports   {SCALE_NOTE}", SMALL, SOFT)]
    return [*scale, *answer] if answers else scale


def _token(cell: Cell) -> Word:
    ink = palette.as_hex(palette.ink(palette.colour(cell.shade))) if cell.shade else INK
    face = SPECIAL if cell.special else TOKEN
    return Word(_drawable(cell.text, face.font), face, cell.space_before, ink, _background(cell.shade), cell.answer)


def _background(shade: float) -> str:
    return palette.as_hex(palette.colour(shade))


def _prose(text: str, face: Face, colour: str = INK) -> list[Word]:
    return [Word(_drawable(part, face.font), face, True, colour) for part in text.split(" ")]


def _length(words: Iterable[Word]) -> float:
    return sum(word.width + word.face.space for word in words)


def _place(words: Iterable[Word], left: float, right: float, top: float) -> list[Placed]:
    """Words on lines between two edges: joined ones stay together where a line can hold them."""
    placed: list[Placed] = []
    x, y = left, top + LINE - DESCENT
    for chain in _chains(words, right - left):
        whole = sum(word.width for word in chain)
        for word in chain:
            needed = whole if word is chain[0] and whole <= right - left else word.width
            space = word.face.space if word.space_before else -min(JOINED, word.face.pad)
            if x == left or x + space + needed > right:
                x, y, space = left, y if x == left else y + LINE, 0.0
            placed.append(Placed(word, x + space, y, joined=space < 0))
            x += space + word.width
    return placed


def _framed(placed: Sequence[Placed]) -> list[Mark]:
    """The words, and a frame around those of the answer, line by line."""
    runs = groupby(placed, key=lambda one: (one.word.answer, one.y))
    answers = [list(run) for (answer, _), run in runs if answer]
    return [*placed, *(Frame(run[0], run[-1]) for run in answers)]


def _chains(words: Iterable[Word], widest: float) -> Iterator[list[Word]]:
    """Words grouped with those joined to them; one too wide for any line is cut in pieces."""
    chain: list[Word] = []
    for word in words:
        for piece in _cut(word, widest):
            if chain and piece.space_before:
                yield chain
                chain = []
            chain.append(piece)
    if chain:
        yield chain


def _cut(word: Word, widest: float) -> Iterator[Word]:
    room, width, start = (widest - 2 * word.face.pad) * 72 / word.face.size, 0.0, 0
    for end, char in enumerate(word.text):
        width += _advance(char, word.face.font)
        if width > room and end > start:
            yield replace(word, text=word.text[start:end], space_before=word.space_before and not start)
            width, start = _advance(char, word.face.font), end
    yield replace(word, text=word.text[start:], space_before=word.space_before and not start)


def _bottom(marks: Sequence[Mark], otherwise: float = 0.0) -> float:
    return max((mark.y + (DESCENT if isinstance(mark, Placed) else 0) for mark in marks), default=otherwise)


def _figure(marks: Iterable[Mark], height: float) -> Figure:
    """The marks in ink. Figures are made without pyplot, so no global state is touched."""
    figure = Figure(figsize=(WIDTH, height), dpi=DPI / 2, facecolor="white")
    figure.set_layout_engine("none")
    for mark in marks:
        if isinstance(mark, Rule):
            _box(figure, MARGIN, height - mark.y, WIDTH - 2 * MARGIN, 0.008, RULE)
        elif isinstance(mark, Frame):
            _frame(figure, mark, height - mark.y)
        else:
            _ink(figure, mark, height - mark.y)
    return figure


def _ink(figure: Figure, placed: Placed, baseline: float) -> None:
    word = placed.word
    if word.background:
        corner = 0.0 if placed.joined else word.face.box / 7
        _box(figure, placed.x, baseline - word.face.below, word.width, word.face.box, word.background, corner)
    font = FontProperties(fname=str(word.face.font), size=word.face.size)
    text = figure.text(
        placed.x + word.face.pad,
        baseline,
        word.text,
        color=word.colour,
        fontproperties=font,
        transform=figure.dpi_scale_trans,
        parse_math=False,  # a token may well be "$x$"
    )
    text.set_usetex(False)


def _frame(figure: Figure, frame: Frame, baseline: float) -> None:
    face, around = frame.first.word.face, 0.012
    x, y = frame.first.x - around, baseline - face.below - around
    width = frame.last.x + frame.last.word.width - frame.first.x + 2 * around
    style = f"round,pad=0,rounding_size={face.box / 6}"
    figure.add_artist(
        FancyBboxPatch(
            (x, y), width, face.box + 2 * around, boxstyle=style, fill=False, edgecolor=INK, linewidth=0.7,
            transform=figure.dpi_scale_trans,
        )
    )  # fmt: skip


def _box(figure: Figure, x: float, y: float, width: float, height: float, colour: str, corner: float = 0.0) -> None:
    style = f"round,pad=0,rounding_size={corner}"
    inches = figure.dpi_scale_trans
    figure.add_artist(
        FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=colour, linewidth=0, transform=inches)
    )


@cache
def _font(path: Path) -> FT2Font:
    font = FT2Font(str(path))
    font.set_size(100, 72)
    return font


@cache
def _advance(char: str, path: Path) -> float:
    """How far a character moves the pen, in units of the font size."""
    return _font(path).load_char(ord(char), LoadFlags.NO_HINTING).linearHoriAdvance / 65536 / 100


@cache
def _known(path: Path) -> frozenset[int]:
    return frozenset(_font(path).get_charmap())


def _drawable(text: str, path: Path) -> str:
    """The text with a box for every character the font lacks: matplotlib would warn of each."""
    return "".join(char if ord(char) in _known(path) else MISSING for char in text)
