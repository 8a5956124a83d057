"""Words set on lines with matplotlib, in inches: fonts, line breaks and boxes that the figures of every kind share.

Lengths are in inches and y counts downwards, until a figure turns it round. Figures are made without pyplot, so no
global state is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any
from unicodedata import bidirectional

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from matplotlib.transforms import Affine2D, Transform

from relprop.render import fonts
from relprop.render.fonts import BOLD as BOLD
from relprop.render.fonts import REGULAR as REGULAR
from relprop.render.fonts import drawable as drawable  # also known here
from relprop.render.saving import DPI

INK, SOFT, RULE = "#1f2328", "#5b636d", "#dfe3e8"
LINE, DESCENT = 0.275, 0.063  # from line to line, and from a baseline to the bottom of its line
PITCH = 0.17  # from line to line of prose, closer than tokens, which lie in boxes
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


METHOD = Face(BOLD, 9, space=0.04)
SMALL = Face(REGULAR, 8.5, space=0.038)


@dataclass(frozen=True)
class TextRun:
    """A run of text that is set as a whole; joined to the last one unless a space comes before it."""

    text: str
    face: Face
    space_before: bool
    colour: str
    background: str | None = None
    answer: bool = False
    line_before: bool = False
    apart: bool = False  # no word of the text: it goes with the line, whatever its own script

    @property
    def width(self) -> float:
        return fonts.width(self.text, self.face.font) * self.face.size / 72 + 2 * self.face.pad


@dataclass(frozen=True)
class PlacedRun:
    """A word with the start of its baseline, and whether it touches the one before."""

    word: TextRun
    x: float
    y: float
    joined: bool


def prose(text: str, face: Face, colour: str = INK) -> list[TextRun]:
    return [text_run(part, face, True, colour) for part in text.split(" ")]


def text_run(text: str, face: Face, space_before: bool, colour: str, **more: Any) -> TextRun:
    """A run in a font that has its characters."""
    shown, font = fonts.fitted(text, face.font)
    return TextRun(shown, replace(face, font=font), space_before, colour, **more)


def length(words: Iterable[TextRun]) -> float:
    return sum(word.width + word.face.space for word in words)


def place(
    words: Iterable[TextRun], left: float, right: float, top: float, right_to_left: bool = False
) -> list[PlacedRun]:
    """Words on lines between two edges: joined ones stay together where a line can hold them.

    Words of scripts from right to left stand in that order; with `right_to_left` so do the lines.
    """
    placed: list[PlacedRun] = []
    x, y = left, top + LINE - DESCENT
    for chain in _chains(words, right - left):
        whole = sum(word.width for word in chain)
        for word in chain:
            needed = whole if word is chain[0] and whole <= right - left else word.width
            space = word.face.space if word.space_before else -min(JOINED, word.face.pad)
            if x == left or x + space + needed > right or word.line_before:
                x, y, space = left, y if x == left else y + LINE, 0.0
            placed.append(PlacedRun(word, x + space, y, joined=space < 0))
            x += space + word.width
    rows = [list(line) for _, line in groupby(placed, key=lambda run: run.y)]
    return [run for line in rows for run in _ordered(line, left, right, right_to_left)]


def _ordered(line: list[PlacedRun], left: float, right: float, base: bool) -> list[PlacedRun]:
    """A line in the order in which it is read: words against its own direction are turned round among themselves."""
    turned = [base if run.word.apart else _direction(run.word.text) for run in line]
    if not base and True not in turned:
        return line
    if base:
        line = [_mirrored(run, left, right) for run in line]
    # A word without a direction goes with its neighbours where they agree, else with the line.
    for i, own in enumerate(turned):
        if own is None:
            before = next((one for one in turned[:i][::-1] if one is not None), base)
            behind = next((one for one in turned[i + 1 :] if one is not None), base)
            turned[i] = before if before == behind else base
    done: list[PlacedRun] = []
    for direction, pairs in groupby(zip(turned, line, strict=True), key=lambda pair: pair[0]):
        runs = [run for _, run in pairs]
        if direction != base:
            ends = min(run.x for run in runs), max(run.x + run.word.width for run in runs)
            runs = [_mirrored(run, *ends) for run in runs]
        done += runs
    return done


def _mirrored(run: PlacedRun, left: float, right: float) -> PlacedRun:
    return replace(run, x=left + right - run.x - run.word.width)


def _direction(text: str) -> bool | None:
    """True for a word from right to left, False from left to right, None for signs alone."""
    kinds = {bidirectional(char) for char in text}
    return True if kinds & set(fonts.RIGHT_TO_LEFT) else False if kinds & {"L", "EN"} else None


def _chains(words: Iterable[TextRun], widest: float) -> Iterator[list[TextRun]]:
    """Words grouped with those joined to them; one too wide for any line is cut in pieces."""
    chain: list[TextRun] = []
    for word in words:
        for piece in _cut(word, widest):
            if chain and (piece.space_before or piece.line_before):
                yield chain
                chain = []
            chain.append(piece)
    if chain:
        yield chain


def _cut(word: TextRun, widest: float) -> Iterator[TextRun]:
    room, width, start = (widest - 2 * word.face.pad) * 72 / word.face.size, 0.0, 0
    for end, char in enumerate(word.text):
        width += fonts.width(char, word.face.font)
        if width > room and end > start:
            yield _piece(word, start, end)
            width, start = fonts.width(char, word.face.font), end
    yield _piece(word, start, len(word.text))


def _piece(word: TextRun, start: int, end: int) -> TextRun:
    """A piece of a word: only the first has the word's own space or line before it."""
    first = not start
    space, line = word.space_before and first, word.line_before and first
    return replace(word, text=word.text[start:end], space_before=space, line_before=line)


def bottom(runs: Sequence[PlacedRun], otherwise: float = 0.0) -> float:
    return max((run.y + DESCENT for run in runs), default=otherwise)


def lines(words: Iterable[TextRun], left: float, right: float, top: float) -> list[PlacedRun]:
    """Prose between two edges."""
    first = LINE - DESCENT
    return [
        replace(run, y=top + PITCH - DESCENT + (run.y - first) / LINE * PITCH) for run in place(words, left, right, 0)
    ]


def blank_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=DPI / 2, facecolor="white")
    figure.set_layout_engine("none")
    return figure


def draw_run(figure: Figure, placed: PlacedRun, baseline: float) -> None:
    word = placed.word
    if word.background:
        low, corner = baseline - word.face.below, 0.0 if placed.joined else word.face.box / 7
        style = {"facecolor": word.background, "linewidth": 0}
        draw_box(figure, placed.x, low, word.width, word.face.box, corner, **style)
    font = FontProperties(fname=str(word.face.font), size=word.face.size)
    text = figure.text(
        placed.x + word.face.pad,
        baseline,
        word.text,
        color=word.colour,
        fontproperties=font,
        transform=_inches(figure),
        parse_math=False,  # a token may well be "$x$"
    )
    text.set_usetex(False)


def draw_box(
    figure: Figure, x: float, y: float, width: float, height: float, corner: float = 0.0, **style: Any
) -> None:
    shape = f"round,pad=0,rounding_size={corner}"
    figure.add_artist(FancyBboxPatch((x, y), width, height, boxstyle=shape, transform=_inches(figure), **style))


def _inches(figure: Figure) -> Transform:
    """From inches; unlike `dpi_scale_trans` it stays right where the figure is saved with more below it."""
    width, height = figure.get_size_inches()
    return Affine2D().scale(1 / width, 1 / height) + figure.transFigure
