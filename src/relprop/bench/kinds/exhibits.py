"""Maps to look at, as small pictures that travel as text."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from relprop.graph_explanation import GraphExplanation
from relprop.image_explanation import ImageExplanation
from relprop.render.graph.drawing import GraphMap, drawn
from relprop.render.graph.figure import Hung, draw_hung
from relprop.render.image.overlay import Pixels, fitted, overlay

LONGEST = 200  # pixels of a picture that is kept to look at
UNIT = 1.6  # pixels to a unit of a drawing
DPI = 100


def images(found: Sequence[ImageExplanation], place: int, label: str) -> dict[str, Any]:
    """The maps of a picture's classes over the picture, one below the other, small."""
    panels = np.concatenate([overlay(fitted(one.image_map(), LONGEST)) for one in found])
    return _exhibit(panels, place, label, ", ".join(one.target for one in found))


def graphs(found: dict[str, GraphExplanation], place: int) -> list[dict[str, Any]]:
    """The graph itself, then its drawing for every method."""
    maps = {label: one.graph_map() for label, one in found.items()}
    first = next(iter(maps.values()))
    return [_exhibit(_pixels(one), place, label, one.target) for label, one in {"": first.plain(), **maps}.items()]


def _pixels(one: GraphMap) -> Pixels:
    drawing = drawn(one)
    width, height = (UNIT * side / DPI for side in drawing.box[2:])
    figure, file = Figure(figsize=(width, height)), io.BytesIO()
    draw_hung(figure, Hung(drawing, 0, 0, width, height))
    figure.savefig(file, format="png", dpi=DPI)
    return np.asarray(Image.open(file).convert("RGB"))


def _exhibit(pixels: Pixels, place: int, label: str, target: str) -> dict[str, Any]:
    file = io.BytesIO()
    Image.fromarray(pixels).quantize(256).save(file, "PNG", optimize=True)
    png = b64encode(file.getvalue()).decode()
    return {"kind": "image", "example": place, "method": label, "target": target, "png": png}
