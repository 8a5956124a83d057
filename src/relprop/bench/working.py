"""The work on one cell, in whatever process it is done: from its spec alone, and the same bits everywhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from relprop.bench.catalog import Catalog
from relprop.bench.datasets import Data, Example
from relprop.bench.kinds import Job, kind_of
from relprop.bench.suites import Method, Suite, Task
from relprop.bench.tables import built
from relprop.errors import InputError
from relprop.explainer import Explainer


@dataclass(frozen=True)
class Places:
    """Where things lie on this machine: no part of a cell's content."""

    folder: Path | None  # of the datasets
    models: Mapping[str, str]  # what a task calls a model -> its folder or hub id


@dataclass(frozen=True)
class Work:
    """Called with a cell's spec; travels to workers."""

    places: Places

    def __call__(self, spec: dict[str, Any]) -> dict[str, Any]:
        with one_thread():
            job = job_of(spec, self.places)
            return kind_of(job.task.kind).measure(job).to_dict()


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums come out the same in every process only if they are cut the same: one thread each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def job_of(spec: dict[str, Any], places: Places) -> Job:
    task = built(Task, spec["task"], "the cell's task")
    every = _examples(json.dumps([spec["task"], spec["data"]], sort_keys=True), places.folder)
    chosen = [every[i] for i in spec["places"]]
    if hashlib.sha256(repr(chosen).encode()).hexdigest()[:16] != spec["content"]:
        raise InputError(f'the examples of task "{task.name}" are not those that were planned: the data has changed')
    explainer = explainer_of(places.models[task.model])
    if spec["weights"] != weights_digest(explainer.model):
        raise InputError(f'"{task.model}" has other weights than were planned: start anew in another folder')
    if spec["data"] and spec["data"]["classes"] and isinstance(chosen[0], Example):
        chosen = aligned(chosen, spec["data"]["classes"], explainer.labels, task)
    methods = tuple(built(Method, one, "the cell's method") for one in spec["methods"])
    return Job(task, methods, tuple(spec["metrics"]), spec["seed"], explainer, chosen, spec["places"], spec["shown"])


def aligned(
    examples: Sequence[Example], classes: Sequence[str], labels: Mapping[int, str], task: Task
) -> list[Example]:
    """The data's classes as the model numbers them: by name where both have the same names, else by number."""
    own = {name.lower(): index for index, name in labels.items()}
    if set(own) == {name.lower() for name in classes}:
        return [replace(one, label=own[classes[one.label].lower()]) for one in examples]
    outside = next((one.label for one in examples if one.label >= len(labels)), None)
    if outside is not None:
        raise InputError(
            f'the data of task "{task.name}" has the class "{classes[outside]}" (number {outside}), but '
            f'"{task.model}" knows only {len(labels)}: {", ".join(labels.values())}'
        )
    return list(examples)


@lru_cache(maxsize=4)
def _examples(described: str, folder: Path | None) -> Sequence[Any]:
    task, data = json.loads(described)
    named = {} if data is None else {data["name"]: built(Data, data, "the cell's data")}
    suite = Suite("", "", (), (), catalog=Catalog(named, {}))
    one = built(Task, task, "the cell's task")
    return kind_of(one.kind).examples(suite, one, folder)


@lru_cache(maxsize=2)
def explainer_of(where: str) -> Explainer:
    return Explainer(where)


@lru_cache(maxsize=2)
def weights_digest(model: torch.nn.Module) -> str:
    """A short name of all weights."""
    sha = hashlib.sha256()
    for name, values in sorted(model.state_dict().items()):
        sha.update(name.encode())
        sha.update(values.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:16]
