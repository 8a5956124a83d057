"""What a report is made of, before any markup: sections of texts, tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relprop.types import Heatmap


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    soft: bool = False  # a remark, set smaller


@dataclass(frozen=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """To be typed, or what a program said."""

    text: str


@dataclass(frozen=True)
class Cell:
    text: str = ""
    bold: bool = False
    soft: bool = False  # not ours


@dataclass(frozen=True)
class Column:
    """Neighbouring columns of one group share a heading."""

    name: str
    group: str = ""
    soft: bool = False


@dataclass(frozen=True)
class Line:
    """A row: its name, what the code calls it if that differs, and a cell a column."""

    name: str
    cells: tuple[Cell, ...]
    code: str = ""
    apart: bool = False  # not in competition with the others


@dataclass(frozen=True)
class Grid:
    """A table; `corner` is over the rows' names."""

    caption: str
    corner: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    numbers: bool = True


@dataclass(frozen=True)
class Key:
    """An entry of a figure's legend."""

    name: str
    colour: str
    dash: str = ""
    dots: bool = False


@dataclass(frozen=True)
class Panel:
    """One drawing: what is inside its <svg>, with the words for those who cannot see it."""

    title: str
    alt: str
    drawing: str


@dataclass(frozen=True)
class Plot:
    """Panels of one kind, and one legend for all."""

    name: str
    caption: str
    panels: tuple[Panel, ...]
    legend: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Heatmaps:
    """Coloured texts, stacked."""

    name: str
    caption: str
    heatmaps: tuple[Heatmap, ...]


@dataclass(frozen=True)
class Picture:
    """An image file: its ending, its bytes."""

    name: str
    alt: str
    ending: str  # "png" or "svg"
    data: bytes
    title: str = ""


@dataclass(frozen=True)
class Pictures:
    """Side by side."""

    caption: str
    pictures: tuple[Picture, ...]


Block = Text | Bullets | Code | Grid | Plot | Heatmaps | Pictures


@dataclass(frozen=True)
class Section:
    """`depth` 1 is the whole report's title."""

    heading: str
    blocks: Sequence[Block] = ()
    depth: int = 2
