"""Heat maps over pictures as a figure of matplotlib, for papers: pictures and targets down, methods across."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from relprop.render import saving
from relprop.render.image import Bound, Contour, ImageMap, Pixels, bounds, fitted, overlay
from relprop.render.image_layout import Row, caption, ends, films, grid, scale_note, strip
from relprop.render.palette import Film
from relprop.render.picture import (
    DESCENT,
    LINE,
    METHOD,
    RULE,
    SMALL,
    SOFT,
    Placed,
    Word,
    _bottom,
    _ink,
    _length,
    _place,
    _prose,
)
from relprop.render.saving import DPI

# Lengths are in inches and y counts downwards, until `_figure` turns it round.
MARGIN, GUTTER = 0.2, 0.08
PITCH = 0.17  # from line to line
LABEL = 1.3  # the column of the targets
CELL, SMALLEST, ROOM = 1.7, 0.9, 8.0  # a picture's width, as fits the room, but not smaller than can be read
TALLEST = 1.6  # a picture's height over its width: one still taller is narrower than its column
BAR, THICK = 1.2, 0.12  # the colour bar

Paint = Callable[[ImageMap], Pixels]


@dataclass(frozen=True)
class Pane:
    """Pixels and the rectangle they fill."""

    pixels: Pixels
    x: float
    y: float
    width: float
    height: float


Mark = Placed | Pane


def save(
    maps: Sequence[ImageMap], path: str | os.PathLike[str], *, contour: Contour = None, bound: Bound = None
) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(maps, contour=contour, bound=bound), path)


def draw(maps: Sequence[ImageMap], *, contour: Contour = None, bound: Bound = None) -> Figure:
    """The grid: targets in the left column, then the picture itself, then a column a method; the legend below."""
    table, limits = grid(maps), bounds(maps, bound)
    names = ("picture", *table.methods)
    width = min(CELL, max(SMALLEST, (ROOM - 2 * MARGIN - LABEL) / len(names) - GUTTER))
    lefts = [MARGIN + LABEL + column * (width + GUTTER) for column in range(len(names))]
    right = lefts[-1] + width
    marks: list[Mark] = [*_titles(names, lefts, width)]

    def paint(one: ImageMap) -> Pixels:
        return overlay(one, contour=contour, bound=limits[one.method])

    for row in table.rows:
        marks += _row(row, lefts, width, _end(marks) + GUTTER, paint)
    for i, film in enumerate(films(maps)):
        marks += _legend(film, scale_note(film, bound, limits), _end(marks) + GUTTER / (1 + i), right)
    return _figure(marks, right + MARGIN, _end(marks) + MARGIN)


def _titles(names: Sequence[str], lefts: Sequence[float], width: float) -> list[Placed]:
    """The names over their columns, their last lines level."""
    titles = [_lines(_name(name), x, x + width, 0) for name, x in zip(names, lefts, strict=True)]
    lowest = max(map(_bottom, titles))
    return [replace(mark, y=MARGIN / 2 + mark.y + lowest - _bottom(title)) for title in titles for mark in title]


def _name(method: str) -> Iterator[Word]:
    """A long name may break after any of its underscores."""
    for word in _prose(method, METHOD):
        for i, piece in enumerate(word.text.replace("_", "_ ").split(" ")):
            yield replace(word, text=piece, space_before=not i)


def _row(row: Row, lefts: Sequence[float], width: float, y: float, paint: Paint) -> list[Mark]:
    """The target in words, the picture, and the maps, all at their final number of pixels."""
    tall, wide = row.first.image.shape[:2]
    height = min(tall / wide, TALLEST) * width
    narrow = height * wide / tall
    longest = round(max(narrow, height) * DPI)
    marks: list[Mark] = [Pane(fitted(row.first, longest).image, lefts[0] + (width - narrow) / 2, y, narrow, height)]
    for cell, x in zip(row.cells, lefts[1:], strict=True):
        if cell is None:
            marks += _lines(_prose("–", SMALL, SOFT), x + width / 2, x + width, y + (height - PITCH) / 2)
        else:
            marks.append(Pane(paint(fitted(cell, longest)), x + (width - narrow) / 2, y, narrow, height))
            marks += (
                _lines(_prose(caption(cell).note, SMALL, SOFT), x, x + width, y + height + 0.02) if cell.note else []
            )
    return marks + _label(row.first, y, height)


def _label(first: ImageMap, y: float, height: float) -> list[Mark]:
    """The target over the prediction, in the middle of the row's height, or from its top where they are higher."""
    words = caption(first)
    right = MARGIN + LABEL - GUTTER
    target = _lines(_prose(words.target, METHOD), MARGIN, right, 0)
    prediction = _prose(words.prediction, SMALL, SOFT) if words.prediction else []
    label = [*target, *_lines(prediction, MARGIN, right, _bottom(target))]
    top = y + max(0, height - _bottom(label)) / 2
    return [replace(mark, y=mark.y + top) for mark in label]


def _legend(film: Film, note: str, y: float, right: float) -> list[Mark]:
    """The colour bar below the first picture, its ends in words, and what full colour stands for."""
    x = MARGIN + LABEL
    least, most = (_prose(end, SMALL, SOFT) for end in ends(film))
    bar = Pane(strip(film, round(BAR * DPI)), x, y + (PITCH - THICK) / 2, BAR, THICK)
    before = _lines(least, x - _length(least) - GUTTER / 2, x, y)
    return [bar, *before, *_lines([*most, *_prose(f"  {note}", SMALL, SOFT)], x + BAR + GUTTER, right, y)]


def _lines(words: Iterable[Word], left: float, right: float, top: float) -> list[Placed]:
    """Prose on lines closer than those of tokens, which lie in boxes."""
    first = LINE - DESCENT
    return [
        replace(mark, y=top + PITCH - DESCENT + (mark.y - first) / LINE * PITCH)
        for mark in _place(words, left, right, 0)
    ]


def _end(marks: Sequence[Mark]) -> float:
    return max(mark.y + (mark.height if isinstance(mark, Pane) else DESCENT) for mark in marks)


def _figure(marks: Sequence[Mark], width: float, height: float) -> Figure:
    """The marks in ink. Figures are made without pyplot, so no global state is touched."""
    figure = Figure(figsize=(width, height), dpi=DPI / 2, facecolor="white")
    figure.set_layout_engine("none")
    for mark in marks:
        if isinstance(mark, Placed):
            _ink(figure, mark, height - mark.y)
        else:
            _hang(figure, mark, width, height)
    return figure


def _hang(figure: Figure, pane: Pane, width: float, height: float) -> None:
    """A picture in a hairline frame: without one a white picture would have no edge."""
    bottom = height - pane.y - pane.height
    axes = figure.add_axes((pane.x / width, bottom / height, pane.width / width, pane.height / height))
    axes.imshow(pane.pixels, origin="upper", aspect="auto", interpolation="antialiased")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color=RULE, linewidth=0.4)
