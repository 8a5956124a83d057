"""`NameAudit`: the result of an audit, to be shown, drawn and saved."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from relprop.audit.findings import AuditFindings, Mention, Ranked
from relprop.audit.statistics import Comparison, GroupSummary, Interval
from relprop.errors import InputError
from relprop.explanation import FIGURES
from relprop.files import check_writable, write_text, writing

TABLES = ("mentions", "ranking", "summary")
ENDINGS = (".html", ".csv", *FIGURES)


@dataclass(frozen=True)
class NameAudit(AuditFindings):
    """The relevance of groups of names in a corpus; printed, it is a table."""

    def show(self) -> None:
        """Print the tables to the terminal."""
        from rich.console import Console

        from relprop.audit.terminal import terminal

        Console().print(terminal(self))

    def __str__(self) -> str:
        from rich.console import Console

        from relprop.audit.terminal import terminal

        console = Console(file=io.StringIO(), width=100, color_system=None)
        with console.capture() as caught:
            console.print(terminal(self))
        return "\n".join(line.rstrip() for line in caught.get().splitlines())

    def to_html(self) -> str:
        """A self-contained page."""
        from relprop.audit.page import audit_page

        return audit_page(self)

    def to_csv(self, table: str = TABLES[0]) -> str:
        """A table as CSV: "mentions" with their sentences, the "ranking" of names, or the "summary" of all numbers."""
        if table not in TABLES:
            raise InputError(f'there is no table "{table}": it is {", ".join(TABLES[:-1])} or {TABLES[-1]}')
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(_table(self, table))
        return text.getvalue()

    def save(self, path: str | os.PathLike[str], table: str = TABLES[0]) -> None:
        """Write .html, .csv (one of the tables), .png, .svg or .pdf. A file is replaced whole or not at all."""
        path = Path(path)
        check_writable(path, ENDINGS)
        with writing(path):
            if path.suffix.lower() in FIGURES:
                from relprop.audit.figure import audit_figure
                from relprop.render import saving

                saving.write(audit_figure(self), path)
            else:
                write_text(path, self.to_html() if path.suffix.lower() == ".html" else self.to_csv(table))


def _table(audit: AuditFindings, table: str) -> Iterator[Sequence[object]]:
    if table == "mentions":
        yield [field.name for field in fields(Mention)]
        yield from ([getattr(one, field.name) for field in fields(Mention)] for one in audit.found.mentions)
    elif table == "ranking":
        yield [field.name for field in fields(Ranked)]
        yield from ([one.name, one.group, one.count, one.relevance] for one in audit.found.ranking())
    else:
        yield ["part", "level", "group", "against", "measure", "value"]
        for part, findings in audit.parts():
            for level, summaries in findings.summaries.items():
                for one in summaries:
                    yield from ([part, level, one.group, "", *line] for line in _measures(one))
                for pair in findings.comparisons[level]:
                    yield from ([part, level, pair.first, pair.second, *line] for line in _measures(pair))


def _measures(one: GroupSummary | Comparison) -> Iterator[tuple[str, float]]:
    for field in fields(one):
        value = getattr(one, field.name)
        if isinstance(value, Interval):
            yield from ((f"{field.name}_{end}", number) for end, number in value._asdict().items())
        elif isinstance(value, float | int):
            yield field.name, value
