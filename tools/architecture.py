"""Draws docs/images/architecture.png: the way of the data through relprop.

python tools/architecture.py
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from relprop.render import saving
from relprop.render.typesetting import INK, SOFT

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "architecture.png"
BOX = "round,pad=0.02,rounding_size=0.08"
STEPS = (  # title, what it does, where it is
    ("given", "texts, pictures,\ngraphs", ""),
    ("reader", "encodes, knows units,\nhides and draws them", "readers/"),
    ("model", "the user's own,\nrun under the rules", "engine/  rulebook/"),
    ("task", "one number\nper example", "tasks/"),
)
FORWARD, BACK = "#1f2328", "#b2182b"
WIDTH, HEIGHT, GAP = 2.0, 1.15, 0.55


def draw() -> Figure:
    figure = Figure(figsize=(10.6, 3.9), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 10.6), ylim=(0, 3.9))
    axes.set_axis_off()
    lefts = [0.35 + number * (WIDTH + GAP) for number in range(len(STEPS))]
    for left, (title, text, where) in zip(lefts, STEPS, strict=True):
        _box(axes, left, 2.25, title, text, where, "#eef2f7")
    for left in lefts[:-1]:
        _arrow(axes, (left + WIDTH, 2.82), (left + WIDTH + GAP, 2.82), FORWARD)
    _box(
        axes,
        lefts[1],
        0.35,
        "explanation",
        "one part per input:\nunits and scores",
        "explanation.py  render/",
        "#fdf1ef",
    )
    _box(axes, lefts[2], 0.35, "method", "what flows back,\nand how it is summed", "methods/", "#fdf1ef")
    _arrow(axes, (lefts[3] + WIDTH / 2, 2.2), (lefts[2] + WIDTH + 0.03, 0.92), BACK, curve=-0.25)
    _arrow(axes, (lefts[2] - 0.02, 0.92), (lefts[1] + WIDTH + 0.03, 0.92), BACK)
    axes.text(lefts[3] + WIDTH / 2 + 0.1, 1.45, "relevance flows back,\npart by part", fontsize=9, color=BACK)
    axes.text(lefts[0], 0.92, "ledger: every part, bias and\nconstant of the number\nis accounted for", fontsize=9,
              color=SOFT, va="center")  # fmt: skip
    return figure


def _box(axes: Axes, x: float, y: float, title: str, text: str, where: str, colour: str) -> None:
    axes.add_patch(FancyBboxPatch((x, y), WIDTH, HEIGHT, facecolor=colour, edgecolor=INK, boxstyle=BOX))
    middle = x + WIDTH / 2
    axes.text(middle, y + HEIGHT - 0.22, title, ha="center", va="center", fontsize=11, weight="bold", color=INK)
    axes.text(middle, y + HEIGHT - 0.58, text, ha="center", va="center", fontsize=8.5, color=INK)
    axes.text(middle, y + 0.12, where, ha="center", va="center", fontsize=8, family="monospace", color=SOFT)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, curve: float = 0.0) -> None:
    style = f"arc3,rad={curve}"
    axes.add_patch(
        FancyArrowPatch(start, end, connectionstyle=style, arrowstyle="-|>", mutation_scale=14, color=colour)
    )


if __name__ == "__main__":
    saving.write(draw(), PICTURE)
