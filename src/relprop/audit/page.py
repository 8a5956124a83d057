"""An audit as one HTML page that needs nothing from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from relprop.audit import words
from relprop.audit.figure import audit_figure
from relprop.audit.findings import PRIMARY, AuditFindings, Findings, Ranked
from relprop.bench.kinds.exhibits import only_drawing
from relprop.bench.report import blocks
from relprop.bench.report.exhibits import svg_bytes
from relprop.bench.report.html import html
from relprop.explanation import Explanation
from relprop.types import Heatmap


def audit_page(audit: AuditFindings) -> str:
    return html(list(_sections(audit)))


def _sections(audit: AuditFindings) -> Iterator[blocks.Section]:
    opening: list[blocks.ReportBlock] = [
        blocks.Paragraph(" ".join(words.account(audit))),
        *_verdicts(audit.found),
        blocks.Bullets(words.HOW_TO_READ),
    ]
    yield blocks.Section(words.heading(audit), opening, depth=1)
    alt = "Names sorted by their relevance, coloured by group, and the distribution of each group"
    image = blocks.ImageFile("names", alt, "svg", svg_bytes(audit_figure(audit)))
    for number, (title, findings) in enumerate(audit.parts()):
        picture = [blocks.ImageRow("Every name, and every group", (image,))] if not number else []
        yield blocks.Section(title, [*(_verdicts(findings) if number else []), *_tables(findings), *picture])
    most, least = audit.found.extremes()
    yield blocks.Section("Most relevant names", list(_examples(most, audit.examples[: len(most)])))
    yield blocks.Section("Least relevant names", list(_examples(least, audit.examples[len(most) :])))


def _verdicts(findings: Findings) -> Iterator[blocks.ReportBlock]:
    yield from (blocks.Paragraph(f"{verdict}.") for verdict in words.verdicts(findings))


def _tables(findings: Findings) -> Iterator[blocks.ReportBlock]:
    for level, summaries in findings.summaries.items():
        note = " (the numbers that count)" if level == PRIMARY else ""
        rows = [words.summary_cells(one) for one in summaries]
        yield _table(f"Relevance by group, over {level}{note}", words.SUMMARY_HEAD, rows)
    rows = list(words.comparison_cells(findings))
    if rows:
        yield _table("Tests and effect sizes", words.COMPARISON_HEAD, rows)


def _table(caption: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> blocks.TableBlock:
    columns = tuple(blocks.TableColumn(name) for name in head[1:])
    return blocks.TableBlock(
        caption, head[0], columns, tuple(blocks.TableRow(row[0], tuple(map(blocks.TableCell, row[1:]))) for row in rows)
    )


def _examples(names: Sequence[Ranked], explained: Sequence[Explanation]) -> Iterator[blocks.ReportBlock]:
    """Coloured sentences, each with its name as the title."""
    drawn = []
    for name, one in zip(names, explained, strict=True):
        mentions = f"{name.count} mention{'s' if name.count > 1 else ''}"
        title = f"{name.name} {words.signed_number(name.relevance)} ({name.group}, {mentions})"
        drawn.append(replace(only_drawing(one.words().without_special(), Heatmap), method=title))
    if drawn:
        yield blocks.Heatmaps("names", "Each with the sentence whose relevance is nearest to its mean", tuple(drawn))
