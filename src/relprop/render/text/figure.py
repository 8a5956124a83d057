"""Heat maps as a figure of matplotlib, for papers: tokens in coloured boxes, saved as PNG, SVG or PDF."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from matplotlib.figure import Figure

from relprop.render import palette, saving
from relprop.render.fonts import joins, right_to_left
from relprop.render.text.layout import ANSWER_NOTE, SCALE_NOTE, Cell, TextRow, ends, signs, stacked
from relprop.render.typesetting import (
    BOLD,
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
    bottom,
    draw_box,
    draw_run,
    length,
    place,
    prose,
    text_run,
)  # fmt: skip
from relprop.types import Heatmap

WIDTH, MARGIN = 8.0, 0.25
JOINER = "\u200d"
METHOD_MAX, GUTTER = 1.5, 0.2  # the left column, and what parts it from the tokens
GAP = 0.13  # above and below a rule

TOKEN = Face(REGULAR, 10.5, space=0.05, pad=0.03)
SPECIAL = replace(TOKEN, size=8.5)
SWATCH = Face(REGULAR, 6, space=0.06, pad=0.09)
HEADING, SUBHEADING = Face(BOLD, 10.5, space=0.045), Face(REGULAR, 10.5, space=0.045)


def save(heatmaps: Sequence[Heatmap], path: str | os.PathLike[str]) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(heatmaps), path)


def draw(heatmaps: Sequence[Heatmap]) -> Figure:
    """The figure: methods about the same target in one stack, their names in the left column, the legend below."""
    groups = stacked(heatmaps)
    names = [prose(row.caption.method, METHOD) for _, members in groups for row in members]
    left = MARGIN + min(METHOD_MAX, max(length(name) for name in names)) + GUTTER
    runs: list[PlacedRun] = []
    rules: list[float] = []  # lines across the page
    y = MARGIN / 2
    for subject, members in groups:
        runs += place(_subject(subject), MARGIN, WIDTH - MARGIN, y)
        for row in members:
            rules.append(bottom(runs) + GAP)
            runs += _row(row, left, rules[-1] + GAP / 2)
        y = bottom(runs) + 2 * GAP
    rules.append(bottom(runs) + GAP)
    rows = [row for _, members in groups for row in members]
    legend = _legend(any(row.answers for row in rows), signs(rows))
    runs += place(legend, MARGIN, WIDTH - MARGIN, rules[-1] + GAP / 2)
    return _figure(runs, rules, bottom(runs) + MARGIN / 2)


def _row(row: TextRow, left: float, y: float) -> list[PlacedRun]:
    """The method's name, the tokens to the right of it, and under them what their scores account for."""
    name = place(prose(row.caption.method, METHOD), MARGIN, left - GUTTER, y)
    backwards = right_to_left("".join(cell.text for cell in row.cells if not cell.special))
    tokens = place(_tokens(row.drawn), left, WIDTH - MARGIN, y, backwards)
    account = prose(" · ".join(row.caption.account), SMALL, SOFT)
    return [*name, *tokens, *place(account, left, WIDTH - MARGIN, bottom(tokens, y) - 0.03)]


def _subject(parts: Sequence[str]) -> list[TextRun]:
    return [*prose(parts[0], HEADING), *(word for part in parts[1:] for word in prose(f"  {part}", SUBHEADING, SOFT))]


def _legend(answers: bool, kinds: Sequence[bool]) -> list[TextRun]:
    answer = [TextRun("", SMALL, True, SOFT), TextRun(ANSWER_NOTE, replace(SMALL, pad=0.05), True, SOFT, answer=True)]
    scale = [word for signed in kinds for word in _scale(signed)]
    noted = [*scale, *prose(f"  {SCALE_NOTE}", SMALL, SOFT)]
    return [*noted, *answer] if answers else noted


def _scale(signed: bool) -> list[TextRun]:
    shades = palette.legend(signed=signed)
    swatches = [TextRun("", SWATCH, not i, INK, _background(shade, signed)) for i, shade in enumerate(shades)]
    least, most = ends(signed)
    return [*prose(least, SMALL, SOFT), *swatches, *prose(f"{most}  ", SMALL, SOFT)]


def _tokens(cells: Sequence[Cell]) -> Iterator[TextRun]:
    """Tokens in boxes; pieces of one word whose letters join are drawn in their joined forms."""
    for i, cell in enumerate(cells):
        after = cells[i + 1] if i + 1 < len(cells) else None
        led = JOINER if not cell.space_before and i and joins(cell.text[:1]) and joins(cells[i - 1].text[-1:]) else ""
        follows = after is not None and not after.space_before and joins(cell.text[-1:]) and joins(after.text[:1])
        text = cell.text.replace(" ", "\u00a0") if cell.beside else cell.text
        background = palette.colour(cell.shade, palette.light(cell.signed))
        yield text_run(
            f"{led}{text}{JOINER if follows else ''}",
            SPECIAL if cell.special else TOKEN,
            cell.space_before,
            palette.as_hex(palette.ink(background)) if cell.shade else INK,
            background=palette.as_hex(background),
            answer=cell.answer,
            line_before=cell.line_before,
            apart=cell.special,
        )


def _background(shade: float, signed: bool) -> str:
    return palette.as_hex(palette.colour(shade, palette.light(signed)))


def _figure(runs: Sequence[PlacedRun], rules: Sequence[float], height: float) -> Figure:
    """The words in ink, the rules, and a frame around the words of the answer, line by line."""
    figure = blank_figure(WIDTH, height)
    for y in rules:
        draw_box(figure, MARGIN, height - y, WIDTH - 2 * MARGIN, 0.008, facecolor=RULE, linewidth=0)
    for run in runs:
        draw_run(figure, run, height - run.y)
    for (answer, y), line in groupby(runs, key=lambda run: (run.word.answer, run.y)):
        if answer:
            first, *_, last = [*line] * 2  # which may be one
            face, around = first.word.face, 0.012
            x, low = first.x - around, height - y - face.below - around
            wide, tall = last.x + last.word.width - x + around, face.box + 2 * around
            draw_box(figure, x, low, wide, tall, face.box / 6, fill=False, edgecolor=INK, linewidth=0.7)
    return figure
