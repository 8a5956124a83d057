"""A continuation as a figure of matplotlib: generated tokens down, all that they could owe something to across."""

from __future__ import annotations

import os
from collections.abc import Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine

from relprop.errors import InputError
from relprop.render import palette, saving
from relprop.render.fonts import fitted
from relprop.render.generation.layout import GenerationMap, count_before, laid_out, lead, totals
from relprop.render.text.layout import SCALE_NOTE, caption, ends, shades
from relprop.render.typesetting import INK, REGULAR, SOFT

CELL, SMALLEST, WIDEST = 0.17, 0.04, 40.0  # inches: a cell's side, as fits the width, but not smaller
NARROWEST, BESIDE, ABOVE_AND_BELOW, LARGEST = 5.0, 1.6, 2.6, 0.5  # inches of the figure, and of its largest cells
LETTERS = 14  # of the title per inch
LABELLED = 0.11  # between labels; where cells are smaller, some go without
BAR, THICK = 1.6, 0.02  # the colour bar, in inches and as a share of the height
LATER = (0.955, 0.96, 0.965)  # what comes later has no part in a token


def save(maps: Sequence[GenerationMap], path: str | os.PathLike[str]) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    if len(maps) != 1:
        raise InputError(f"one figure holds one continuation, got {len(maps)}")
    saving.write(draw(maps[0]), saving.check(path))


def draw(one: GenerationMap) -> Figure:
    """The matrix, each row shaded by its strongest score; a line parts what was given from what was generated."""
    rows, columns = len(one.steps), max(1, len(one.units) - 1)  # nothing comes after the last token
    side = min(CELL, max(SMALLEST, WIDEST / columns))
    width = max(NARROWEST, side * columns + BESIDE)
    figure = Figure(
        figsize=(width, min(LARGEST, (width - BESIDE) / columns) * rows + ABOVE_AND_BELOW),  # cells fill the width
        facecolor="white",
        layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.1),
    )
    axes = figure.subplots()
    axes.imshow(_pixels(one, columns), aspect="equal", interpolation="nearest")
    labels, files = zip(*(fitted(cell.text, REGULAR) for cell in laid_out(one)), strict=True)
    step = max(1, round(LABELLED / side))
    font = FontProperties(fname=str(REGULAR), size=min(7.5, 44 * side * step))
    axes.set_xticks(range(0, columns, step), labels[:columns:step], rotation=90, fontproperties=font, parse_math=False)
    down = range(0, rows, step)
    axes.set_yticks(down, [labels[one.given + i] for i in down], fontproperties=font, parse_math=False)
    shown = [*files[:columns:step], *(files[one.given + i] for i in down)]
    for label, file in zip([*axes.get_xticklabels(), *axes.get_yticklabels()], shown, strict=True):
        label.set_fontproperties(FontProperties(fname=str(file), size=font.get_size()))
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=2, colors=INK)
    axes.spines[:].set_visible(False)
    axes.axvline(one.given - 0.5, color=INK, linewidth=0.8)
    figure.suptitle(_title(one, width), x=0.03, horizontalalignment="left", fontsize=9, color=INK, parse_math=False)
    _legend(figure, axes, one.signed)
    return figure


def _title(one: GenerationMap, width: float) -> str:
    """The method and the explained number, and how to read the matrix, in lines that fit so many inches."""
    words = caption(totals(one))
    told = f"{words.method}: {words.target}. {lead(one)} Written tokens stand down, what they owe to across."
    return fill(told, round(LETTERS * width))


def _pixels(one: GenerationMap, columns: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    pixels = np.empty((len(one.steps), columns, 3))
    pixels[:] = LATER
    for row, scores in enumerate(one.scores):
        seen = min(columns, count_before(one, row))
        for column, shade in enumerate(shades(scores[:seen])):
            pixels[row, column] = np.array(palette.colour(shade, palette.light(one.signed))) / 255
    return pixels


def _legend(figure: Figure, axes: Axes, signed: bool) -> None:
    shown = (palette.colour(shade, palette.light(signed)) for shade in palette.legend(65, signed))
    scale = ScalarMappable(Normalize(-1, 1), ListedColormap([palette.as_hex(one) for one in shown]))
    long = BAR / (THICK * figure.get_figheight())
    bar = figure.colorbar(scale, ax=axes, orientation="horizontal", fraction=THICK, aspect=long, anchor=(0.0, 0.0))
    bar.set_ticks([-1, 1], labels=ends(signed))
    least, most = bar.ax.get_xticklabels()
    least.set_horizontalalignment("left")
    most.set_horizontalalignment("right" if signed else "left")  # a longer name, which begins where the bar ends
    bar.set_label(SCALE_NOTE, loc="left", fontsize=7.5, color=SOFT)
    bar.ax.tick_params(length=0, labelsize=7.5, colors=SOFT)
    bar.outline.set_visible(False)
