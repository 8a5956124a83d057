"""Panels of a figure, for papers: subjects down, methods across. Pictures and graphs share it.

Lengths are in inches and y counts downwards, until the figure is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from relprop.render.caption import Caption
from relprop.render.saving import DPI
from relprop.render.typesetting import METHOD, PITCH, RULE, SMALL, SOFT, PlacedRun, TextRun

from relprop.render.typesetting import blank_figure, bottom, draw_run, length, lines, prose  # isort: skip

MARGIN, GUTTER = 0.2, 0.08
LABEL = 1.3  # the column of the targets
ROOM = 8.0  # the width that panels share
BAR, THICK = 1.2, 0.12  # the colour bar
BAR_PIXELS = round(BAR * DPI)


@dataclass(frozen=True)
class FigurePanel:
    """What is drawn on axes of this size, and what is said below."""

    width: float
    height: float
    draw: Callable[[Axes], None]
    note: str = ""


@dataclass(frozen=True)
class ColourBar:
    """A colour bar, its ends in words, and what full colour stands for."""

    pixels: NDArray[np.uint8]
    ends: tuple[str, str]
    note: str


def column_width(columns: int) -> float:
    """Each column's share of the room."""
    return (ROOM - 2 * MARGIN - LABEL) / columns - GUTTER


def panel_figure(
    names: Sequence[str],
    rows: Sequence[tuple[Caption, Sequence[FigurePanel | None]]],
    legends: Sequence[ColourBar],
    width: float,
    narrowest: float = 0.0,
) -> Figure:
    """The names over columns of this width; per row a label and its panels, in the middle of their cells; the legends.

    `narrowest`: the least that lies between the labels and the right margin.
    """
    lefts = [MARGIN + LABEL + column * (width + GUTTER) for column in range(len(names))]
    right = max(lefts[-1] + width, lefts[0] + narrowest)
    words = _titles(names, lefts, width)
    placed: list[tuple[FigurePanel, float, float]] = []
    y = bottom(words)
    for caption, panels in rows:
        y += GUTTER
        height = max(panel.height for panel in panels if panel)
        for panel, x in zip(panels, lefts, strict=True):
            if panel is None:  # a dash, where a method did not fill its panel
                words += lines(prose("–", SMALL, SOFT), x + width / 2, x + width, y + height / 2 - PITCH / 2)
                continue
            placed.append((panel, x + (width - panel.width) / 2, y + (height - panel.height) / 2))
            note = prose(panel.note, SMALL, SOFT) if panel.note else []
            words += lines(note, x, x + width, y + height + 0.02)
        words += _label(caption, y, height)
        y = max(bottom(words), y + height)
    for i, legend in enumerate(legends):
        y += GUTTER / (1 + i)
        placed.append((FigurePanel(BAR, THICK, picture(legend.pixels)), lefts[0], y + (PITCH - THICK) / 2))
        words += _legend_words(legend, lefts[0], y, right)
        y = bottom(words)
    return _drawn(placed, words, right + MARGIN, y + MARGIN)


def _titles(names: Sequence[str], lefts: Sequence[float], width: float) -> list[PlacedRun]:
    """The names over their columns, their last lines level."""
    names_set = [lines(_broken_name(name), x, x + width, 0) for name, x in zip(names, lefts, strict=True)]
    lowest = max(map(bottom, names_set))
    return [replace(mark, y=MARGIN / 2 + mark.y + lowest - bottom(title)) for title in names_set for mark in title]


def _broken_name(method: str) -> Iterator[TextRun]:
    """A long name may break after any of its underscores."""
    for word in prose(method, METHOD):
        for i, piece in enumerate(word.text.replace("_", "_ ").split(" ")):
            yield replace(word, text=piece, space_before=not i)


def _label(caption: Caption, y: float, height: float) -> list[PlacedRun]:
    """The target over the prediction and the note, in the middle of the row's height, or from its top if higher."""
    right = MARGIN + LABEL - GUTTER
    runs = lines(prose(caption.target, METHOD), MARGIN, right, 0)
    for text in filter(None, (caption.prediction, caption.note)):
        runs += lines(prose(text, SMALL, SOFT), MARGIN, right, bottom(runs))
    top = y + max(0, height - bottom(runs)) / 2
    return [replace(run, y=run.y + top) for run in runs]


def _legend_words(legend: ColourBar, x: float, y: float, right: float) -> list[PlacedRun]:
    """What stands before and behind the colour bar."""
    least, most = (prose(end, SMALL, SOFT) for end in legend.ends)
    before = lines(least, x - length(least) - GUTTER / 2, x, y)
    return [*before, *lines([*most, *prose(f"  {legend.note}", SMALL, SOFT)], x + BAR + GUTTER, right, y)]


def _drawn(
    placed: Sequence[tuple[FigurePanel, float, float]], words: Sequence[PlacedRun], width: float, height: float
) -> Figure:
    figure = blank_figure(width, height)
    for panel, x, y in placed:
        low = height - y - panel.height
        panel.draw(figure.add_axes((x / width, low / height, panel.width / width, panel.height / height)))
    for run in words:
        draw_run(figure, run, height - run.y)
    return figure


def picture(pixels: NDArray[np.uint8]) -> Callable[[Axes], None]:
    """Draws a picture in a hairline frame: without one a white picture would have no edge."""

    def draw(axes: Axes) -> None:
        axes.imshow(pixels, origin="upper", aspect="auto", interpolation="antialiased")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=RULE, linewidth=0.4)

    return draw
