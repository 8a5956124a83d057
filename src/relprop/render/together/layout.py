"""A picture and a text of one explanation, to be drawn together: patches and words in the same colours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relprop.render.caption import number, shown_account
from relprop.render.generation.layout import GenerationMap
from relprop.render.image.overlay import ImageMap, Numbers
from relprop.types import Heatmap


@dataclass(frozen=True, eq=False)
class TogetherMap:
    """What is drawn: the picture with the sums of its scores, the text, and both token by token where text was written.

    `frame`: the edges of the grid of patches, as shares of the picture (left, top, right, bottom).
    """

    picture: ImageMap
    text: Heatmap
    grid: Numbers  # [rows, columns]
    frame: tuple[float, float, float, float]
    sums: tuple[tuple[str, float], ...]  # how much came from each part, and from what else the value is made of
    generation: GenerationMap | None = None
    grids: tuple[Numbers, ...] = ()  # of a generation, one per step


def told_sums(one: TogetherMap) -> list[str]:
    """How much came from the picture, from the words, and from what else the value is made of."""
    if one.picture.beside is None:
        return [f"{name} {number(total)}" for name, total in one.sums]
    shown = shown_account([], one.sums, one.picture.value)
    return [*(f"{name} {share}" for name, share in shown.beside), f"= {shown.value}"]


def cell_boxes(one: TogetherMap) -> list[tuple[float, float, float, float]]:
    """Left, top, width and height of every patch, in percent of the picture; cut at its edges."""
    rows, columns = one.grid.shape
    left, top, right, bottom = one.frame
    x, y = np.linspace(left, right, columns + 1).clip(0, 1) * 100, np.linspace(top, bottom, rows + 1).clip(0, 1) * 100
    return [
        (float(x[k]), float(y[i]), float(x[k + 1] - x[k]), float(y[i + 1] - y[i]))
        for i in range(rows)
        for k in range(columns)
    ]
