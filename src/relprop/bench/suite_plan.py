"""A suite cut into cells: which model, which examples; and a check of every task before the work starts."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from relprop.bench.cell_work import Locations, cell_job, example_digest, load_explainer, torch_threads, weights_digest
from relprop.bench.executors import CellSpec
from relprop.bench.kinds import CellJob, task_kind
from relprop.bench.recipes import ModelFacts, TrainingProgress
from relprop.bench.suites import Suite, SuiteTask
from relprop.embedded import EMBEDDED
from relprop.errors import InputError, RelpropError

_RECIPE = "recipe:"
_MODEL_FIELDS = ("weights", "judge")  # of a cell: what identifies its models
_LEAST_FREE = 200 * 2**20  # bytes on the disk of the results


@dataclass(frozen=True)
class SuitePlan:
    """The cells of a suite, and the facts about its models."""

    suite: Suite
    tasks: list[SuiteTask]  # those that have cells
    specs: list[CellSpec]
    locations: Locations
    models: dict[str, ModelFacts]


def plan_suite(
    suite: Suite,
    folder: Path | None,
    *,
    tasks: Sequence[SuiteTask] | None = None,
    progress: TrainingProgress | None = None,
    train: bool = True,
) -> SuitePlan:
    """Cut a suite, or some of its tasks, into cells. All data is read first; then recipes without a model are trained.

    Without `train`, tasks whose model is not trained yet are left out.
    """
    chosen = suite.tasks if tasks is None else tasks
    samples = {task.name: _sample(suite, task, folder) for task in chosen}
    where: dict[str, str] = {}
    models: dict[str, ModelFacts] = {}
    for task in chosen:
        with _naming(task):
            for name in _models_of(task):
                if name not in where and (train or not _untrained(suite, name, folder)):
                    where[name], models[name] = _prepare_model(suite, name, folder, progress)
    ready = [task for task in chosen if all(name in models for name in _models_of(task))]
    plan = SuitePlan(suite, ready, [], Locations(folder and folder.absolute(), where), models)
    for task in ready:
        with _naming(task):
            plan.specs.extend(_cells(suite, task, *samples[task.name], _model_fields(task, models)))
    return plan


def cells_without_models(suite: Suite, task: SuiteTask, folder: Path | None) -> list[CellSpec]:
    """The cells of a task, without what identifies its models: known before these are trained."""
    return list(_cells(suite, task, *_sample(suite, task, folder), {}))


def without_models(spec: CellSpec) -> CellSpec:
    return {name: value for name, value in spec.items() if name not in _MODEL_FIELDS}


def _sample(suite: Suite, task: SuiteTask, folder: Path | None) -> tuple[Sequence[object], list[int]]:
    """All examples of a task, and the indices of those that are measured."""
    with _naming(task):
        kind = task_kind(task.kind)
        kind.check_options(task)
        every = kind.examples(suite.catalog, task, folder)
        return every, sample_indices(len(every), task.sample or suite.sample, suite.seed)


def _models_of(task: SuiteTask) -> list[str]:
    """The explained model, and the one that judges in its place, if the task has one."""
    judge = task.options.get("judge")
    return [task.model] if judge is None else [task.model, str(judge)]


def _model_fields(task: SuiteTask, models: Mapping[str, ModelFacts]) -> dict[str, object]:
    """What identifies the models of a cell: the explained one's weights; and of a judge, how it was trained."""
    weights = {"weights": models[task.model]["weights"]}
    if "judge" not in task.options:
        return weights
    facts = models[str(task.options["judge"])]
    if not facts.get("hide"):
        raise InputError(
            'a judge was fine-tuned with tokens hidden at random: name a "recipe:NAME" whose [recipe.NAME] sets hide'
        )
    replacement = facts.get("replacement", "mask")
    if replacement != task.replacement:
        raise InputError(
            f'the judge learned from "{replacement}" in place of hidden tokens, and the task has "{task.replacement}"'
        )
    return {**weights, "judge": {"weights": facts["weights"], "hide": facts["hide"], "replacement": replacement}}


def _untrained(suite: Suite, model: str, folder: Path | None) -> bool:
    return model.startswith(_RECIPE) and not suite.catalog.is_trained(model.removeprefix(_RECIPE), folder)


def sample_indices(count: int, wanted: int, seed: int) -> list[int]:
    """Indices drawn without replacement, in order."""
    if count == 0:
        raise InputError("the dataset is empty")
    return sorted(random.Random(seed).sample(range(count), min(wanted, count)))


def _prepare_model(
    suite: Suite, name: str, folder: Path | None, progress: TrainingProgress | None
) -> tuple[str, ModelFacts]:
    """Where a model lies, and the hash of its weights; for a recipe also how it was trained."""
    where: str = name
    about: ModelFacts = {}
    if name.startswith(_RECIPE):
        path, about = suite.catalog.train(name.removeprefix(_RECIPE), folder, progress)
        where = str(path.absolute())
    elif name not in EMBEDDED:
        beside = [Path(name)] if folder is None else [Path(name), folder / name]
        where = next((str(path.absolute()) for path in beside if path.is_dir()), name)
    return where, {**about, "weights": weights_digest(load_explainer(where).model)}


def _cells(
    suite: Suite, task: SuiteTask, every: Sequence[object], chosen: list[int], model_fields: Mapping[str, object]
) -> Iterator[CellSpec]:
    common = {
        "task": asdict(task),
        "methods": [asdict(one) for one in suite.methods_of(task)],
        "metrics": list(task.metrics or suite.metrics),
        "seed": suite.seed,
        "data": suite.catalog.dataset(task.data).settings() if task.data else None,
        **model_fields,
    }
    for k in range(0, len(chosen), task.chunk):
        part = chosen[k : k + task.chunk]
        content = example_digest([every[i] for i in part])
        yield {**common, "places": part, "content": content, "shown": max(0, min(task.show - k, len(part)))}


def check_tasks(plan: SuitePlan, tasks: Sequence[SuiteTask], watch: Callable[[str], None] | None = None) -> None:
    """A dry run: one example of each of these tasks through all methods and metrics."""
    for task in tasks:
        if watch is not None:
            watch(task.name)
        with _naming(task), torch_threads(1):
            jobs = [cell_job(spec, plan.locations) for spec in plan.specs if spec["task"]["name"] == task.name]
            task_kind(task.kind).check(_shortest_example(jobs))


def _shortest_example(jobs: Sequence[CellJob]) -> CellJob:
    """A job of one example, the shortest of all."""
    job, i = min(
        ((job, i) for job in jobs for i in range(len(job.examples))), key=lambda at: len(repr(at[0].examples[at[1]]))
    )
    return replace(job, examples=[job.examples[i]], places=[job.places[i]], shown=1)


def check_disk_space(out: Path) -> None:
    """Raise if the disk of the results is nearly full."""
    existing = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    try:
        free = shutil.disk_usage(existing).free
    except OSError as error:
        raise InputError(f'"{out}" cannot hold results: {error.strerror}') from error
    if free < _LEAST_FREE:
        raise RelpropError(
            f'the disk of "{out}" is nearly full: {free / 2**20:.0f} MB free, {_LEAST_FREE / 2**20:.0f} are needed'
        )


@contextmanager
def _naming(task: SuiteTask) -> Iterator[None]:
    """Errors inside name the task."""
    try:
        yield
    except RelpropError as error:
        raise type(error)(f'task "{task.name}": {error}') from error
