"""Series as a figure of matplotlib: a line per channel, on the colours of its scores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from relprop.render import palette, saving
from relprop.render.audio.figure import colour_bar
from relprop.render.palette import SIGNED, UNSIGNED
from relprop.render.series.layout import Numbers, SeriesLine, SeriesMap, caption, drawn_lines, left_out
from relprop.render.typesetting import BOLD, INK, REGULAR, RULE, SOFT, drawable

WIDTH, LEFT, RIGHT = 9.0, 1.9, 0.45  # inches
LINE, GAP, HEAD, FOOT = 0.6, 0.08, 0.72, 0.75


def save(maps: Sequence[SeriesMap], path: str | os.PathLike[str]) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(maps), path)


def draw(maps: Sequence[SeriesMap]) -> Figure:
    """One map under the other: its words, then its channels over their steps."""
    groups = [drawn_lines(one) for one in maps]
    height = sum(HEAD + len(lines) * (LINE + GAP) + 0.2 for lines in groups) + FOOT
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    y = 0.0
    for one, lines in zip(maps, groups, strict=True):
        _words(figure, one, y, height)
        y += HEAD
        for k, line in enumerate(lines):
            across = (LEFT / WIDTH, 1 - (y + LINE) / height, (WIDTH - LEFT - RIGHT) / WIDTH, LINE / height)
            axes = figure.add_axes(across)
            _line(axes, line, one)
            _text(figure, line.name, (LEFT - 0.1, y + LINE / 2 + 0.04), height, ha="right")
            if k < len(lines) - 1 and len(lines[k + 1].values) == len(line.values):
                axes.set_xticklabels([])
            y += LINE + GAP
        y += 0.2
    colour_bar(figure, SIGNED if maps[0].words.signed else UNSIGNED, LEFT)
    return figure


def _line(axes: Axes, line: SeriesLine, one: SeriesMap) -> None:
    steps = len(line.values)
    axes.imshow(
        ground(line, one)[None], extent=(-0.5, steps - 0.5, -0.12, 1.12), aspect="auto", interpolation="nearest"
    )
    axes.plot(np.arange(steps), line.scaled, color=INK, linewidth=1.0, marker="." if steps < 40 else "", markersize=3)
    axes.set(ylim=(-0.12, 1.12), yticks=[])
    known = line.values[np.isfinite(line.values)]
    if len(known) and known.min() < known.max():
        axes.set_yticks([0, 1], [f"{known.min():.3g}", f"{known.max():.3g}"])
    axes.tick_params(labelsize=6.5, colors=SOFT, length=2, pad=2)
    axes.yaxis.tick_right()
    axes.spines[:].set(color=RULE, linewidth=0.5)


def ground(line: SeriesLine, one: SeriesMap) -> Numbers:
    """[steps, 3] from 0 to 1: the colour of each step's score."""
    shades = (line.shares / one.bound).tolist()
    if one.words.signed:
        return np.array([palette.colour(0.8 * shade) for shade in shades]) / 255
    glow = np.array(palette.GLOW[4])
    return np.array([(255 + (glow - 255) * abs(shade)) / 255 for shade in shades])


def _words(figure: Figure, one: SeriesMap, y: float, height: float) -> None:
    words = caption(one)
    _text(figure, f"{words.method}   {words.target}", (0.15, y + 0.28), height, font=BOLD, size=9, colour=INK)
    said = " · ".join(filter(None, (words.prediction, *words.account, left_out(one))))
    _text(figure, said[:170], (0.15, y + 0.5), height)


def _text(
    figure: Figure,
    text: str,
    place: tuple[float, float],
    height: float,
    *,
    font: Path = REGULAR,
    size: float = 7.5,
    colour: str = SOFT,
    ha: str = "left",
) -> None:
    """Words at a place in inches from the top left."""
    style = FontProperties(fname=str(font), size=size)
    x, y = place[0] / WIDTH, 1 - place[1] / height
    figure.text(x, y, drawable(text, font), fontproperties=style, color=colour, ha=ha, parse_math=False)
