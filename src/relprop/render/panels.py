"""Panels of a figure, for papers: subjects down, methods across. Pictures and graphs share it.

Lengths are in inches and y counts downwards, until `drawn_figure` turns it round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from relprop.render.caption import Caption
from relprop.render.saving import DPI
from relprop.render.typesetting import (
    DESCENT,
    METHOD,
    PITCH,
    RULE,
    SMALL,
    SOFT,
    PlacedRun,
    TextRun,
    blank_figure,
    bottom,
    draw_run,
    length,
    lines,
    prose,
)  # fmt: skip

MARGIN, GUTTER = 0.2, 0.08
LABEL = 1.3  # the column of the targets
ROOM = 8.0  # the width that panels share
BAR, THICK = 1.2, 0.12  # the colour bar


@dataclass(frozen=True)
class Pane:
    """NDArray[np.uint8] and the rectangle they fill."""

    pixels: NDArray[np.uint8]
    x: float
    y: float
    width: float
    height: float


Mark = PlacedRun | Pane


def titles(names: Sequence[str], lefts: Sequence[float], width: float) -> list[PlacedRun]:
    """The names over their columns, their last lines level."""
    names_set = [lines(_broken_name(name), x, x + width, 0) for name, x in zip(names, lefts, strict=True)]
    lowest = max(map(bottom, names_set))
    return [replace(mark, y=MARGIN / 2 + mark.y + lowest - bottom(title)) for title in names_set for mark in title]


def _broken_name(method: str) -> Iterator[TextRun]:
    """A long name may break after any of its underscores."""
    for word in prose(method, METHOD):
        for i, piece in enumerate(word.text.replace("_", "_ ").split(" ")):
            yield replace(word, text=piece, space_before=not i)


def label(words: Caption, y: float, height: float, *notes: str) -> list[Mark]:
    """The target over the prediction and notes, in the middle of the row's height, or from its top if higher."""
    right = MARGIN + LABEL - GUTTER
    runs = lines(prose(words.target, METHOD), MARGIN, right, 0)
    for text in filter(None, (words.prediction, *notes)):
        runs += lines(prose(text, SMALL, SOFT), MARGIN, right, bottom(runs))
    top = y + max(0, height - bottom(runs)) / 2
    return [replace(run, y=run.y + top) for run in runs]


def legend(pixels: NDArray[np.uint8], ends: tuple[str, str], note: str, y: float, right: float) -> list[Mark]:
    """The colour bar below the first panel, its ends in words, and what full colour stands for."""
    x = MARGIN + LABEL
    least, most = (prose(end, SMALL, SOFT) for end in ends)
    bar = Pane(pixels, x, y + (PITCH - THICK) / 2, BAR, THICK)
    before = lines(least, x - length(least) - GUTTER / 2, x, y)
    return [bar, *before, *lines([*most, *prose(f"  {note}", SMALL, SOFT)], x + BAR + GUTTER, right, y)]


BAR_PIXELS = round(BAR * DPI)


def missing(x: float, width: float, y: float) -> list[PlacedRun]:
    """A dash in the middle of a panel that a method did not fill."""
    return lines(prose("–", SMALL, SOFT), x + width / 2, x + width, y - PITCH / 2)


def end(marks: Sequence[Mark]) -> float:
    return max(mark.y + (mark.height if isinstance(mark, Pane) else DESCENT) for mark in marks)


def drawn_figure(marks: Sequence[Mark], width: float, height: float) -> Figure:
    """The marks in ink."""
    figure = blank_figure(width, height)
    for mark in marks:
        if isinstance(mark, PlacedRun):
            draw_run(figure, mark, height - mark.y)
        else:
            _hang(figure, mark, width, height)
    return figure


def _hang(figure: Figure, pane: Pane, width: float, height: float) -> None:
    """A picture in a hairline frame: without one a white picture would have no edge."""
    bottom = height - pane.y - pane.height
    axes = figure.add_axes((pane.x / width, bottom / height, pane.width / width, pane.height / height))
    axes.imshow(pane.pixels, origin="upper", aspect="auto", interpolation="antialiased")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color=RULE, linewidth=0.4)
