"""From a suite to cells: which model, which examples, and everything checked before hours are spent."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from relprop.bench.kinds import Job, kind_of
from relprop.bench.recipes import Said
from relprop.bench.suites import Suite, Task
from relprop.bench.working import Places, explainer_of, job_of, one_thread, weights_digest
from relprop.errors import InputError, RelpropError
from relprop.loading import EMBEDDED

_RECIPE = "recipe:"
_FREE = 200 * 2**20  # bytes that should be free where results go


@dataclass(frozen=True)
class Plan:
    """The cells of a suite, and what is known of its models."""

    suite: Suite
    specs: list[dict[str, Any]]
    places: Places
    models: dict[str, dict[str, Any]]

    @property
    def tasks(self) -> list[Task]:
        """Those whose cells are here: all, or those that need no training."""
        return [task for task in self.suite.tasks if task.model in self.models]


def planned(suite: Suite, folder: Path | None, *, said: Said | None = None, train: bool = True) -> Plan:
    """Cut a suite into cells. All data is read first; then recipes are trained, unless they were before.

    Without `train`, tasks whose model is still to be trained are left out.
    """
    drawn: dict[str, tuple[Sequence[Any], list[int]]] = {}
    for task in suite.tasks:
        with _of_task(task):
            every = kind_of(task.kind).examples(suite, task, folder)
            drawn[task.name] = every, sampled(len(every), task.sample or suite.sample, suite.seed)
    where: dict[str, str] = {}
    models: dict[str, dict[str, Any]] = {}
    for task in suite.tasks:
        with _of_task(task):
            if task.model not in where and (train or not _untrained(suite, task.model, folder)):
                where[task.model], models[task.model] = _model(suite, task.model, folder, said)
    plan = Plan(suite, [], Places(folder and folder.absolute(), where), models)
    for task in plan.tasks:
        plan.specs.extend(_cells(suite, task, *drawn[task.name], models[task.model]["weights"]))
    return plan


def _untrained(suite: Suite, model: str, folder: Path | None) -> bool:
    return model.startswith(_RECIPE) and not suite.catalog.is_trained(model.removeprefix(_RECIPE), folder)


def sampled(count: int, wanted: int, seed: int) -> list[int]:
    """Places drawn without replacement, in order."""
    if count == 0:
        raise InputError("the dataset is empty")
    return sorted(random.Random(seed).sample(range(count), min(wanted, count)))


def _model(suite: Suite, name: str, folder: Path | None, said: Said | None) -> tuple[str, dict[str, Any]]:
    """Where a model lies, and its weights' digest; of a recipe's also how it was trained."""
    where: str = name
    about: dict[str, Any] = {}
    if name.startswith(_RECIPE):
        path, about = suite.catalog.train(name.removeprefix(_RECIPE), folder, said)
        where = str(path.absolute())
    elif name not in EMBEDDED and Path(name).is_dir():
        where = str(Path(name).absolute())
    return where, {**about, "weights": weights_digest(explainer_of(where).model)}


def _cells(suite: Suite, task: Task, every: Sequence[Any], chosen: list[int], weights: str) -> Iterator[dict[str, Any]]:
    common = {
        "task": asdict(task),
        "methods": [asdict(one) for one in suite.methods_of(task)],
        "metrics": list(task.metrics or suite.metrics),
        "seed": suite.seed,
        "data": asdict(suite.catalog.dataset(task.data)) if task.data else None,
        "weights": weights,
    }
    for k in range(0, len(chosen), task.chunk):
        part = chosen[k : k + task.chunk]
        content = hashlib.sha256(repr([every[i] for i in part]).encode()).hexdigest()[:16]
        yield {**common, "places": part, "content": content, "shown": max(0, min(task.show - k, len(part)))}


def check(plan: Plan, tasks: Sequence[Task], watch: Callable[[str], None] | None = None) -> None:
    """A dry run: does one example of each of these tasks go through all that is asked?"""
    for task in tasks:
        if watch is not None:
            watch(task.name)
        with _of_task(task), one_thread():
            jobs = [job_of(spec, plan.places) for spec in plan.specs if spec["task"]["name"] == task.name]
            kind_of(task.kind).check(_easiest(jobs))


def _easiest(jobs: Sequence[Job]) -> Job:
    """One example, the shortest."""
    job, i = min(
        ((job, i) for job in jobs for i in range(len(job.examples))), key=lambda at: len(repr(at[0].examples[at[1]]))
    )
    return replace(job, examples=[job.examples[i]], places=[job.places[i]], shown=1)


def check_room(out: Path) -> None:
    """Results must fit on the disk before work on them starts."""
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        raise InputError(f'"{out}" cannot hold results: {error.strerror}') from error
    if free < _FREE:
        raise RelpropError(
            f'the disk of "{out}" is nearly full: {free / 2**20:.0f} MB free, at least {_FREE / 2**20:.0f} are needed'
        )


@contextmanager
def _of_task(task: Task) -> Iterator[None]:
    """Errors say which task they are of."""
    try:
        yield
    except RelpropError as error:
        raise type(error)(f'task "{task.name}": {error}') from error
