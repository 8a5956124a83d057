"""Heat maps as a figure of matplotlib, for papers: tokens in coloured boxes, saved as PNG, SVG or PDF."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from relprop.render import palette, saving
from relprop.render.text.layout import ANSWER_NOTE, SCALE_NOTE, Cell, TextRow, stacked
from relprop.render.typesetting import (
    BOLD,
    DESCENT,
    INK,
    METHOD,
    REGULAR,
    RULE,
    SMALL,
    SOFT,
    Face,
    PlacedRun,
    TextRun,
    blank_figure,
    draw_box,
    draw_run,
    drawable,
    length,
    place,
    prose,
)  # fmt: skip
from relprop.types import Heatmap

WIDTH, MARGIN = 8.0, 0.25
METHOD_MAX, GUTTER = 1.5, 0.2  # the left column, and what parts it from the tokens
GAP = 0.13  # above and below a rule

TOKEN = Face(REGULAR, 10.5, space=0.05, pad=0.03)
SPECIAL = replace(TOKEN, size=8.5)
SWATCH = Face(REGULAR, 6, space=0.06, pad=0.09)
HEADING, SUBHEADING = Face(BOLD, 10.5, space=0.045), Face(REGULAR, 10.5, space=0.045)


@dataclass(frozen=True)
class Rule:
    y: float


@dataclass(frozen=True)
class AnswerFrame:
    """Around words of one line, from the first's left edge to the last's right."""

    first: PlacedRun
    last: PlacedRun

    @property
    def y(self) -> float:
        return self.first.y


Mark = PlacedRun | Rule | AnswerFrame


def save(heatmaps: Sequence[Heatmap], path: str | os.PathLike[str]) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(heatmaps), path)


def draw(heatmaps: Sequence[Heatmap]) -> Figure:
    """The figure: methods about the same target in one stack, their names in the left column, the legend below."""
    groups = stacked(heatmaps)
    names = [prose(row.caption.method, METHOD) for _, members in groups for row in members]
    left = MARGIN + min(METHOD_MAX, max(length(name) for name in names)) + GUTTER
    marks: list[Mark] = []
    y = MARGIN / 2
    for subject, members in groups:
        marks += place(_subject(subject), MARGIN, WIDTH - MARGIN, y)
        for row in members:
            y = _bottom(marks) + GAP
            marks += [Rule(y), *_row(row, left, y + GAP / 2)]
        y = _bottom(marks) + 2 * GAP
    y = _bottom(marks) + GAP
    legend = _legend(any(row.answers for _, members in groups for row in members))
    marks += [Rule(y), *_framed(place(legend, MARGIN, WIDTH - MARGIN, y + GAP / 2))]
    return _figure(marks, _bottom(marks) + MARGIN / 2)


def _row(row: TextRow, left: float, y: float) -> list[Mark]:
    """The method's name, the tokens to the right of it, and under them what their scores account for."""
    name = place(prose(row.caption.method, METHOD), MARGIN, left - GUTTER, y)
    tokens = place([_token(cell) for cell in row.cells], left, WIDTH - MARGIN, y)
    account = prose(" · ".join(row.caption.account), SMALL, SOFT)
    return [*name, *_framed(tokens), *place(account, left, WIDTH - MARGIN, _bottom(tokens, y) - 0.03)]


def _subject(parts: Sequence[str]) -> list[TextRun]:
    return [*prose(parts[0], HEADING), *(word for part in parts[1:] for word in prose(f"  {part}", SUBHEADING, SOFT))]


def _legend(answers: bool) -> list[TextRun]:
    swatches = [TextRun("", SWATCH, not i, INK, _background(shade)) for i, shade in enumerate(palette.legend())]
    answer = [TextRun("", SMALL, True, SOFT), TextRun(ANSWER_NOTE, replace(SMALL, pad=0.05), True, SOFT, answer=True)]
    scale = [*prose("opposes", SMALL, SOFT), *swatches, *prose(f"supports   {SCALE_NOTE}", SMALL, SOFT)]
    return [*scale, *answer] if answers else scale


def _token(cell: Cell) -> TextRun:
    ink = palette.as_hex(palette.ink(palette.colour(cell.shade))) if cell.shade else INK
    face = SPECIAL if cell.special else TOKEN
    return TextRun(drawable(cell.text, face.font), face, cell.space_before, ink, _background(cell.shade), cell.answer)


def _background(shade: float) -> str:
    return palette.as_hex(palette.colour(shade))


def _framed(placed: Sequence[PlacedRun]) -> list[Mark]:
    """The words, and a frame around those of the answer, line by line."""
    runs = groupby(placed, key=lambda one: (one.word.answer, one.y))
    answers = [list(run) for (answer, _), run in runs if answer]
    return [*placed, *(AnswerFrame(run[0], run[-1]) for run in answers)]


def _bottom(marks: Sequence[Mark], otherwise: float = 0.0) -> float:
    return max((mark.y + (DESCENT if isinstance(mark, PlacedRun) else 0) for mark in marks), default=otherwise)


def _figure(marks: Iterable[Mark], height: float) -> Figure:
    figure = blank_figure(WIDTH, height)
    for mark in marks:
        if isinstance(mark, Rule):
            draw_box(figure, MARGIN, height - mark.y, WIDTH - 2 * MARGIN, 0.008, RULE)
        elif isinstance(mark, AnswerFrame):
            _frame(figure, mark, height - mark.y)
        else:
            draw_run(figure, mark, height - mark.y)
    return figure


def _frame(figure: Figure, frame: AnswerFrame, baseline: float) -> None:
    face, around = frame.first.word.face, 0.012
    x, y = frame.first.x - around, baseline - face.below - around
    width = frame.last.x + frame.last.word.width - frame.first.x + 2 * around
    style = f"round,pad=0,rounding_size={face.box / 6}"
    figure.add_artist(
        FancyBboxPatch(
            (x, y), width, face.box + 2 * around, boxstyle=style, fill=False, edgecolor=INK, linewidth=0.7,
            transform=figure.dpi_scale_trans,
        )
    )  # fmt: skip
