"""The work on one cell: from its spec alone, with the same bits in every process."""

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
from relprop.bench.datasets import Dataset, Example
from relprop.bench.executors import CellSpec
from relprop.bench.kinds import CellJob, Judge, task_kind
from relprop.bench.settings import validated
from relprop.bench.suites import Method, SuiteTask
from relprop.errors import InputError
from relprop.explainer import Explainer


@dataclass(frozen=True)
class Locations:
    """Where data and models lie on this machine; not part of a cell's content."""

    folder: Path | None  # of the datasets
    models: Mapping[str, str]  # a model's name in tasks -> its folder or hub id


@dataclass(frozen=True)
class CellWork:
    """Called with a cell's spec; it is pickled and sent to workers."""

    locations: Locations

    def __call__(self, spec: CellSpec) -> dict[str, Any]:
        with torch_threads(1):
            job = cell_job(spec, self.locations)
            return task_kind(job.task.kind).measure(job).to_dict()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Cells are computed on one: sums are the same in every process only with the same number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def cell_job(spec: CellSpec, locations: Locations) -> CellJob:
    """The job of a cell, if its data and weights are still those that were planned."""
    task = validated(SuiteTask, spec["task"], "the cell's task")
    every = _examples(json.dumps([spec["task"], spec["data"]], sort_keys=True), locations.folder)
    chosen = [every[i] for i in spec["places"]]
    if example_digest(chosen) != spec["content"]:
        raise InputError(f'the examples of task "{task.name}" are not those that were planned: the data has changed')
    explainer = load_explainer(locations.models[task.model])
    if spec["weights"] != weights_digest(explainer.model):
        raise InputError(f'"{task.model}" has other weights than were planned: start a new run in another folder')
    if spec["data"] and spec["data"]["classes"] and isinstance(chosen[0], Example):
        chosen = align_labels(chosen, spec["data"]["classes"], explainer.labels, task)
    methods = tuple(validated(Method, one, "the cell's method") for one in spec["methods"])
    return CellJob(
        task,
        methods,
        tuple(spec["metrics"]),
        spec["seed"],
        explainer,
        chosen,
        spec["places"],
        spec["shown"],
        _judge(task, spec.get("judge"), locations),
    )


def _judge(task: SuiteTask, planned: Mapping[str, Any] | None, locations: Locations) -> Judge | None:
    """The second model of a task, if it has one."""
    if planned is None:
        return None
    explainer = load_explainer(locations.models[task.options["judge"]])
    if planned["weights"] != weights_digest(explainer.model):
        raise InputError(f'the judge of task "{task.name}" has other weights than were planned: start a new run')
    return Judge(explainer, planned["hide"], planned["replacement"])


def align_labels(
    examples: Sequence[Example], classes: Sequence[str], labels: Mapping[int, str], task: SuiteTask
) -> list[Example]:
    """The examples with the model's class numbers: by name where both have the same names, else by number."""
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
    named = {} if data is None else {data["name"]: validated(Dataset, data, "the cell's data")}
    one = validated(SuiteTask, task, "the cell's task")
    return task_kind(one.kind).examples(Catalog(named, {}), one, folder)


@lru_cache(maxsize=4)
def load_explainer(where: str) -> Explainer:
    return Explainer(where)


@lru_cache(maxsize=4)
def weights_digest(model: torch.nn.Module) -> str:
    """A short hash of all weights."""
    sha = hashlib.sha256()
    for name, values in sorted(model.state_dict().items()):
        sha.update(name.encode())
        sha.update(values.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:16]


def example_digest(examples: Sequence[object]) -> str:
    """A short hash of the examples; their reprs show their content and not where they lie."""
    return hashlib.sha256(repr(list(examples)).encode()).hexdigest()[:16]
