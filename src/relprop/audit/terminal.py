"""An audit in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from relprop.audit import words
from relprop.audit.findings import PRIMARY, AuditFindings, Findings, Mention, Ranked
from relprop.render.visible import visible

# Columns that fit a terminal of 80; the page and the CSV have all. A single pair of groups needs no column.
SHORT = ("level", "groups", "n", "difference", "p, perm.", "p, ranks", "Cliff's delta")
AROUND = 60  # characters of the sentence shown on each side of a name


def terminal(audit: AuditFindings) -> RenderableType:
    """The groups, the tests, and the names at both ends with a sentence each."""
    parts: list[RenderableType] = [Text(words.heading(audit), style="bold"), Text(" ".join(words.account(audit)))]
    for title, findings in audit.parts():
        parts += [Text(f"\n{title}", style="bold"), *_findings(findings)]
    for title, names in zip(("Most relevant", "Least relevant"), audit.found.extremes(), strict=True):
        parts += [Text(f"\n{title} names", style="bold"), *_names(audit.found, names)]
    return Group(*parts)


def _findings(findings: Findings) -> Iterator[RenderableType]:
    yield _table(words.SUMMARY_HEAD, (words.summary_cells(one) for one in findings.summaries[PRIMARY]), 1)
    rows = [dict(zip(words.COMPARISON_HEAD, cells, strict=True)) for cells in words.comparison_cells(findings)]
    if rows:
        single = len({row["groups"] for row in rows}) == 1
        shown = [name for name in SHORT if not (single and name == "groups")]
        title = f"{rows[0]['groups']}" if single else ""
        yield _table(shown, ([row[name] for name in shown] for row in rows), 2 - single, title)
    yield from (Text(f"{verdict}.", style="italic") for verdict in words.verdicts(findings))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], names: int, title: str = "") -> Table:
    """The first columns are names, the others numbers."""
    columns = [Column(name, justify="left" if i < names else "right") for i, name in enumerate(head)]
    table = Table(
        *columns,
        title=Text(title) if title else None,
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _names(findings: Findings, names: Iterable[Ranked]) -> Iterator[RenderableType]:
    for one in names:
        times = f"{one.count} mention{'s' if one.count > 1 else ''}"
        yield Text.assemble(
            (visible(one.name), "bold"), f"  {words.signed_number(one.relevance)}  {visible(one.group)}, {times}"
        )
        yield Padding(_quoted(findings.example(one)), (0, 0, 0, 2))


def _quoted(mention: Mention) -> Text:
    """The mention in its surroundings."""
    before, after = mention.sentence[: mention.start], mention.sentence[mention.end :]
    left = before if len(before) <= AROUND else f"… {before[-AROUND:].partition(' ')[2]}"
    right = after if len(after) <= AROUND else f"{after[:AROUND].rpartition(' ')[0]} …"
    name = mention.sentence[mention.start : mention.end]
    parts = [(left, "dim"), (name, "bold"), (right, "dim")]
    return Text.assemble(*((visible(part), style) for part, style in parts if part))
