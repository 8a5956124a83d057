"""Heat maps over pictures as a figure of matplotlib, for papers: pictures and targets down, methods across."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from relprop.render import saving
from relprop.render.caption import Caption
from relprop.render.grid import GridRow, films
from relprop.render.image.layout import caption, ends, grid, scale_note, shared_note, strip
from relprop.render.image.overlay import Bound, Contour, ImageMap, Pixels, bounds, fitted, overlay
from relprop.render.panels import BAR_PIXELS, ColourBar, FigurePanel, column_width, panel_figure, picture
from relprop.render.saving import DPI

CELL, SMALLEST = 1.7, 0.9  # a picture's width, as fits the room, but not smaller than can be read
TALLEST = 1.6  # a picture's height over its width: one still taller is narrower than its column


def save(
    maps: Sequence[ImageMap], path: str | os.PathLike[str], *, contour: Contour = None, bound: Bound = None
) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(maps, contour=contour, bound=bound), path)


def draw(maps: Sequence[ImageMap], *, contour: Contour = None, bound: Bound = None) -> Figure:
    """The grid: targets in the left column, then the picture itself, then a column per method; the legend below."""
    table, limits = grid(maps), bounds(maps, bound)
    names = ("picture", *table.methods)
    width = min(CELL, max(SMALLEST, column_width(len(names))))

    def paint(one: ImageMap) -> Pixels:
        return overlay(one, contour=contour, bound=limits[one.method])

    rows = [(replace(caption(row.first), note=""), _panels(row, width, paint)) for row in table.rows]
    legends = [ColourBar(strip(film, BAR_PIXELS), ends(film), scale_note(film, bound, limits)) for film in films(maps)]
    return panel_figure(names, rows, legends, width)


def _panels(row: GridRow[ImageMap], width: float, paint: Callable[[ImageMap], Pixels]) -> list[FigurePanel | None]:
    """The picture and its maps, all at their final number of pixels."""
    tall, wide = row.first.image.shape[:2]
    height = min(tall / wide, TALLEST) * width
    narrow = height * wide / tall
    longest = round(max(narrow, height) * DPI)
    shared = shared_note(row)
    plain = FigurePanel(narrow, height, picture(fitted(row.first, longest).image), shared)
    maps = [
        FigurePanel(narrow, height, picture(paint(fitted(one, longest))), _below(caption(one), shared)) if one else None
        for one in row.cells
    ]
    return [plain, *maps]


def _below(words: Caption, shared: str) -> str:
    return " · ".join(filter(None, ("" if shared else words.note, words.sums)))
