"""Features as a figure of matplotlib: a bar per column, the strongest on top."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine

from relprop.render import palette, saving
from relprop.render.caption import number
from relprop.render.features.layout import FeatureMap, bars, caption
from relprop.render.typesetting import INK, REGULAR, RULE, SOFT, drawable

WIDTH, BAR, AROUND = 7.0, 0.24, 1.1  # inches: of all, of one bar, of the words around a map
CHARACTERS = 90  # in a line of the title


def save(maps: Sequence[FeatureMap], path: str | os.PathLike[str]) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(maps), path)


def draw(maps: Sequence[FeatureMap]) -> Figure:
    """One map under the other."""
    heights = [AROUND + BAR * len(bars(one)) for one in maps]
    figure = Figure(figsize=(WIDTH, sum(heights)), facecolor="white", layout=ConstrainedLayoutEngine())
    axes = figure.subplots(len(maps), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for one, own in zip(maps, axes, strict=True):
        _bars(own, one)
    return figure


def _bars(axes: Axes, one: FeatureMap) -> None:
    words, rows = caption(one), bars(one)
    font = FontProperties(fname=str(REGULAR), size=7.5)
    poles = [palette.LIGHT.supports if row.score > 0 else palette.LIGHT.opposes for row in rows]
    axes.barh(range(len(rows)), [row.score for row in rows], 0.7, color=[palette.as_hex(pole) for pole in poles])
    names = [drawable(f"{row.column} = {row.value}", REGULAR) for row in rows]
    axes.set_yticks(range(len(rows)), names, fontproperties=font, parse_math=False)
    axes.invert_yaxis()
    for k, row in enumerate(rows):
        side = "left" if row.score >= 0 else "right"
        axes.annotate(number(row.score), (row.score, k), (3 if row.score >= 0 else -3, 0), textcoords="offset points",
                      ha=side, va="center", fontproperties=font, color=SOFT)  # fmt: skip
    axes.margins(x=0.15)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    axes.tick_params(labelsize=7, colors=SOFT, length=0)
    title = " · ".join((f"{words.method}: {words.target}", *filter(None, (words.prediction, *words.account))))
    lines = "\n".join(drawable(line, REGULAR) for line in textwrap.wrap(title, CHARACTERS))
    axes.set_title(lines, fontsize=8, color=INK, loc="left", parse_math=False)
