"""The report's tables: scores beside published ones, what the methods cost, what was run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from relprop.bench.report.blocks import Bullets, Paragraph, ReportBlock, TableBlock, TableCell, TableColumn, TableRow
from relprop.bench.report.comparison import PaperComparison, compare, shown_tasks
from relprop.bench.report.metric_statistics import metric_statistic
from relprop.bench.report.published import printed_decimals
from relprop.bench.report.results import CEILING, REFERENCES, Results
from relprop.bench.suites import Table
from relprop.bootstrap import LEVEL, Estimate
from relprop.metrics import METRICS

_EXPLAINED = {"answers": "answer"}  # by kind of task; the other kinds explain classes
_COST_UNITS = ("gradient", "gradient_x_input")  # costs are given in units of the first of these that was run


class MethodColumn(NamedTuple):
    """A column of a table with one row per method: texts by method label, and the labels whose text is bold."""

    head: TableColumn
    texts: Mapping[str, str]
    bold: Collection[str] = ()


def method_table(results: Results, caption: str, columns: Sequence[MethodColumn]) -> TableBlock:
    """The methods of any column in the order of the suite, then the references; empty cells where a text is missing."""
    rows = []
    for label in (*(one.label for one in results.suite.methods), *REFERENCES):
        if any(label in column.texts for column in columns):
            cells = (TableCell(one.texts.get(label, ""), label in one.bold, one.head.soft) for one in columns)
            printed = results.printed(label)
            rows.append(TableRow(printed, tuple(cells), label if printed != label else "", label in REFERENCES))
    return TableBlock(caption, "method", tuple(one.head for one in columns), tuple(rows))


def tables_to_show(results: Results) -> list[Table]:
    """The suite's tables, and one for every other metric that was measured."""
    shown = {table.metric for table in results.suite.tables}
    columns = [own for measurements in results.tasks.values() for own in measurements.scores.values()]
    others = [metric for metric in dict.fromkeys([*results.metrics, *METRICS]) if metric not in shown]
    measured = [metric for metric in others if any(metric_statistic(metric, own) is not None for own in columns)]
    return [*results.suite.tables, *map(_default_table, measured)]


def _default_table(metric: str) -> Table:
    about = METRICS.get(metric)
    said = f": {about.meaning} ({about.citation}); {about.better} is better" if about else ""
    return Table(f"{metric}{said}", metric)


def score_tables(results: Results, shown: Sequence[Table]) -> Iterator[ReportBlock]:
    """How to read the tables, then one after the other."""
    if not shown:
        return
    beside = "; those of the paper are beside them" if any(table.published for table in shown) else ""
    yield Paragraph(
        f"Numbers are ours ± half of the {100 * LEVEL:.0f} % bootstrap interval over the examples, whose count is "
        f"given in brackets{beside}. The best of each column is bold."
    )
    for table in shown:
        yield from score_table(results, table)


def score_table(results: Results, table: Table) -> Iterator[ReportBlock]:
    """The numbers, and below them what is needed to read them."""
    columns = [one for one in (compare(results, table, task) for task in shown_tasks(results, table)) if one.ours]
    if not columns:
        yield Paragraph(f"{table.title}: nothing was measured yet.", soft=True)
        return
    decimals = _decimals(columns)
    yield method_table(results, table.title, list(_score_columns(columns, decimals)))
    notes = [*([table.note] if table.note else []), *_notes(results, columns)]
    if notes:
        yield Paragraph(" ".join(notes), soft=True)
    order = [sentence for column in columns for sentence in _order(results, column, decimals)]
    if order:
        yield Bullets(tuple(order))
    leads = {column.task: column.leads(table.lead) for column in columns}
    if any(leads.values()):
        name = results.printed(table.lead)
        caption = f"{table.title}: how far {name} is ahead of each, paired; bold where the interval leaves out 0"
        yield method_table(results, caption, [_lead_column(task, own, decimals) for task, own in leads.items()])


def _score_columns(columns: Sequence[PaperComparison], decimals: int) -> Iterator[MethodColumn]:
    several = any(column.shares or column.paper for column in columns)
    for column in columns:
        group = f"{column.task} ({column.examples})"
        head = TableColumn("ours", group) if several else TableColumn(group)
        ours = {label: with_uncertainty(one, decimals) for label, one in column.ours.items()}
        values = {label: round(column.ours[label].value, decimals) for label in column.methods}
        yield MethodColumn(head, ours, _best(column, values))
        if column.shares:
            texts = {label: with_uncertainty(one.times(100), 0, " %") for label, one in column.shares.items()}
            yield MethodColumn(TableColumn("of possible", group), texts)
        if column.paper:
            texts = {label: str(one) for label, one in column.paper.items()}
            best = _best(column, {label: float(one) for label, one in column.paper.items()})
            yield MethodColumn(TableColumn("paper", group, soft=True), texts, best)


def _best(column: PaperComparison, values: Mapping[str, float]) -> list[str]:
    """The labels with the best value, if the metric has a better direction."""
    if not column.better or not values:
        return []
    top = (max if column.better == "higher" else min)(values.values())
    return [label for label, value in values.items() if value == top]


def _lead_column(task: str, leads: Mapping[str, Estimate], decimals: int) -> MethodColumn:
    """One method against each of the others, over the same examples; bold where chance does not explain it."""
    texts = {}
    for label, one in leads.items():
        low, high = one.interval()
        texts[label] = f"{one.value:+.{decimals}f} ({low:+.{decimals}f} to {high:+.{decimals}f})"
    clear = [label for label, one in leads.items() if one.interval()[0] > 0 or one.interval()[1] < 0]
    return MethodColumn(TableColumn(task), texts, clear)


def _decimals(columns: Sequence[PaperComparison]) -> int:
    """As many as the paper prints, else according to the size of the numbers."""
    printed = [printed_decimals(one) for column in columns for one in column.paper.values()]
    if printed:
        return max(printed)
    largest = max(abs(one.value) for column in columns for one in column.ours.values())
    return 3 if largest < 10 else 2 if largest < 100 else 1


def with_uncertainty(one: Estimate, decimals: int, unit: str = "") -> str:
    around = f" ± {one.half_width:.{decimals}f}" if one.half_width else ""
    return f"{one.value + 0.0:.{decimals}f}{around}{unit}"


def _notes(results: Results, columns: Sequence[PaperComparison]) -> Iterator[str]:
    limited = [column for column in columns if column.shares]
    if limited:
        known = ", ".join(f"{column.known[CEILING]} of {column.examples} ({column.task})" for column in limited)
        yield (
            f'"{CEILING}" is the best order that a search with the metric itself finds, and "of possible" how far a '
            f"method is from random (0 %) to it (100 %). It is known for {known} examples, the shortest: shares are "
            "over these alone."
        )
    for column in columns:
        partly = [label for label in column.methods if column.known[label] < column.examples]
        counted = {column.known[label] for label in column.methods}
        if partly and len(counted) == 1:
            yield f"{column.task}: {counted.pop()} of {column.examples} examples have a number."
        elif partly:
            counts = ", ".join(f"{results.printed(label)} {column.known[label]}" for label in partly)
            yield f"{column.task}: not all {column.examples} examples have a number: {counts}."


def _order(results: Results, column: PaperComparison, decimals: int) -> Iterator[str]:
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


def cost_table(results: Results) -> Iterator[ReportBlock]:
    """Examples per second by method, and the time in units of a gradient's."""
    unit = next((one.label for name in _COST_UNITS for one in results.suite.methods if one.method == name), "")
    columns = []
    for task, measurements in results.tasks.items():
        seconds = {label: spent for label, spent in measurements.seconds.items() if spent > 0}
        if seconds:
            rates = {label: f"{len(measurements.examples) / spent:.1f}" for label, spent in seconds.items()}
            columns.append(MethodColumn(TableColumn("examples/s", task), rates))
        if unit in seconds:
            ratios = {label: f"{spent / seconds[unit]:.2f}" for label, spent in seconds.items()}
            columns.append(MethodColumn(TableColumn(f"× {results.printed(unit)}", task), ratios))
    if columns:
        yield method_table(results, "What the methods cost", columns)
        compared = f', and in units of "{results.printed(unit)}" on the same examples' if unit else ""
        yield Paragraph(f"The time of the explanations alone, without that of the metrics{compared}.", soft=True)


def task_table(results: Results) -> TableBlock:
    """Which model was run on which data, and how accurate it is. Columns that are empty for all tasks are left out."""
    names = ("model", "accuracy", "data", "split", "examples", "explained", "what is hidden becomes")
    table = {}
    for task in results.suite.tasks:
        measurements = results.tasks.get(task.name)
        accuracy = results.models.get(task.model, {}).get("accuracy", {}).get(task.split)
        explained = f"{task.explain.replace('label', 'true')} {_EXPLAINED.get(task.kind, 'class')}"
        table[task.name] = (
            task.model,
            "" if accuracy is None else f"{100 * accuracy:.1f} %",
            task.data or one_line(task.options),
            task.split,
            str(len(measurements.examples) if measurements else 0),
            explained if task.kind != "heads" else "",
            task.replacement or "nothing" if task.kind == "faithfulness" else "",
        )
    filled = [i for i in range(len(names)) if any(cells[i] for cells in table.values())]
    rows = (TableRow(name, tuple(TableCell(cells[i]) for i in filled)) for name, cells in table.items())
    return TableBlock("Tasks", "task", tuple(TableColumn(names[i]) for i in filled), tuple(rows), numbers=False)


def facts_table(caption: str, facts: Mapping[str, object]) -> TableBlock:
    """Names and values; a value that is itself a table is written in one line."""
    rows = tuple(TableRow(name, (TableCell(one_line(value)),)) for name, value in facts.items())
    return TableBlock(caption, "", (TableColumn(""),), rows, numbers=False)


def one_line(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one_line(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(one_line, value))
    return str(value)
