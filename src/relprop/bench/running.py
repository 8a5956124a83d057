"""A suite in a folder: planned, checked and worked on, with all that is needed to go on with it later."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from relprop.bench.executors import Executor, Outcome, in_process
from relprop.bench.planning import Plan, check_room
from relprop.bench.runner import TRIES, Summary, key_of, run, summary
from relprop.bench.store import FILE, Store
from relprop.bench.suites import Suite
from relprop.bench.working import Places, Work
from relprop.errors import InputError

Watch = Callable[[Outcome, int, int], None]


@dataclass(frozen=True)
class State:
    """What a folder of results says of itself."""

    suite: dict[str, Any]
    summary: Summary
    command: str


def check_folder(out: Path, suite: Suite) -> None:
    """A folder holds one suite: another one is refused before any work."""
    if not (out / FILE).is_file():
        return
    with Store(out) as store:
        before = store.about("suite")
    if before is not None and before != _described(suite):
        raise InputError(
            f'"{out}" holds results of another suite or sample ("{json.loads(before)["name"]}"); '
            "name another folder with --out"
        )


def begin(plan: Plan, out: Path, command: str) -> None:
    """Write down what is to be done; the same suite again goes on where it was."""
    check_folder(out, plan.suite)
    with Store(out) as store:
        notes = {
            "suite": _described(plan.suite),
            "command": command,
            "environment": json.dumps(environment()),
            "models": json.dumps(plan.models),
            "folder": str(plan.places.folder or ""),
            "places": json.dumps(dict(plan.places.models)),
        }
        for name, value in notes.items():
            store.note(name, value)
        store.plan([(key_of(spec), spec) for spec in plan.specs])


def go_on(
    out: Path, executor: Executor = in_process, *, tries: int = TRIES, again: bool = False, watch: Watch | None = None
) -> Summary:
    """Work on what is left in a folder. `again` also tries cells that were set aside."""
    check_room(out)
    with Store(out, create=False) as store:
        rows = store.rows()
        if not rows:
            raise InputError(f'nothing is planned in "{out}"; start with `relprop bench run SUITE --out {out}`')
        if again:
            store.forgive()
        folder = store.about("folder")
        places = Places(Path(folder) if folder else None, json.loads(store.about("places") or "{}"))
        return run(store, [row.spec for row in rows], Work(places), executor=executor, tries=tries, watch=watch)


def state(out: Path) -> State:
    with Store(out, create=False) as store:
        suite = json.loads(store.about("suite") or "{}")
        return State(suite, summary(store.rows()), store.about("command") or "")


def _described(suite: Suite) -> str:
    return json.dumps(suite_table(suite), sort_keys=True)


def suite_table(suite: Suite) -> dict[str, Any]:
    """All of a suite but the catalog."""
    return {
        one.name: [asdict(part) for part in value] if one.name in ("methods", "tasks", "tables") else value
        for one in fields(suite)
        if one.name != "catalog" and (value := getattr(suite, one.name)) is not None
    }


def environment() -> dict[str, Any]:
    """What may matter for the numbers."""
    packages = {name: version(name) for name in ("relprop", "torch", "transformers", "numpy")}
    return {"python": platform.python_version(), **packages, "machine": platform.machine(), "cores": os.cpu_count()}
