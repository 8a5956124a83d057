"""What a report is made of, before any markup: sections of paragraphs, tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from relprop.types import Heatmap

Dash = Literal["solid", "dashed", "dotted"]  # names of both matplotlib and CSS


@dataclass(frozen=True)
class Paragraph:
    text: str
    soft: bool = False  # a remark, in smaller print


@dataclass(frozen=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """A command to type, or the output of a program."""

    text: str


@dataclass(frozen=True)
class TableCell:
    text: str = ""
    bold: bool = False
    soft: bool = False  # a number of the paper, not of this run


@dataclass(frozen=True)
class TableColumn:
    """Neighbouring columns of one group share a heading."""

    name: str
    group: str = ""
    soft: bool = False


@dataclass(frozen=True)
class TableRow:
    """A row's name, its name in code if that differs, and one cell per column."""

    name: str
    cells: tuple[TableCell, ...]
    code: str = ""
    apart: bool = False  # a reference that does not compete with the other rows


@dataclass(frozen=True)
class TableBlock:
    """`corner` is the heading above the names of the rows."""

    caption: str
    corner: str
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    numbers: bool = True


@dataclass(frozen=True)
class LineStyle:
    """An entry of a legend: how the lines and points of one method look in all panels."""

    name: str
    colour: str
    dash: Dash = "solid"


@dataclass(frozen=True)
class Series:
    """Points (x, y) of one style, joined by a line or not; with intervals (low, high), one per point, if given."""

    style: LineStyle
    points: Sequence[tuple[float, float]]
    joined: bool = True
    intervals: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes; `alt` describes it to readers who cannot see it."""

    title: str
    alt: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Plot:
    """Panels that share a caption and a legend."""

    name: str
    caption: str
    panels: tuple[Panel, ...]
    legend: tuple[LineStyle, ...] = ()


@dataclass(frozen=True)
class Heatmaps:
    """Coloured texts, one below the other."""

    name: str
    caption: str
    heatmaps: tuple[Heatmap, ...]


@dataclass(frozen=True)
class ImageFile:
    """The bytes of an image file and its file name extension."""

    name: str
    alt: str
    extension: Literal["png", "svg"]
    data: bytes
    title: str = ""


@dataclass(frozen=True)
class ImageRow:
    """Images side by side."""

    caption: str
    images: tuple[ImageFile, ...]


ReportBlock = Paragraph | Bullets | Code | TableBlock | Plot | Heatmaps | ImageRow


@dataclass(frozen=True)
class Section:
    """`depth` 1 is the title of the whole report."""

    heading: str
    blocks: Sequence[ReportBlock] = ()
    depth: int = 2
