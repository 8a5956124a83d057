"""From results to the report: its sections and its two files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from relprop.bench.report import exhibits, figures, tables
from relprop.bench.report.blocks import Code, Paragraph, ReportBlock, Section
from relprop.bench.report.html import html
from relprop.bench.report.markdown import FIGURES, FigureFolder, markdown
from relprop.bench.report.results import Results
from relprop.errors import RelpropError
from relprop.files import write_text
from relprop.render.text.layout import SCALE_NOTE


def write_report(results: Results, folder: Path) -> list[Path]:
    """`report.html`, a single file; `report.md`, with its figures beside it."""
    parts = list(report_sections(results))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        images = FigureFolder(folder / FIGURES)
        written = {folder / "report.html": html(parts), folder / "report.md": markdown(parts, images)}
        for path, text in written.items():
            write_text(path, text)
    except OSError as error:
        reason = f"{error.strerror or error}; --out names another folder"
        raise RelpropError(f'the report cannot be written to "{folder}": {reason}') from error
    return [*written, *images.written]


def report_sections(results: Results) -> Iterator[Section]:
    """In the order of a reader's questions: the numbers, how they look, what they cost, how to reproduce them."""
    shown = tables.tables_to_show(results)
    yield Section(results.suite.title or results.suite.name, list(_opening(results)), depth=1)
    contents: dict[str, Sequence[ReportBlock]] = {
        "Results": list(tables.score_tables(results, shown)),
        "Over a setting": list(figures.along_lines(results, shown)),
        "Curves": list(figures.curves(results)),
        "Conservation": list(_conservation(results)),
        "Heat maps": list(_heatmaps(results)),
        "Heads": list(exhibits.head_figures(results)),
        "Pictures": list(exhibits.image_rows(results)),
        "Cost": list(tables.cost_table(results)),
        "What failed": list(_failures(results)),
        "How this was made": list(_provenance(results)),
    }
    yield from (Section(heading, blocks) for heading, blocks in contents.items() if blocks)


def _opening(results: Results) -> Iterator[ReportBlock]:
    if results.suite.about:
        yield Paragraph(results.suite.about)
    if results.failures or results.left or results.not_begun:
        said = f"{len(results.failures)} parts of the work failed and {results.left} are still to be done"
        tasks = f", and there is nothing yet of {'; '.join(results.not_begun)}" if results.not_begun else ""
        yield Paragraph(f"This run is not complete: {said}{tasks}. The numbers cover what is done.")
    yield tables.task_table(results)


def _conservation(results: Results) -> Iterator[ReportBlock]:
    plots = list(figures.conservation(results))
    if plots:
        yield Paragraph(
            "One point per example. On the dashed line the scores add up to the output: relevance is conserved."
        )
        yield from plots


def _heatmaps(results: Results) -> Iterator[ReportBlock]:
    heatmaps = list(exhibits.heatmaps(results))
    if heatmaps:
        yield Paragraph(
            f"Red supports, blue opposes; {SCALE_NOTE}. Special tokens are left out, also of the sums. "
            "In a difference, red is where the first method sees more."
        )
        yield from heatmaps


def _failures(results: Results) -> Iterator[ReportBlock]:
    for one in results.failures:
        places = ", ".join(map(str, one.spec.get("places", [])))
        yield Paragraph(f"{one.spec['task']['name']}, examples {places}: failed {one.failures} times.")
        yield Code(one.error or "no error was recorded")


def _provenance(results: Results) -> Iterator[ReportBlock]:
    if results.command:
        yield Code(results.command)
    about = {"seed": results.suite.seed, "seconds of work": f"{results.seconds:.0f}"}
    if results.fingerprint:
        about["fingerprint of the numbers"] = results.fingerprint
    yield tables.facts_table("Environment", {**results.environment, **about})
    for name, facts in results.models.items():
        yield tables.facts_table(f"Model {name}", facts)
