"""Put the numbers of runs into the tables of the documentation.

    python tools/result_tables.py build/runs/*

A comment above a table of a page says what its columns are; they are filled from left to right:

    <!-- numbers RUN | TASK / TASK ... | METRIC / METRIC ... | DECIMALS; RUN | ... -->
    <!-- ours RUN | TASK / TASK ... | METRIC / METRIC ... | DECIMALS; RUN | ... -->
    <!-- leads of METHOD: RUN | TASK / TASK ... | METRIC / METRIC ... | DECIMALS; RUN | ... -->

The label of a row's method stands in backticks in its first cell. "numbers" have the paper's beside them, where the
suite knows it, and "ours" do not; leads are of METHOD over the row's method, paired over the examples, + is better,
with their 95 % interval. A number in brackets at the end of a column's head is its number of examples. Columns of what
was not measured, and tables of runs that were not named, stay.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from relprop.bench.report import read_results
from relprop.bench.report.comparison import PaperComparison, compare
from relprop.bench.report.results import Results
from relprop.bench.suites import Table
from relprop.errors import InputError

PAGES = Path(__file__).parent.parent / "docs"
MARK = re.compile(r"<!-- (?P<shown>numbers|ours|leads of (?P<leader>[^:]+):) (?P<columns>.+) -->")
COUNT = re.compile(r" \([\d,]+\)$")
Shown = Callable[[PaperComparison, str, int], str]  # a method's number in a column, with so many decimals
LABEL = re.compile(r"`([^`]+)`")


class Column(NamedTuple):
    run: str
    task: str
    metric: str
    decimals: int


def columns_of(text: str) -> Iterator[Column]:
    """The columns that a mark names: in each group all metrics of the first task, then of the next."""
    for group in text.split(";"):
        try:
            run, tasks, metrics, decimals = (part.strip() for part in group.split("|"))
            for task, metric in product(tasks.split(" / "), metrics.split(" / ")):
                yield Column(run, task.strip(), metric.strip(), int(decimals))
        except ValueError:
            raise InputError(f'"{group.strip()}" is not RUN | TASKS | METRICS | DECIMALS') from None


def filled(page: str, runs: Mapping[str, Results]) -> str:
    """A page with the numbers of these runs in its marked tables."""
    lines = page.split("\n")
    for at, line in enumerate(lines):
        mark = MARK.fullmatch(line)
        if mark is None:
            continue
        columns = list(columns_of(mark["columns"]))
        if not all(column.run in runs for column in columns):
            continue
        start = next(i for i in range(at, len(lines)) if lines[i].startswith("|"))
        end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
        lines[start:end] = _table(lines[start:end], columns, runs, _shown(mark))
    return "\n".join(lines)


def _table(lines: list[str], columns: list[Column], runs: Mapping[str, Results], shown: Shown) -> list[str]:
    head, _, *rows = lines
    names = _cells(head)
    if len(names) != len(columns) + 1:
        raise InputError(f'the table "{head}" has {len(names) - 1} columns, and its mark names {len(columns)}')
    compared = [_comparison(runs[column.run], column) for column in columns]
    heads = [
        COUNT.sub(f" ({one.examples:,})", name) if one is not None else name
        for name, one in zip(names[1:], compared, strict=True)
    ]
    made = [_line([names[0], *heads]), f"|{'---|' * len(names)}"]
    for row in rows:
        name, *before = _cells(row)
        found = LABEL.search(name)
        if found is None:
            raise InputError(f'the row "{row}" names no method in backticks')
        before += [""] * (len(columns) - len(before))
        texts = [
            old if one is None else shown(one, found[1], column.decimals)
            for old, one, column in zip(before, compared, columns, strict=True)
        ]
        made.append(_line([name, *texts]))
    return made


def _comparison(results: Results, column: Column) -> PaperComparison | None:
    """The column by the suite's own table of the metric, which knows the published numbers; None: nothing yet."""
    if column.task not in {task.name for task in results.suite.tasks}:
        raise InputError(f'"{column.run}" has no task "{column.task}"')
    tables = [one for one in results.suite.tables if one.metric == column.metric]
    table = next((one for one in tables if not one.tasks or column.task in one.tasks), Table("", column.metric))
    return compare(results, table, column.task) if column.task in results.tasks else None


def _shown(mark: re.Match[str]) -> Shown:
    if mark["leader"]:
        return partial(_lead, mark["leader"])
    return _ours if mark["shown"] == "ours" else _beside_the_papers


def _ours(one: PaperComparison, label: str, decimals: int) -> str:
    return f"{one.ours[label].value:.{decimals}f}" if label in one.ours else ""


def _beside_the_papers(one: PaperComparison, label: str, decimals: int) -> str:
    paper = f" ({float(one.paper[label]):.{decimals}f})" if label in one.paper else ""
    return _ours(one, label, decimals) + paper


def _lead(leader: str, one: PaperComparison, label: str, decimals: int) -> str:
    lead = one.leads(leader).get(label)
    if lead is None:
        return ""
    low, high = lead.interval()
    return f"{lead.value:+.{decimals}f} ({low:+.{decimals}f} to {high:+.{decimals}f})"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _line(cells: list[str]) -> str:
    return "|".join(["", *(f" {cell} " if cell else " " for cell in cells), ""])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="Folders of `relprop bench run`, each named as its suite.")
    parser.add_argument("--pages", type=Path, default=PAGES)
    args = parser.parse_args(arguments)
    runs = {run.name: read_results(run) for run in args.runs if (run / "results.sqlite").is_file()}
    for page in sorted(args.pages.rglob("*.md")):
        old = page.read_text(encoding="utf-8")
        new = filled(old, runs)
        if new != old:
            page.write_text(new, encoding="utf-8")
            print(page.relative_to(args.pages))


if __name__ == "__main__":
    main()
