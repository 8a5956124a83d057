"""`relprop bench`: run a suite, resume it, report its results."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relprop.cli.outputs import print_table
from relprop.errors import InputError
from relprop.progress import live_count

if TYPE_CHECKING:
    from relprop.bench.executors import Executor, Outcome

app = typer.Typer(
    help="Compare methods as the papers do: suites that can be killed and resumed, and a report.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
LOCAL = "local"

Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Processes with one thread each; training takes as many threads. Default: one per core."),
]
OnRay = Annotated[
    str | None,
    typer.Option(metavar="[ADDRESS]", help="Work on Ray: a cluster's address, or nothing for a local one."),
]
Tries = Annotated[int, typer.Option(min=1, help="A cell that failed this many times is set aside.")]


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
    out: Annotated[Path, typer.Option(help="The folder for results; an existing run of the same suite is resumed.")],
    data: Annotated[
        Path | None, typer.Option(help="The folder of the datasets' files. Default: load them from the hub.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this task of the suite; may be repeated.")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Number of examples of each dataset.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the sample.")] = None,
    workers: Workers = None,
    ray: OnRay = None,
    tries: Tries = 3,
    anew: Annotated[
        bool, typer.Option("--anew", help="Delete results of a task whose model has other weights here.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check that every task can be run.")] = False,
) -> None:
    """Run a suite. All data and tasks are checked first; models of recipes are trained once and kept.

    Tasks with a model come first; then each other model is trained, and its tasks are run. What a folder holds whole is
    not run again, and needs no model.
    """
    if data is not None and not data.is_dir():
        raise InputError(f'--data "{data}" is not a folder')
    from relprop.bench.cell_work import torch_threads
    from relprop.bench.suite_folder import check_same_suite, record_plan, unfinished_tasks
    from relprop.bench.suite_plan import check_disk_space, check_tasks, plan_suite
    from relprop.bench.suites import read_suite

    read = read_suite(suite, sample, seed)
    check_disk_space(out)
    check_same_suite(out, read)
    named = read.tasks_named(task or ())
    wanted = unfinished_tasks(out, read, named, data)
    plan = plan_suite(read, data, tasks=wanted, train=False)
    check_tasks(plan, plan.tasks, watch=lambda name: _print(f"checking {name}"))
    untrained = [one for one in wanted if one not in plan.tasks]
    if dry_run:
        groups = {"after training": untrained, "done": [one for one in named if one not in wanted]}
        rest = [f"; {when}: {', '.join(one.name for one in group)}" for when, group in groups.items() if group]
        _print(f"{len(plan.tasks)} tasks can be run, {len(plan.specs)} cells{''.join(rest)}")
        return
    command = _command(suite, out, data, sample, seed)
    executor = _executor(workers, ray)
    names = {one.name for one in named}
    complete = True
    if plan.tasks or not untrained:
        record_plan(plan, out, command, anew=anew)
        complete = _work(out, executor, tries, names)
    for one in untrained:
        with live_count("training") as show, torch_threads(workers or usable_cores()):
            plan = plan_suite(
                read, data, tasks=[one], progress=lambda *at: show(at[1], at[2], f"{at[0]}, loss {at[3]:.3f}")
            )
        check_tasks(plan, plan.tasks, watch=lambda name: _print(f"checking {name}"))
        record_plan(plan, out, command, anew=anew)
        complete = _work(out, executor, tries, names)
    if not complete:
        raise typer.Exit(1)


def _command(suite: str, out: Path, data: Path | None, sample: int | None, seed: int | None) -> str:
    """The command that remakes the whole run, for its report: paths as seen from this folder."""
    options = {
        "--out": _seen_from_here(out),
        "--data": data and _seen_from_here(data),
        "--sample": sample,
        "--seed": seed,
    }
    given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
    named = suite if not Path(suite).is_file() else _seen_from_here(Path(suite))
    return shlex.join(["relprop", "bench", "run", named, *given])


def _seen_from_here(path: Path) -> str:
    try:
        return Path(os.path.relpath(path)).as_posix()
    except ValueError:  # on another drive
        return path.name


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="A folder of results.")],
    workers: Workers = None,
    ray: OnRay = None,
    tries: Tries = 3,
    again: Annotated[bool, typer.Option("--again", help="Also try the cells that were set aside.")] = False,
    rescue: Annotated[bool, typer.Option("--rescue", help="First keep what is readable of damaged results.")] = False,
) -> None:
    """Resume a run that was stopped or killed."""
    if rescue:
        from relprop.bench.rescue import rescue_results

        if (found := rescue_results(folder)) is not None:
            _print(f'{found.kept} results are kept; the damaged file is now "{found.aside}"')
    if not _work(folder, _executor(workers, ray), tries, again=again):
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder of results.")],
    out: Annotated[Path | None, typer.Option(help="The folder for the report. Default: the same folder.")] = None,
    export: Annotated[Path | None, typer.Option(help="Also write all numbers, as .csv or .parquet.")] = None,
) -> None:
    """Write report.html and report.md: tables beside the papers', curves, heat maps, costs. Runs may be unfinished."""
    from relprop.bench.export import export_table, fingerprint
    from relprop.bench.report import read_results, write_report

    results = replace(read_results(folder), fingerprint=fingerprint(folder))
    for path in write_report(results, out or folder):
        typer.echo(f"wrote {path}", err=True)
    if export is not None:
        export_table(folder, export)
        typer.echo(f"wrote {export}", err=True)
    typer.echo(f"fingerprint of the numbers: {results.fingerprint}")


@app.command()
def claims(
    folders: Annotated[list[Path], typer.Argument(help="Folders of results, of different suites.")],
    out: Annotated[Path, typer.Option(help="The page to write, in Markdown.")],
) -> None:
    """Write a page that says of every claim of the papers whether it holds, by runs of their suites."""
    from relprop.bench.report import read_results
    from relprop.bench.report.claims import claims_page, decide, read_claims
    from relprop.files import write_text

    runs = {}
    for folder in folders:
        results = read_results(folder)
        if results.suite.name in runs:
            raise InputError(f'"{folder}" is a second run of "{results.suite.name}": one run per suite is compared')
        runs[results.suite.name] = results
    decisions = [decide(claim, runs.get(claim.suite)) for claim in read_claims()]
    write_text(out, claims_page(decisions, runs, out.parent))
    typer.echo(f"wrote {out}", err=True)


@app.command(name="list")
def list_(
    folder: Annotated[Path | None, typer.Argument(help="List the runs in this folder instead.")] = None,
) -> None:
    """List the suites that come with relprop, or the runs in a folder and their progress."""
    from rich.table import Column

    if folder is None:
        from relprop.bench.suites import read_suite, shipped_suites

        suites = [(name, read_suite(name)) for name in shipped_suites()]
        told = [(name, suite.title, ", ".join(task.name for task in suite.tasks)) for name, suite in suites]
        print_table([Column("suite", no_wrap=True), "what it measures", "tasks"], told)
        return
    from relprop.bench.store_files import FILE
    from relprop.bench.suite_folder import folder_state

    rows = []
    for path in sorted(path.parent for path in folder.rglob(FILE)):
        one = folder_state(path)
        counts = (one.summary.done, len(one.summary.quarantined), one.summary.left)
        rows.append((str(path), one.suite.get("name", ""), *map(str, counts)))
    if not rows:
        raise InputError(f'there are no results in "{folder}"')
    names = [Column(name, overflow="fold") for name in ("run", "suite")]
    print_table([*names, "cells done", "set aside", "left"], rows)


def _executor(workers: int | None, ray: str | None) -> Executor:
    from relprop.bench.executors import in_process, on_ray, processes

    if ray is not None:
        return on_ray(num_cpus=workers) if ray == LOCAL else on_ray(ray)
    count = workers or usable_cores()
    return in_process if count == 1 else processes(count)


def usable_cores() -> int:
    """The cores that this process may use, where the system tells; else all."""
    own = getattr(os, "sched_getaffinity", None)
    return len(own(0)) if own else os.cpu_count() or 1


def _work(folder: Path, executor: Executor, tries: int, tasks: set[str] | None = None, again: bool = False) -> bool:
    """Work on all planned cells, or on those of these tasks; whether all of them are done."""
    from relprop.bench.suite_folder import resume_run

    try:
        with live_count("cells") as show:

            def watch(outcome: Outcome, settled: int, count: int) -> None:
                show(settled, count, f"failed: {outcome.error}" if outcome.error else "", urgent=bool(outcome.error))

            summary = resume_run(folder, executor, tasks=tasks, tries=tries, again=again, watch=watch)
    except KeyboardInterrupt:
        _print(f"stopped; results so far are kept: relprop bench resume {shlex.quote(str(folder))}")
        raise typer.Exit(130) from None
    for row in summary.quarantined:
        places = row.spec["places"]
        _print(f'set aside: task "{row.spec["task"]["name"]}", examples {places[0]} to {places[-1]}: {row.error}')
    _print(f"{summary.done} cells done, {len(summary.quarantined)} set aside; see `relprop bench report {folder}`")
    return summary.complete


def _print(line: str) -> None:
    typer.echo(line, err=True)
