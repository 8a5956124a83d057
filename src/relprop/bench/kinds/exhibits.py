"""Explanations to look at, kept as JSON: heat maps of texts, small PNG images as base64."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from relprop.bench.measurements import Exhibit
from relprop.explanation import Explanation
from relprop.render.graph.drawing import GraphMap, drawn
from relprop.render.graph.figure import draw_shapes
from relprop.render.image.overlay import ImageMap, Pixels, fitted, overlay

T = TypeVar("T")
LONGEST = 200  # pixels along the longer side
UNIT = 1.6  # pixels per unit of a drawing
DPI = 100


def text_exhibit(explanation: Explanation, place: int, label: str) -> Exhibit:
    return {"kind": "text", "example": place, "method": label, "explanation": explanation.to_json()}


def image_exhibit(explanations: Sequence[Explanation], place: int, label: str) -> Exhibit:
    """Small maps of an image's classes over the image, one below the other."""
    panels = np.concatenate([overlay(fitted(only_drawing(one, ImageMap), LONGEST)) for one in explanations])
    return _png_exhibit(panels, place, label, ", ".join(one.target for one in explanations))


def graph_exhibits(explanations: Mapping[str, Explanation], place: int) -> list[Exhibit]:
    """The graph without colours, then one drawing per method."""
    maps = {label: only_drawing(one, GraphMap) for label, one in explanations.items()}
    uncoloured = next(iter(maps.values())).plain()
    return [_png_exhibit(_pixels(one), place, label, one.target) for label, one in {"": uncoloured, **maps}.items()]


def only_drawing(explanation: Explanation, kind: type[T]) -> T:
    """What is drawn of an explanation of one part."""
    ((_, drawing),) = explanation.drawings
    assert isinstance(drawing, kind)
    return drawing


def _pixels(one: GraphMap) -> Pixels:
    drawing = drawn(one)
    width, height = (UNIT * side / DPI for side in drawing.box[2:])
    figure, file = Figure(figsize=(width, height)), io.BytesIO()
    draw_shapes(drawing, figure.add_axes((0, 0, 1, 1)))
    figure.savefig(file, format="png", dpi=DPI)
    return np.asarray(Image.open(file).convert("RGB"))


def _png_exhibit(pixels: Pixels, place: int, label: str, target: str) -> Exhibit:
    file = io.BytesIO()
    Image.fromarray(pixels).quantize(256).save(file, "PNG", optimize=True)
    png = b64encode(file.getvalue()).decode()
    return {"kind": "image", "example": place, "method": label, "target": target, "png": png}
