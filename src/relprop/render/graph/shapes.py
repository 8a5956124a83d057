"""What a drawing of a graph is made of: paths in SVG's own words, and names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A path of M, L, Q, C and Z, filled, stroked or both, and what it stands for."""

    path: str
    fill: str = "none"
    stroke: str = "none"
    width: float = 0.0
    title: str = ""


@dataclass(frozen=True)
class Label:
    """A name around its middle."""

    text: str
    x: float
    y: float
    size: float


@dataclass(frozen=True)
class Drawing:
    """Shapes and names from back to front, and the part of the plane they fill: left, top, width, height."""

    shapes: tuple[Shape, ...]
    labels: tuple[Label, ...]
    box: tuple[float, float, float, float]
