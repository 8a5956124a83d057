"""The folder of a run: its suite and plan are recorded, so that the run can be resumed later."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from relprop.bench.cell_work import CellWork, Locations
from relprop.bench.executors import Executor, Outcome, in_process
from relprop.bench.runner import TRIES, RunSummary, run_cells, summarise
from relprop.bench.store import NOTES, Store, cell_key
from relprop.bench.store_files import FILE
from relprop.bench.suite_plan import SuitePlan, cells_without_models, check_disk_space, without_models
from relprop.bench.suites import Suite, SuiteTask
from relprop.errors import InputError
from relprop.files import write_text

Watch = Callable[[Outcome, int, int], None]
LOCATIONS = "locations.json"  # beside the results, which thus hold nothing of this machine and can be moved to another


@dataclass(frozen=True)
class FolderState:
    """Which suite a folder holds, how far it is, and the command that started it."""

    suite: dict[str, Any]
    summary: RunSummary
    command: str


def check_same_suite(out: Path, suite: Suite) -> None:
    """Raise if the folder holds results of another suite."""
    if not (out / FILE).exists() or not (out / FILE).stat().st_size:
        return
    with Store(out, read_only=True) as store:
        before = store.about("suite")
    if before is not None and before != _described(suite):
        raise InputError(
            f'"{out}" holds results of another suite or sample ("{json.loads(before)["name"]}"); '
            "name another folder with --out"
        )


def unfinished_tasks(out: Path, suite: Suite, tasks: Sequence[SuiteTask], data: Path | None) -> list[SuiteTask]:
    """The tasks that a folder does not hold whole. Those that it does need no model, so none is trained for them."""
    if not (out / FILE).exists() or not (out / FILE).stat().st_size:
        return list(tasks)
    with Store(out, read_only=True) as store:
        done = [row.spec for row in store.rows() if row.done]

    def is_whole(task: SuiteTask) -> bool:
        own = [spec for spec in done if spec["task"]["name"] == task.name]
        stored = {cell_key(without_models(spec)) for spec in own}
        return len(stored) == len(own) and stored >= set(map(cell_key, cells_without_models(suite, task, data)))

    return [task for task in tasks if not is_whole(task)]


def record_plan(plan: SuitePlan, out: Path, command: str, *, anew: bool = False) -> None:
    """Store the plan in a folder; results of the same suite are kept, unless they are of other models and `anew`."""
    check_same_suite(out, plan.suite)
    with Store(out) as store:
        _drop_replaced(store, plan, out, anew)
        before = json.loads(store.about("models") or "{}")
        notes = (
            _described(plan.suite),
            command,
            json.dumps(environment()),
            json.dumps({**before, **plan.models}),
        )
        for name, value in zip(NOTES, notes, strict=True):
            store.note(name, value)
        order = [task.name for task in plan.suite.tasks]
        specs = {cell_key(spec): spec for spec in (*(row.spec for row in store.rows()), *plan.specs)}
        store.plan(sorted(specs.items(), key=lambda cell: order.index(cell[1]["task"]["name"])))
    known = _read_locations(out)
    models = {**(known.models if known else {}), **plan.locations.models}
    data = None if plan.locations.folder is None else str(plan.locations.folder)
    write_text(out / LOCATIONS, json.dumps({"data": data, "models": models}))


def _drop_replaced(store: Store, plan: SuitePlan, out: Path, anew: bool) -> None:
    """Cells of a planned task that are not in its plan are of a model that was trained elsewhere, or of other data."""
    tasks, planned = {task.name for task in plan.tasks}, set(map(cell_key, plan.specs))
    replaced = [row for row in store.rows() if row.spec["task"]["name"] in tasks and row.key not in planned]
    done = Counter(row.spec["task"]["name"] for row in replaced if row.done)
    for task, count in done.items() if not anew else ():
        raise InputError(
            f'task "{task}": {count} cells in "{out}" were measured on a model with other weights, or on other data, '
            "than those here, and cannot be joined with new ones: --anew deletes them, another --out keeps them"
        )
    store.drop([row.key for row in replaced])


def _read_locations(out: Path) -> Locations | None:
    """Where this machine has the data and models of a run; None if it was not planned here."""
    try:
        said = json.loads((out / LOCATIONS).read_text(encoding="utf-8"))
        return Locations(said["data"] and Path(said["data"]), said["models"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def resume_run(
    out: Path,
    executor: Executor = in_process,
    *,
    tasks: Collection[str] | None = None,
    tries: int = TRIES,
    again: bool = False,
    watch: Watch | None = None,
) -> RunSummary:
    """Work on the cells of a folder that are not done, of all tasks or of these.

    `again` also tries those that were set aside.
    """
    check_disk_space(out)
    with Store(out, read_only=True) as store:
        rows, planned = store.rows(), store.about("suite") is not None
    locations = _read_locations(out)
    if not planned or not rows or locations is None:
        raise InputError(
            f'nothing is planned in "{out}": `relprop bench run SUITE --out {out}` plans a suite and keeps the results '
            "that it finds"
        )
    with Store(out) as store:
        if again:
            store.forget_failures()
        specs, work = [row.spec for row in rows], CellWork(locations)
        return run_cells(store, specs, work, tasks=tasks, executor=executor, tries=tries, watch=watch)


def folder_state(out: Path) -> FolderState:
    with Store(out, read_only=True) as store:
        suite = json.loads(store.about("suite") or "{}")
        return FolderState(suite, summarise(store.rows()), store.about("command") or "")


def _described(suite: Suite) -> str:
    return json.dumps(suite_table(suite), sort_keys=True)


def suite_table(suite: Suite) -> dict[str, object]:
    """A suite as a table, without its catalog, and without a second seed, for which it has tasks."""
    return {
        one.name: [asdict(part) for part in value] if one.name in ("methods", "tasks", "tables") else value
        for one in fields(suite)
        if one.name not in ("catalog", "second_seed") and (value := getattr(suite, one.name)) is not None
    }


def environment() -> dict[str, object]:
    """Versions and hardware that may affect the numbers."""
    packages = {name: version(name) for name in ("relprop", "torch", "transformers", "numpy")}
    return {"python": platform.python_version(), **packages, "machine": platform.machine(), "cores": os.cpu_count()}
