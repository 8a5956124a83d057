"""Drawings of graphs as a figure of matplotlib, for papers: graphs and targets down, methods across; all vectors."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

from relprop.render import saving
from relprop.render.graph.drawing import INK, Drawing, GraphMap, Shape, drawn
from relprop.render.graph.layout import NOTE, caption, covered, films, grid, strip
from relprop.render.grid import GridRow
from relprop.render.image.layout import ends
from relprop.render.panels import (
    BAR_PIXELS,
    GUTTER,
    LABEL,
    MARGIN,
    ROOM,
    Mark,
    drawn_figure,
    end,
    label,
    legend,
    missing,
    titles,
)  # fmt: skip
from relprop.render.typesetting import REGULAR, drawable

# Lengths are in inches and y counts downwards.
UNIT = 1 / 72  # of a drawing, at its natural size
READABLE = 0.45  # a drawing is not made smaller than this, however many there are
NARROWEST = 1.3  # a column, for its name
LEGEND = 5.0  # the colour bar and what is said of it

WORD = re.compile(r"[MLQCZ]|[-\d.e]+")
CODES = {
    "M": (Outline.MOVETO, 1), "L": (Outline.LINETO, 1), "Q": (Outline.CURVE3, 2), "C": (Outline.CURVE4, 3),
    "Z": (Outline.CLOSEPOLY, 0),
}  # fmt: skip


@dataclass(frozen=True)
class Hung:
    """A drawing and the rectangle it fills."""

    drawing: Drawing
    x: float
    y: float
    width: float
    height: float


def save(maps: Sequence[GraphMap], path: str | os.PathLike[str]) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(maps), path)


def draw(maps: Sequence[GraphMap]) -> Figure:
    """The grid: targets in the left column, the pictures that colours hide, a column a method; the legend below."""
    table = grid(maps)
    names = (*(["picture"] if covered(table) else []), *table.methods)
    rows = [_drawings(row, covered(table)) for row in table.rows]
    natural = max(one.box[2] * UNIT for row in rows for one in row if one)
    share = (ROOM - 2 * MARGIN - LABEL) / len(names) - GUTTER
    width = max(NARROWEST, min(natural, max(share, READABLE * natural)))
    lefts = [MARGIN + LABEL + column * (width + GUTTER) for column in range(len(names))]
    right = max(lefts[-1] + width, lefts[0] + LEGEND)
    marks: list[Mark] = [*titles(names, lefts, width - GUTTER)]
    hung: list[Hung] = []
    for row, drawings in zip(table.rows, rows, strict=True):
        y = max([end(marks), *(one.y + one.height for one in hung)]) + GUTTER
        new = [_hang(one, x, y, width) for one, x in zip(drawings, lefts, strict=True) if one]
        height = max(one.height for one in new)
        hung += [replace(one, y=y + (height - one.height) / 2) for one in new]
        words = caption(row.first)
        marks += label(words, y, height, words.note)
        empty = [x for one, x in zip(drawings, lefts, strict=True) if one is None]
        marks += [mark for x in empty for mark in missing(x, width, y + height / 2)]
    y = max([end(marks), *(one.y + one.height for one in hung)]) + GUTTER
    for film in films(maps):
        marks += legend(strip(film, BAR_PIXELS), ends(film), NOTE, y, right)
        y = end(marks)
    figure = drawn_figure(marks, right + MARGIN, y + MARGIN)
    for one in hung:
        draw_hung(figure, one)
    return figure


def _drawings(row: GridRow[GraphMap], hidden: bool) -> list[Drawing | None]:
    plain = [drawn(row.first.plain())] if hidden else []
    return [*plain, *(drawn(cell) if cell else None for cell in row.cells)]


def _hang(one: Drawing, x: float, y: float, width: float) -> Hung:
    """In the middle of its column, at its natural size or as large as fits."""
    scale = min(UNIT, width / one.box[2])
    return Hung(one, x + (width - one.box[2] * scale) / 2, y, one.box[2] * scale, one.box[3] * scale)


def draw_hung(figure: Figure, hung: Hung) -> None:
    """The shapes as patches: axes as large as the drawing, in its own units."""
    width, height = figure.get_size_inches()
    bottom = height - hung.y - hung.height
    axes = figure.add_axes((hung.x / width, bottom / height, hung.width / width, hung.height / height))
    left, top, wide, tall = hung.drawing.box
    axes.set(xlim=(left, left + wide), ylim=(top + tall, top))
    axes.set_axis_off()
    points = 72 * hung.width / wide  # to a unit of the drawing
    for shape in hung.drawing.shapes:
        axes.add_patch(
            PathPatch(outline(shape), facecolor=shape.fill, edgecolor=shape.stroke, linewidth=shape.width * points)
        )
    for name in hung.drawing.labels:
        font = FontProperties(fname=str(REGULAR), size=name.size * points)
        text = axes.text(name.x, name.y, drawable(name.text, REGULAR), color=INK, fontproperties=font, ha="center",
                         va="center_baseline", parse_math=False)  # fmt: skip
        text.set_usetex(False)


def outline(shape: Shape) -> Outline:
    """A path in SVG's words as one of matplotlib's."""
    words = WORD.findall(shape.path)
    vertices: list[tuple[float, float]] = []
    codes: list[int] = []
    at = 0
    while at < len(words):
        code, count = CODES[words[at]]
        numbers = [float(word) for word in words[at + 1 : at + 1 + 2 * count]]
        vertices += list(zip(numbers[::2], numbers[1::2], strict=True)) or [(0.0, 0.0)]
        codes += [int(code)] * max(count, 1)
        at += 1 + 2 * count
    return Outline(vertices, codes)
