"""The report's tables: scores beside published ones, what the methods cost, what was run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from relprop.bench.report.blocks import Block, Bullets, Cell, Column, Grid, Line, Text
from relprop.bench.report.comparing import Compared, compared, shown_tasks
from relprop.bench.report.estimates import SHARE, Estimate, statistic_of
from relprop.bench.report.results import CEILING, REFERENCES, Results
from relprop.bench.suites import Table
from relprop.metrics import METRICS

_EXPLAINED = {"answers": "answer"}  # by kind of task; the others explain classes
_REFERENCES = ("gradient", "gradient_x_input")  # what a method's cost is told in, the first that was run


def wanted(results: Results) -> list[Table]:
    """The suite's tables, and one for every other metric that was measured."""
    others = [name for name in dict.fromkeys([*results.metrics, *METRICS]) if _measured(results, name)]
    shown = {table.metric for table in results.suite.tables}
    return [*results.suite.tables, *(_plain(name) for name in others if name not in shown)]


def _measured(results: Results, metric: str) -> bool:
    each = [columns for measured in results.tasks.values() for columns in measured.scores.values()]
    return any(statistic_of(metric, columns) is not None for columns in each)


def _plain(metric: str) -> Table:
    about = METRICS.get(metric)
    said = f": {about.meaning} ({about.citation}); {about.better} is better" if about else ""
    return Table(f"{metric}{said}", metric)


def score_tables(results: Results, shown: Sequence[Table]) -> Iterator[Block]:
    """How to read them, then one after the other."""
    if not shown:
        return
    beside = "; those of the paper are beside them" if any(table.published for table in shown) else ""
    yield Text(
        f"Numbers are ours ± half of the {100 * SHARE:.0f} % bootstrap interval over the examples, whose count stands "
        f"in brackets{beside}. The best of each column is bold."
    )
    for table in shown:
        yield from score_table(results, table)


def score_table(results: Results, table: Table) -> Iterator[Block]:
    """The numbers, and under them what must be known to read them."""
    columns = [one for one in (compared(results, table, task) for task in shown_tasks(results, table)) if one.ours]
    if not columns:
        yield Text(f"{table.title}: nothing was measured yet.", soft=True)
        return
    yield _grid(results, table, columns)
    notes = [*([table.note] if table.note else []), *_notes(results, columns)]
    if notes:
        yield Text(" ".join(notes), soft=True)
    order = [sentence for column in columns for sentence in _order(results, column, _decimals(columns))]
    if order:
        yield Bullets(tuple(order))
    if any(column.leads(table.lead) for column in columns):
        yield _lead_grid(results, table, columns)


def _lead_grid(results: Results, table: Table, columns: Sequence[Compared]) -> Grid:
    """One method against each of the others, over the same examples; bold where chance does not explain it."""
    decimals = _decimals(columns)
    every = {column.task: column.leads(table.lead) for column in columns}
    labels = [one.label for one in results.suite.methods if any(one.label in own for own in every.values())]
    heads: list[Column] = []
    cells: dict[str, list[Cell]] = {label: [] for label in labels}
    for column in columns:
        own = every[column.task]
        heads.append(Column(column.task))
        clear = {label for label, one in own.items() if one.interval()[0] > 0 or one.interval()[1] < 0}
        _fill(cells, {label: _spread(one, decimals) for label, one in own.items()}, clear)
    name = results.printed(table.lead)
    caption = f"{table.title}: how far {name} is ahead of each, paired; bold where the interval leaves out 0"
    return Grid(caption, "method", tuple(heads), tuple(_line(results, label, cells[label]) for label in labels))


def _spread(one: Estimate, decimals: int) -> str:
    low, high = one.interval()
    return f"{one.value:+.{decimals}f} ({low:+.{decimals}f} to {high:+.{decimals}f})"


def _grid(results: Results, table: Table, columns: Sequence[Compared]) -> Grid:
    decimals = _decimals(columns)
    labels = [one.label for one in results.suite.methods if any(one.label in column.ours for column in columns)]
    labels += [label for label in REFERENCES if any(label in column.ours for column in columns)]
    heads: list[Column] = []
    cells: dict[str, list[Cell]] = {label: [] for label in labels}
    several = any(column.shares or column.paper for column in columns)
    for column in columns:
        group = f"{column.task} ({column.examples})"
        heads.append(Column("ours", group) if several else Column(group))
        _fill(cells, {label: number(one, decimals) for label, one in column.ours.items()}, _best(column, decimals))
        if column.shares:
            heads.append(Column("of possible", group))
            _fill(cells, {label: number(one.times(100), 0, " %") for label, one in column.shares.items()}, set())
        if column.paper:
            heads.append(Column("paper", group, soft=True))
            _fill(cells, {label: str(one) for label, one in column.paper.items()}, _best_printed(column), soft=True)
    lines = tuple(_line(results, label, cells[label]) for label in labels)
    return Grid(table.title, "method", tuple(heads), lines)


def _fill(cells: Mapping[str, list[Cell]], found: Mapping[str, str], best: set[str], soft: bool = False) -> None:
    """One column: a cell a method, empty where there is nothing."""
    for label, own in cells.items():
        own.append(Cell(found.get(label, ""), label in best, soft))


def _line(results: Results, label: str, cells: Sequence[Cell]) -> Line:
    printed = results.printed(label)
    return Line(printed, tuple(cells), label if printed != label else "", label in REFERENCES)


def _best(column: Compared, decimals: int) -> set[str]:
    """Those that read as the best number; the ceiling does not compete."""
    if not column.better or not column.methods:
        return set()
    values = {label: column.ours[label].value for label in column.methods}
    top = (max if column.better == "higher" else min)(values.values())
    return {label for label, value in values.items() if f"{value:.{decimals}f}" == f"{top:.{decimals}f}"}


def _best_printed(column: Compared) -> set[str]:
    if not column.better:
        return set()
    top = (max if column.better == "higher" else min)(one.value for one in column.paper.values())
    return {label for label, one in column.paper.items() if one.value == top}


def _decimals(columns: Sequence[Compared]) -> int:
    """As many as the paper prints, else what the size of the numbers asks for."""
    printed = [one.decimals for column in columns for one in column.paper.values()]
    if printed:
        return max(printed)
    largest = max(abs(one.value) for column in columns for one in column.ours.values())
    return 3 if largest < 10 else 2 if largest < 100 else 1


def number(one: Estimate, decimals: int, unit: str = "") -> str:
    around = f" ± {one.half_width:.{decimals}f}" if one.half_width else ""
    return f"{one.value + 0.0:.{decimals}f}{around}{unit}"


def _notes(results: Results, columns: Sequence[Compared]) -> Iterator[str]:
    limited = [column for column in columns if column.shares]
    if limited:
        known = ", ".join(f"{column.known[CEILING]} of {column.examples} ({column.task})" for column in limited)
        yield (
            f'"{CEILING}" is the best order that a search with the metric itself finds, and "of possible" how far a '
            f"method is from random (0 %) to it (100 %). It is known for {known} examples, the shortest: shares are "
            "over these alone."
        )
    for column in columns:
        few = [f"{results.printed(label)} {column.known[label]}" for label in column.methods if _partly(column, label)]
        if few:
            yield f"{column.task}: not all {column.examples} examples have a number: {', '.join(few)}."


def _partly(column: Compared, label: str) -> bool:
    return column.known[label] < column.examples


def _order(results: Results, column: Compared, decimals: int) -> Iterator[str]:
    """Does the paper's order hold here?"""
    agreement = column.agreement()
    if agreement is None:
        return
    both = sum(label in column.paper for label in column.methods)
    parts = []
    for one in column.reversals():
        low, high = sorted(abs(bound) for bound in one.lead.interval())
        lead = f"{abs(one.lead.value):.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"
        parts.append(f"{results.printed(one.second)} is ahead of {results.printed(one.first)} by {lead}")
    said = f"the other way round than in the paper, {'; '.join(parts)}" if parts else "no pair is clearly reversed"
    yield f"{column.task}: rank correlation with the paper's order {agreement:.2f} over {both} methods; {said}."


def cost_table(results: Results) -> Iterator[Block]:
    """Seconds by method, told in those of a gradient."""
    timed = {task: measured for task, measured in results.tasks.items() if any(measured.seconds.values())}
    if not timed:
        return
    reference = _reference(results)
    labels = [one.label for one in results.suite.methods if any(one.label in m.seconds for m in timed.values())]
    labels += [CEILING] if any(CEILING in measured.seconds for measured in timed.values()) else []
    heads: list[Column] = []
    cells: dict[str, list[Cell]] = {label: [] for label in labels}
    for task, measured in timed.items():
        seconds = {label: spent for label, spent in measured.seconds.items() if spent > 0}
        heads.append(Column("examples/s", task))
        _fill(cells, {label: f"{len(measured.examples) / spent:.1f}" for label, spent in seconds.items()}, set())
        if reference in seconds:
            heads.append(Column(f"× {results.printed(reference)}", task))
            _fill(cells, {label: f"{spent / seconds[reference]:.2f}" for label, spent in seconds.items()}, set())
    lines = tuple(_line(results, label, cells[label]) for label in labels)
    yield Grid("What the methods cost", "method", tuple(heads), lines)
    told = f', and in units of "{results.printed(reference)}" on the same examples' if reference else ""
    yield Text(f"The time of the explanations alone, without that of the metrics{told}.", soft=True)


def _reference(results: Results) -> str:
    return next((one.label for name in _REFERENCES for one in results.suite.methods if one.method == name), "")


def task_table(results: Results) -> Grid:
    """What was run: which model on what, and how good it is. A column that no task has a word for is left out."""
    names = ("model", "accuracy", "data", "split", "examples", "explained", "what is hidden becomes")
    lines = []
    for task in results.suite.tasks:
        measured = results.tasks.get(task.name)
        accuracy = results.models.get(task.model, {}).get("accuracy", {}).get(task.split)
        about = (
            task.model,
            "" if accuracy is None else f"{100 * accuracy:.1f} %",
            task.data or plain(task.options),
            task.split,
            str(len(measured.examples) if measured else 0),
            {"label": "true ", "predicted": "predicted "}[task.explain] + _EXPLAINED.get(task.kind, "class")
            if task.kind != "heads"
            else "",
            task.replacement or "nothing" if task.kind == "faithfulness" else "",
        )
        lines.append((task.name, about))
    told = [i for i in range(len(names)) if any(about[i] for _, about in lines)]
    shown = tuple(Line(name, tuple(Cell(about[i]) for i in told)) for name, about in lines)
    return Grid("Tasks", "task", tuple(Column(names[i]) for i in told), shown, numbers=False)


def facts_table(caption: str, facts: Mapping[str, Any]) -> Grid:
    """Names and values; what is itself a table is written in one line."""
    lines = tuple(Line(name, (Cell(plain(value)),)) for name, value in facts.items())
    return Grid(caption, "", (Column(""),), lines, numbers=False)


def plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return str(value)
