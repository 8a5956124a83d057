"""Panels of a report drawn by matplotlib: inline in the page, in the reader's own colours, or as one file on white."""

from __future__ import annotations

import io
import re
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from relprop.bench.report.blocks import Dash, LineStyle, Panel, Plot
from relprop.render.typesetting import INK, REGULAR, drawable
from relprop.render.visible import visible

WIDTH, HEIGHT = 340 / 72, 250 / 72  # inches of a panel
AXES = (56 / 340, 42 / 250, 274 / 340, 182 / 250)  # left, bottom, width and height within a panel
TITLE, SMALL = 12.5, 11
# Tol's vibrant scheme: colour-blind readers can tell the colours apart, on white and on black.
COLOURS = ("#0077bb", "#ee7733", "#009988", "#cc3311", "#33bbee", "#ee3377")
DASHES: tuple[Dash, ...] = ("solid", "dashed", "dotted")
GREY = "#8a939e"
_SETTINGS: Any = {
    "svg.fonttype": "none",  # text as text
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
}
# What an <svg> inside a page does without: the prolog, its own style sheet and names of groups.
_ONLY_IN_FILES = re.compile(r'^.*?(?=<svg)|\s*<(metadata|style)\b.*?</\1>|\s*<!--.*?-->|(?<=<g) id="[^"]*"', re.DOTALL)


def line_style(name: str, number: int) -> LineStyle:
    """A colour and dash of its own for each of the first 18 numbers."""
    return LineStyle(name, COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)])


def short_text(text: str, longest: int = 120) -> str:
    """The text with the characters that the font has, shortened to `longest`."""
    shown = drawable(visible(text), REGULAR)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def inline_svg(panel: Panel) -> str:
    """An <svg> element for a page, transparent, with text as text and the page's own text colour as ink."""
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(WIDTH, HEIGHT))
        _draw(figure.add_axes(AXES), panel)
        svg = _ONLY_IN_FILES.sub("", _svg(figure, panel.alt, transparent=True))
    head = f'<svg viewBox="0 0 {72 * WIDTH:.0f} {72 * HEIGHT:.0f}" role="img">'
    return page_colours(re.sub(r"<svg[^>]*>", head, svg, count=1)).replace("xlink:href", "href")


def page_colours(text: str) -> str:
    """With the page's own text colour in place of ink."""
    return text.replace(INK, "currentColor")


def svg_file(plot: Plot, columns: int = 3) -> str:
    """The content of an SVG file with the legend and all panels, on white."""
    across = max(2, min(columns, len(plot.panels)))
    down = -(-len(plot.panels) // across)
    names = [short_text(one.name, 40) for one in plot.legend]
    per_row = max(1, int(72 * across * WIDTH / (50 + 0.65 * SMALL * max(map(len, names), default=0))))
    height = down * HEIGHT + -(-len(names) // per_row) * 1.7 * SMALL / 72
    with rc_context({**_SETTINGS, "figure.constrained_layout.w_pad": 0.1, "figure.constrained_layout.h_pad": 0.1}):
        figure = Figure(figsize=(across * WIDTH, height), facecolor="white", layout="constrained")
        every = figure.subplots(down, across, squeeze=False).ravel()
        for axes, panel in zip(every, plot.panels, strict=False):
            _draw(axes, panel)
        for axes in every[len(plot.panels) :]:
            axes.set_axis_off()
        if plot.legend:
            handles = [Line2D([], [], color=one.colour, linestyle=one.dash, linewidth=2) for one in plot.legend]
            figure.legend(handles, names, loc="outside upper left", ncols=per_row, frameon=False, fontsize=SMALL)
        return _svg(figure, plot.caption)


def _svg(figure: Figure, title: str, transparent: bool = False) -> str:
    """The same bytes every time; ids are made from the title, so that two drawings in a page share none."""
    file = io.StringIO()
    with rc_context({"svg.hashsalt": title}):
        figure.savefig(file, format="svg", transparent=transparent, metadata={"Date": None, "Title": title})
    return file.getvalue()


def _draw(axes: Axes, panel: Panel) -> None:
    for series in panel.series:
        colour, alpha = series.style.colour, 1.0 if series.joined else 0.7
        xs, ys = zip(*series.points, strict=True)
        if series.intervals:
            lows, highs = zip(*series.intervals, strict=True)
            axes.vlines(xs, lows, highs, color=colour, alpha=0.55, linewidth=1)
        marker = "o" if series.intervals or not series.joined else ""
        axes.plot(
            xs, ys, color=colour, linestyle=series.style.dash if series.joined else "", linewidth=1.8,
            marker=marker, markersize=5.2, markeredgewidth=0, alpha=alpha,
        )  # fmt: skip
    axes.set_title(short_text(panel.title, 44), loc="left", fontsize=TITLE, fontweight=600, color=INK)
    axes.set_xlabel(short_text(panel.x_label), fontsize=SMALL, color=INK, alpha=0.75)
    axes.set_ylabel(short_text(panel.y_label), fontsize=SMALL, color=INK, alpha=0.75)
    axes.margins(x=0.02, y=0.06)
    axes.locator_params(nbins=5)
    axes.grid(axis="y", color=INK, alpha=0.13, linewidth=1)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set(color=INK, alpha=0.4)
    axes.tick_params(labelsize=SMALL, length=0, color=INK, labelcolor=INK)
