"""`relprop bench`: run a suite, go on with it, see what it gave."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relprop.errors import InputError

if TYPE_CHECKING:
    from relprop.bench.executors import Executor, Outcome
    from relprop.bench.runner import Summary

app = typer.Typer(
    help="Compare methods as the papers do: suites that can be killed and resumed, and a report.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
LOCAL = "local"
_QUIET = 30.0  # seconds between lines where there is no terminal

Workers = Annotated[int | None, typer.Option(min=1, help="Processes of one thread each. Default: one a core.")]
OnRay = Annotated[
    str | None, typer.Option(metavar="[ADDRESS]", help="Work on Ray: a cluster's address, or nothing for a local one.")
]
Tries = Annotated[int, typer.Option(min=1, help="A cell that failed so often is set aside.")]


def with_optional_values(arguments: list[str]) -> list[str]:
    """`--ray` alone means a local cluster."""
    following = [*arguments[1:], "-"]
    return [
        f"--ray={LOCAL}" if one == "--ray" and after.startswith("-") else one
        for one, after in zip(arguments, following, strict=True)
    ]


@app.command()
def run(
    suite: Annotated[str, typer.Argument(help="One of `relprop bench list`, or a .toml file.")],
    out: Annotated[Path, typer.Option(help="The folder for results; the same again goes on with them.")],
    data: Annotated[
        Path | None, typer.Option(help="The folder of the datasets' files. Default: they come from the hub.")
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="So many examples of each dataset.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draws the examples.")] = None,
    workers: Workers = None,
    ray: OnRay = None,
    tries: Tries = 3,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check that every task can be worked on.")] = False,
) -> None:
    """Run a suite. All data and tasks are checked first; models of recipes are trained once and kept."""
    if data is not None and not data.is_dir():
        raise InputError(f'--data "{data}" is no folder')
    from relprop.bench.planning import check, check_room, planned
    from relprop.bench.running import begin, check_folder
    from relprop.bench.suites import read_suite

    read = read_suite(suite, sample, seed)
    check_room(out)
    check_folder(out, read)
    plan = planned(read, data, train=False)
    check(plan, plan.tasks, watch=_checking)
    untrained = [task for task in read.tasks if task not in plan.tasks]
    if dry_run:
        after = f"; after training: {', '.join(task.name for task in untrained)}" if untrained else ""
        _say(f"{len(plan.tasks)} tasks are in order, {len(plan.specs)} cells{after}")
        return
    if untrained:
        with _training() as said:
            plan = planned(read, data, said=said)
        check(plan, untrained, watch=_checking)
    begin(plan, out, shlex.join(["relprop", *sys.argv[1:]]))
    _work(out, _executor(workers, ray), tries, again=False)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="A folder of results.")],
    workers: Workers = None,
    ray: OnRay = None,
    tries: Tries = 3,
    again: Annotated[bool, typer.Option("--again", help="Also try cells that were set aside.")] = False,
) -> None:
    """Go on with a run that was stopped or killed."""
    _work(folder, _executor(workers, ray), tries, again)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder of results.")],
    out: Annotated[Path | None, typer.Option(help="Where the report goes. Default: the same folder.")] = None,
    export: Annotated[Path | None, typer.Option(help="Also write all numbers, as .csv or .parquet.")] = None,
) -> None:
    """Write report.html and report.md: tables beside the papers', curves, heatmaps, costs. Also of a part of a run."""
    from relprop.bench.export import export as write_table
    from relprop.bench.export import fingerprint
    from relprop.bench.report import read_results, write_report

    for path in write_report(read_results(folder), out or folder):
        typer.echo(f"wrote {path}", err=True)
    if export is not None:
        write_table(folder, export)
        typer.echo(f"wrote {export}", err=True)
    typer.echo(f"fingerprint of the numbers: {fingerprint(folder)}")


@app.command(name="list")
def list_(
    folder: Annotated[Path | None, typer.Argument(help="List the runs in this folder instead.")] = None,
) -> None:
    """List the suites that come with relprop, or the runs in a folder and how far they are."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    if folder is None:
        from relprop.bench.suites import read_suite, shipped

        table = Table("suite", "what it measures", "tasks", header_style="bold", box=SIMPLE_HEAD)
        table.columns[0].no_wrap = True
        for name in shipped():
            suite = read_suite(name)
            table.add_row(name, suite.title, ", ".join(task.name for task in suite.tasks))
    else:
        from relprop.bench.running import state
        from relprop.bench.store import FILE

        table = Table("run", "suite", "cells done", "set aside", "left", header_style="bold", box=SIMPLE_HEAD)
        table.columns[0].overflow = table.columns[1].overflow = "fold"
        found = sorted(path.parent for path in folder.rglob(FILE))
        if not found:
            raise InputError(f'there are no results in "{folder}"')
        for path in found:
            one = state(path)
            counts = (one.summary.done, len(one.summary.quarantined), one.summary.left)
            table.add_row(str(path), one.suite.get("name", ""), *map(str, counts))
    Console().print(table)


def _executor(workers: int | None, ray: str | None) -> Executor:
    from relprop.bench.executors import in_process, on_ray, processes

    if ray is not None:
        return on_ray(num_cpus=workers) if ray == LOCAL else on_ray(ray)
    import os

    count = workers or len(os.sched_getaffinity(0))
    return in_process if count == 1 else processes(count)


def _work(folder: Path, executor: Executor, tries: int, again: bool) -> None:
    from relprop.bench.running import go_on

    try:
        with _cells() as watch:
            found = go_on(folder, executor, tries=tries, again=again, watch=watch)
    except KeyboardInterrupt:
        _say(f"stopped; what is done is kept: relprop bench resume {shlex.quote(str(folder))}")
        raise typer.Exit(130) from None
    _end(found, folder)


def _end(found: Summary, folder: Path) -> None:
    for row in found.quarantined:
        places = row.spec["places"]
        _say(f'set aside: task "{row.spec["task"]["name"]}", examples {places[0]} to {places[-1]}: {row.error}')
    _say(f"{found.done} cells done, {len(found.quarantined)} set aside; see `relprop bench report {folder}`")
    if not found.complete:
        raise typer.Exit(1)


def _checking(task: str) -> None:
    _say(f"checking {task}")


def _say(line: str) -> None:
    typer.echo(line, err=True)


@contextmanager
def _cells() -> Iterator[Any]:
    with _progress("cells") as show:

        def watch(outcome: Outcome, settled: int, count: int) -> None:
            show(settled, count, f"failed: {outcome.error}" if outcome.error else "", urgent=bool(outcome.error))

        yield watch


@contextmanager
def _training() -> Iterator[Any]:
    with _progress("training") as show:

        def said(name: str, step: int, steps: int, loss: float) -> None:
            show(step, steps, f"{name}, loss {loss:.3f}")

        yield said


class _Pace:
    """Rate and time left. A count that falls back is of the next thing: time is taken anew."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._first: int | None = None
        self._last = 0

    def __call__(self, done: int, count: int) -> str:
        now = time.monotonic()
        if done < self._last:
            self._start, self._first = now, done
        self._first = done - 1 if self._first is None else self._first
        self._last = done
        rate = max(1, done - self._first) / max(1e-3, now - self._start)
        return f"{60 * rate:.1f} a minute, {timedelta(seconds=round((count - done) / rate))} left"


@contextmanager
def _progress(what: str) -> Iterator[Any]:
    """Live, with rate and time left; without a terminal, a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[note]}"))
    with Progress(TextColumn(what), *columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=None, note="", visible=False)
        pace, said = _Pace(), time.monotonic()

        def show(done: int, count: int, note: str, urgent: bool = False) -> None:
            nonlocal said
            note = ", ".join(part for part in (pace(done, count), note) if part)
            progress.update(bar, completed=done, total=count, note=note, visible=True)
            if not console.is_terminal and (done == count or urgent or time.monotonic() - said > _QUIET):
                _say(f"{what}: {done} of {count} ({note})")
                said = time.monotonic()

        yield show
