"""The results of a run, read from its folder: the suite, and all measurements of every task."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relprop.bench.measurements import CEILING, UNIFORM, Measurements, join_measurements
from relprop.bench.settings import validated
from relprop.bench.store import Store, StoredResult
from relprop.bench.suites import Method, Suite
from relprop.errors import InputError

__all__ = ["CEILING", "REFERENCES", "Results", "read_results"]

REFERENCES = (CEILING, UNIFORM)  # measured beside the methods, and not in competition with them


@dataclass(frozen=True)
class Results:
    """A run: the measurements of its tasks, what failed, and how it was made."""

    suite: Suite
    tasks: Mapping[str, Measurements]  # those with results, in the suite's order
    failures: tuple[StoredResult, ...] = ()
    left: int = 0  # cells still to be done
    seconds: float = 0.0  # of all cells
    command: str = ""
    environment: Mapping[str, object] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fingerprint: str = ""  # of all numbers, where it was asked for

    @property
    def metrics(self) -> list[str]:
        """The metrics of the suite and its tasks, in order."""
        each = [*self.suite.metrics, *(metric for task in self.suite.tasks for metric in task.metrics)]
        return list(dict.fromkeys(each))

    @property
    def not_begun(self) -> list[str]:
        """Tasks without results: a recipe's are planned only when its model is trained."""
        return [task.name for task in self.suite.tasks if task.name not in self.tasks]

    def method(self, label: str) -> Method | None:
        return next((one for one in self.suite.methods if one.label == label), None)

    def printed(self, label: str) -> str:
        method = self.method(label)
        return label if method is None else method.printed or label

    def random(self) -> str:
        """The label of the method "random"; empty if it was not run."""
        return next((one.label for one in self.suite.methods if one.method == "random"), "")


def read_results(folder: Path) -> Results:
    """All cells that are done, joined by task, and those that failed."""
    with Store(folder, read_only=True) as store:
        rows = store.rows()
        said = {name: store.about(name) for name in ("suite", "command", "environment", "models")}
    if said["suite"] is None:
        raise InputError(f'"{folder}" does not say which suite it is of: it was not made by `relprop bench run`')
    suite = validated(Suite, json.loads(said["suite"]), "the stored suite")
    tasks = {}
    for task in suite.tasks:
        done = [row for row in rows if row.done and row.spec["task"]["name"] == task.name]
        if done:
            tasks[task.name] = _joined(task.name, [Measurements.from_dict(row.result) for row in done])
    failed = tuple(row for row in rows if not row.done and row.error)
    return Results(
        suite,
        tasks,
        failed,
        sum(not row.done for row in rows) - len(failed),
        sum(row.seconds or 0.0 for row in rows),
        said["command"] or "",
        json.loads(said["environment"] or "{}"),
        json.loads(said["models"] or "{}"),
    )


def _joined(task: str, parts: Sequence[Measurements]) -> Measurements:
    """All cells as one."""
    whole = join_measurements(parts)
    place, count = max(Counter(whole.examples).items(), key=lambda one: one[1], default=(0, 0))
    if count > 1:
        raise InputError(
            f'task "{task}" has example {place} twice: the folder holds two different runs; '
            "run the suite again in another folder"
        )
    return whole
