"""Drawings of graphs as a figure of matplotlib, for papers: graphs and targets down, methods across; all vectors."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

from relprop.render import saving
from relprop.render.fonts import fitted
from relprop.render.graph.drawing import INK, GraphMap, drawn
from relprop.render.graph.layout import NOTE, caption, covered, grid, strip
from relprop.render.graph.shapes import Drawing, Shape
from relprop.render.grid import films
from relprop.render.image.layout import ends
from relprop.render.panels import BAR_PIXELS, ColourBar, FigurePanel, column_width, panel_figure
from relprop.render.typesetting import REGULAR

UNIT = 1 / 72  # inches of a drawing's unit, at its natural size
READABLE = 0.45  # a drawing is not made smaller than this, however many there are
NARROWEST = 1.3  # a column, for its name
LEGEND = 5.0  # the colour bar and what is said of it

WORD = re.compile(r"[MLQCZ]|[-\d.e]+")
CODES = {
    "M": (Outline.MOVETO, 1), "L": (Outline.LINETO, 1), "Q": (Outline.CURVE3, 2), "C": (Outline.CURVE4, 3),
    "Z": (Outline.CLOSEPOLY, 0),
}  # fmt: skip


def save(maps: Sequence[GraphMap], path: str | os.PathLike[str]) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(maps), path)


def draw(maps: Sequence[GraphMap]) -> Figure:
    """The grid: targets in the left column, the pictures that colours hide, a column per method; the legend below."""
    table = grid(maps)
    hidden = covered(table)
    names = (*(["picture"] if hidden else []), *table.methods)
    rows: list[list[Drawing | None]] = [
        [*([drawn(row.first.plain())] if hidden else []), *(drawn(cell) if cell else None for cell in row.cells)]
        for row in table.rows
    ]
    natural = max(one.box[2] * UNIT for row in rows for one in row if one)
    width = max(NARROWEST, min(natural, max(column_width(len(names)), READABLE * natural)))
    below = [
        [*([""] if hidden else []), *(caption(one).sums if one else "" for one in row.cells)] for row in table.rows
    ]
    panels = [
        [_panel(one, width, note) if one else None for one, note in zip(*pair, strict=True)]
        for pair in zip(rows, below, strict=True)
    ]
    legends = [ColourBar(strip(film, BAR_PIXELS), ends(film), NOTE) for film in films(maps)]
    captions = [caption(row.first) for row in table.rows]
    return panel_figure(names, list(zip(captions, panels, strict=True)), legends, width, LEGEND)


def _panel(one: Drawing, width: float, note: str) -> FigurePanel:
    """At its natural size or as large as fits."""
    scale = min(UNIT, width / one.box[2])
    return FigurePanel(one.box[2] * scale, one.box[3] * scale, partial(draw_shapes, one), note)


def draw_shapes(drawing: Drawing, axes: Axes) -> None:
    """The shapes as patches on axes that become as large as the drawing, in its own units."""
    left, top, wide, tall = drawing.box
    axes.set(xlim=(left, left + wide), ylim=(top + tall, top))
    axes.set_axis_off()
    points = axes.bbox.transformed(axes.figure.dpi_scale_trans.inverted()).width * 72 / wide  # to a unit
    for shape in drawing.shapes:
        axes.add_patch(
            PathPatch(outline(shape), facecolor=shape.fill, edgecolor=shape.stroke, linewidth=shape.width * points)
        )
    for name in drawing.labels:
        shown, file = fitted(name.text, REGULAR)
        font = FontProperties(fname=str(file), size=name.size * points)
        text = axes.text(name.x, name.y, shown, color=INK, fontproperties=font, ha="center",
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
