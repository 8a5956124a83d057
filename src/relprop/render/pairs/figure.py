"""Pairs as a figure of matplotlib: both texts as lines, with an arc for each pair that matters."""

from __future__ import annotations

import os
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from relprop.errors import InputError
from relprop.render import palette, saving
from relprop.render.pairs.layout import PairMap
from relprop.render.text.layout import Cell
from relprop.render.typesetting import INK, REGULAR, SOFT, drawable

STEP, WIDEST = 0.42, 40.0  # inches between two units, and the width that they share at most
TALL = 3.4
FAINT = 0.06  # of the strongest pair: weaker ones are not drawn
THICK = 4.0  # points, of the strongest
NOTE = "red pairs make the texts alike, blue ones keep them apart; the thicker, the more"


def save(maps: Sequence[PairMap], path: str | os.PathLike[str]) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    if len(maps) != 1:
        raise InputError(f"one figure holds one pair of texts, got {len(maps)}")
    saving.write(draw(maps[0]), saving.check(path))


def draw(one: PairMap) -> Figure:
    """The first text above, the second below."""
    first, second = one.labels()
    count = max(len(first), len(second))
    width = min(WIDEST, max(6.0, STEP * count + 0.6))
    figure = Figure(figsize=(width, TALL), facecolor="white")
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.84))
    axes.set(xlim=(-0.7, count - 0.3), ylim=(-1.0, 2.0))
    axes.axis("off")
    places = [[(i + 0.5) * count / len(side) - 0.5 for i in range(len(side))] for side in (first, second)]
    for row, column, score in reversed(one.top(len(first) * len(second))):
        if abs(score) >= FAINT * one.strongest:
            _arc(axes, places[0][row], places[1][column], score / one.strongest)
    font = FontProperties(fname=str(REGULAR), size=min(9.0, 9.0 * width / (STEP * count + 0.6)))
    for side, cells, height, align in ((0, first, 1.06, "bottom"), (1, second, -0.06, "top")):
        for place, cell in zip(places[side], cells, strict=True):
            _label(axes, place, height, cell, align, font)
    figure.text(0.02, 0.96, f"{one.method}: {one.caption.target}", va="top", fontsize=9, color=INK, parse_math=False)
    figure.text(0.02, 0.90, NOTE, va="top", fontsize=7, color=SOFT)
    return figure


def _arc(axes: Axes, start: float, stop: float, shade: float) -> None:
    curve = Path([(start, 1.0), (start, 0.5), (stop, 0.5), (stop, 0.0)], [Path.MOVETO, *[Path.CURVE4] * 3])
    pole = palette.LIGHT.supports if shade > 0 else palette.LIGHT.opposes
    how = {"edgecolor": palette.as_hex(pole), "alpha": 0.15 + 0.8 * abs(shade), "linewidth": THICK * abs(shade)}
    axes.add_patch(PathPatch(curve, facecolor="none", capstyle="round", **how))


def _label(axes: Axes, place: float, height: float, cell: Cell, align: str, font: FontProperties) -> None:
    ground = palette.colour(0.8 * cell.shade)
    box = {"facecolor": palette.as_hex(ground), "edgecolor": "none", "pad": 1.5}
    axes.text(
        place, height, drawable(cell.text, REGULAR), rotation=45, ha="left" if align == "bottom" else "right", va=align,
        rotation_mode="anchor", fontproperties=font, color=palette.as_hex(palette.ink(ground)), bbox=box,
        parse_math=False,
    )  # fmt: skip
