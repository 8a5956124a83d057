"""Heat maps over pictures as a figure of matplotlib, for papers: pictures and targets down, methods across."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from matplotlib.figure import Figure

from relprop.render import saving
from relprop.render.grid import GridRow
from relprop.render.image.layout import caption, ends, films, grid, scale_note, strip
from relprop.render.image.overlay import Bound, Contour, ImageMap, Pixels, bounds, fitted, overlay
from relprop.render.panels import (
    BAR_PIXELS,
    GUTTER,
    LABEL,
    MARGIN,
    ROOM,
    Mark,
    Pane,
    drawn_figure,
    end,
    label,
    legend,
    missing,
    titles,
)  # fmt: skip
from relprop.render.saving import DPI
from relprop.render.typesetting import SMALL, SOFT, lines, prose

CELL, SMALLEST = 1.7, 0.9  # a picture's width, as fits the room, but not smaller than can be read
TALLEST = 1.6  # a picture's height over its width: one still taller is narrower than its column

Paint = Callable[[ImageMap], Pixels]


def save(
    maps: Sequence[ImageMap], path: str | os.PathLike[str], *, contour: Contour = None, bound: Bound = None
) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(maps, contour=contour, bound=bound), path)


def draw(maps: Sequence[ImageMap], *, contour: Contour = None, bound: Bound = None) -> Figure:
    """The grid: targets in the left column, then the picture itself, then a column a method; the legend below."""
    table, limits = grid(maps), bounds(maps, bound)
    names = ("picture", *table.methods)
    width = min(CELL, max(SMALLEST, (ROOM - 2 * MARGIN - LABEL) / len(names) - GUTTER))
    lefts = [MARGIN + LABEL + column * (width + GUTTER) for column in range(len(names))]
    right = lefts[-1] + width
    marks: list[Mark] = [*titles(names, lefts, width)]

    def paint(one: ImageMap) -> Pixels:
        return overlay(one, contour=contour, bound=limits[one.method])

    for row in table.rows:
        marks += _row(row, lefts, width, end(marks) + GUTTER, paint)
    for i, film in enumerate(films(maps)):
        note = scale_note(film, bound, limits)
        marks += legend(strip(film, BAR_PIXELS), ends(film), note, end(marks) + GUTTER / (1 + i), right)
    return drawn_figure(marks, right + MARGIN, end(marks) + MARGIN)


def _row(row: GridRow[ImageMap], lefts: Sequence[float], width: float, y: float, paint: Paint) -> list[Mark]:
    """The target in words, the picture, and the maps, all at their final number of pixels."""
    tall, wide = row.first.image.shape[:2]
    height = min(tall / wide, TALLEST) * width
    narrow = height * wide / tall
    longest = round(max(narrow, height) * DPI)
    marks: list[Mark] = [Pane(fitted(row.first, longest).image, lefts[0] + (width - narrow) / 2, y, narrow, height)]
    for cell, x in zip(row.cells, lefts[1:], strict=True):
        if cell is None:
            marks += missing(x, width, y + height / 2)
        else:
            marks.append(Pane(paint(fitted(cell, longest)), x + (width - narrow) / 2, y, narrow, height))
            note = prose(caption(cell).note, SMALL, SOFT) if cell.note else []
            marks += lines(note, x, x + width, y + height + 0.02)
    return marks + label(caption(row.first), y, height)
