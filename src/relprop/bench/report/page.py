"""From results to the report: which sections there are, and its two files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relprop.bench.report import exhibits, figures, tables
from relprop.bench.report.blocks import Block, Code, Section, Text
from relprop.bench.report.html import html
from relprop.bench.report.markdown import FIGURES, Files, markdown
from relprop.bench.report.results import Results
from relprop.errors import RelpropError
from relprop.explanation import write_text
from relprop.render.text.layout import SCALE_NOTE


def write_report(results: Results, folder: Path) -> list[Path]:
    """`report.html`, alone or mailed around; `report.md`, with its figures beside it."""
    parts = list(sections(results))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = Files(folder / FIGURES)
        written = {folder / "report.html": html(parts), folder / "report.md": markdown(parts, files)}
        for path, text in written.items():
            write_text(path, text)
    except OSError as error:
        raise RelpropError(f'the report cannot be written to "{folder}": {error.strerror or error}') from error
    return [*written, *files.written]


def sections(results: Results) -> Iterator[Section]:
    """In the order of a reader's questions: what came out, what it looks like, what it cost, how to get it again."""
    shown = tables.wanted(results)
    yield Section(results.suite.title or results.suite.name, list(_opening(results)), depth=1)
    found: dict[str, list[Any]] = {
        "Results": list(tables.score_tables(results, shown)),
        "Over a setting": list(figures.along_lines(results, shown)),
        "Curves": list(figures.curves(results)),
        "Conservation": list(_conservation(results)),
        "Heat maps": list(_heatmaps(results)),
        "Heads": list(exhibits.heads(results)),
        "Pictures": list(exhibits.pictures(results)),
        "Cost": list(tables.cost_table(results)),
        "What failed": list(_failures(results)),
        "How this was made": list(_made(results)),
    }
    yield from (Section(heading, blocks) for heading, blocks in found.items() if blocks)


def _opening(results: Results) -> Iterator[Block]:
    if results.suite.about:
        yield Text(results.suite.about)
    if results.failures or results.left:
        said = f"{len(results.failures)} parts of the work failed and {results.left} are still to be done"
        yield Text(f"This run is not complete: {said}. The numbers are of what is done.")
    yield tables.task_table(results)


def _conservation(results: Results) -> Iterator[Block]:
    found = list(figures.conservation(results))
    if found:
        yield Text("A point an example. On the dashed line the scores add up to the output: relevance is conserved.")
        yield from found


def _heatmaps(results: Results) -> Iterator[Block]:
    found = list(exhibits.texts(results))
    if found:
        yield Text(
            f"Red supports, blue opposes; {SCALE_NOTE}. Special tokens are left out, also of the sums. "
            "In a difference, red is where the first method sees more."
        )
        yield from found


def _failures(results: Results) -> Iterator[Block]:
    for row in results.failures:
        places = ", ".join(map(str, row.spec.get("places", [])))
        yield Text(f"{row.spec['task']['name']}, examples {places}: tried {row.failures} times, in vain.")
        yield Code(row.error or "no error was noted")


def _made(results: Results) -> Iterator[Block]:
    if results.command:
        yield Code(results.command)
    about = {"seed": results.suite.seed, "seconds of work": f"{results.seconds:.0f}"}
    yield tables.facts_table("Environment", {**results.environment, **about})
    for name, facts in results.models.items():
        yield tables.facts_table(f"Model {name}", facts)
