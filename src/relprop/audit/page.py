"""An audit as one HTML page that needs nothing from outside."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

from relprop.audit import words
from relprop.audit.figure import figure
from relprop.audit.result import PRIMARY, Findings, NameAudit, Ranked
from relprop.bench.report.blocks import (
    Block,
    Bullets,
    Cell,
    Column,
    Grid,
    Heatmaps,
    Line,
    Picture,
    Pictures,
    Section,
    Text,
)
from relprop.bench.report.html import html
from relprop.explanation import Explanation
from relprop.render import saving


def page(audit: NameAudit) -> str:
    return html(list(_sections(audit)))


def _sections(audit: NameAudit) -> Iterator[Section]:
    opening: list[Block] = [Text(" ".join(words.account(audit))), *_verdicts(audit.found), Bullets(words.HOW_TO_READ)]
    yield Section(words.heading(audit), opening, depth=1)
    for number, (title, findings) in enumerate(audit.parts()):
        picture = [_picture(audit)] if not number else []
        yield Section(title, [*(_verdicts(findings) if number else []), *_tables(findings), *picture])
    most, least = audit.found.extremes()
    yield Section("Most relevant names", list(_examples(most, audit.examples[: len(most)])))
    yield Section("Least relevant names", list(_examples(least, audit.examples[len(most) :])))


def _verdicts(findings: Findings) -> Iterator[Block]:
    yield from (Text(f"{verdict}.") for verdict in words.verdicts(findings))


def _tables(findings: Findings) -> Iterator[Block]:
    for level, summaries in findings.summaries.items():
        note = " (the numbers that count)" if level == PRIMARY else ""
        rows = [words.summary_cells(one) for one in summaries]
        yield _grid(f"Relevance by group, over {level}{note}", words.SUMMARY_HEAD, rows)
    rows = list(words.comparison_cells(findings))
    if rows:
        yield _grid("Tests and effect sizes", words.COMPARISON_HEAD, rows)


def _grid(caption: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Grid:
    columns = tuple(Column(name) for name in head[1:])
    lines = tuple(Line(row[0], tuple(map(Cell, row[1:]))) for row in rows)
    return Grid(caption, head[0], columns, lines)


def _picture(audit: NameAudit) -> Pictures:
    drawn = io.BytesIO()
    saving.put(figure(audit), drawn, "svg")
    alt = "Names sorted by their relevance, coloured by group, and the distribution of each group"
    return Pictures("Every name, and every group", (Picture("names", alt, "svg", drawn.getvalue()),))


def _examples(names: Sequence[Ranked], explained: Sequence[Explanation]) -> Iterator[Block]:
    """Coloured sentences, under their names in place of the method, which is the same for all."""
    drawn = []
    for name, one in zip(names, explained, strict=True):
        mentions = f"{name.count} mention{'s' if name.count > 1 else ''}"
        title = f"{name.name} {words.told(name.relevance)} ({name.group}, {mentions})"
        drawn.append(replace(one.words().without_special().heatmap(), method=title))
    if drawn:
        yield Heatmaps("names", "Each with the sentence in which it is nearest to its mean", tuple(drawn))
