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
from relprop.render.drawing import INK, Drawing, GraphMap, Shape, drawn
from relprop.render.graph_layout import NOTE, Row, caption, films, grid, strip
from relprop.render.image_figure import (
    BAR,
    GUTTER,
    LABEL,
    MARGIN,
    PITCH,
    ROOM,
    THICK,
    Mark,
    Pane,
    _end,
    _figure,
    _lines,
    _titles,
)
from relprop.render.image_layout import ends
from relprop.render.palette import Film
from relprop.render.picture import METHOD, REGULAR, SMALL, SOFT, _bottom, _drawable, _length, _prose
from relprop.render.saving import DPI

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
    names = (*(["picture"] if table.covered else []), *table.methods)
    rows = [_drawings(row, table.covered) for row in table.rows]
    natural = max(one.box[2] * UNIT for row in rows for one in row if one)
    share = (ROOM - 2 * MARGIN - LABEL) / len(names) - GUTTER
    width = max(NARROWEST, min(natural, max(share, READABLE * natural)))
    lefts = [MARGIN + LABEL + column * (width + GUTTER) for column in range(len(names))]
    right = max(lefts[-1] + width, lefts[0] + LEGEND)
    marks: list[Mark] = [*_titles(names, lefts, width - GUTTER)]
    hung: list[Hung] = []
    for row, drawings in zip(table.rows, rows, strict=True):
        y = max([_end(marks), *(one.y + one.height for one in hung)]) + GUTTER
        new = [_hang(one, x, y, width) for one, x in zip(drawings, lefts, strict=True) if one]
        height = max(one.height for one in new)
        hung += [replace(one, y=y + (height - one.height) / 2) for one in new]
        marks += [*_label(row.first, y, height), *_gaps(drawings, lefts, width, y + height / 2)]
    y = max([_end(marks), *(one.y + one.height for one in hung)]) + GUTTER
    for film in films(maps):
        marks += _legend(film, y, right)
        y = _end(marks)
    figure = _figure(marks, right + MARGIN, y + MARGIN)
    for one in hung:
        _ink(figure, one)
    return figure


def _drawings(row: Row, covered: bool) -> list[Drawing | None]:
    plain = [drawn(row.first.plain())] if covered else []
    return [*plain, *(drawn(cell) if cell else None for cell in row.cells)]


def _hang(one: Drawing, x: float, y: float, width: float) -> Hung:
    """In the middle of its column, at its natural size or as large as fits."""
    scale = min(UNIT, width / one.box[2])
    return Hung(one, x + (width - one.box[2] * scale) / 2, y, one.box[2] * scale, one.box[3] * scale)


def _gaps(drawings: Sequence[Drawing | None], lefts: Sequence[float], width: float, y: float) -> list[Mark]:
    missing = [x for one, x in zip(drawings, lefts, strict=True) if one is None]
    return [mark for x in missing for mark in _lines(_prose("–", SMALL, SOFT), x + width / 2, x + width, y - PITCH / 2)]


def _label(first: GraphMap, y: float, height: float) -> list[Mark]:
    """The target over the prediction and the graph's title, in the middle of the row's height, or from its top."""
    words, right = caption(first), MARGIN + LABEL - GUTTER
    label = _lines(_prose(words.target, METHOD), MARGIN, right, 0)
    for text in filter(None, (words.prediction, words.note)):
        label += _lines(_prose(text, SMALL, SOFT), MARGIN, right, _bottom(label))
    top = y + max(0, height - _bottom(label)) / 2
    return [replace(mark, y=mark.y + top) for mark in label]


def _legend(film: Film, y: float, right: float) -> list[Mark]:
    x = MARGIN + LABEL
    least, most = (_prose(end, SMALL, SOFT) for end in ends(film))
    bar = Pane(strip(film, round(BAR * DPI)), x, y + (PITCH - THICK) / 2, BAR, THICK)
    before = _lines(least, x - _length(least) - GUTTER / 2, x, y)
    return [bar, *before, *_lines([*most, *_prose(f"  {NOTE}", SMALL, SOFT)], x + BAR + GUTTER, right, y)]


def _ink(figure: Figure, hung: Hung) -> None:
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
    for label in hung.drawing.labels:
        font = FontProperties(fname=str(REGULAR), size=label.size * points)
        text = axes.text(label.x, label.y, _drawable(label.text, REGULAR), color=INK, fontproperties=font, ha="center",
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
