"""The protocol of a kind of task: examples of a dataset in, numbers out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from relprop.bench.catalog import Catalog
from relprop.bench.measurements import Measurements
from relprop.bench.suites import Method, SuiteTask
from relprop.errors import InputError, unknown_name
from relprop.explainer import Explainer


@dataclass(frozen=True)
class Judge:
    """A model that was fine-tuned with tokens hidden at random, and is asked in place of the explained one."""

    explainer: Explainer
    hide: float  # the probability with which each token was hidden
    replacement: str  # what a hidden token became


@dataclass(frozen=True)
class CellJob:
    """One cell: a model, some examples, and the methods and metrics to run on them."""

    task: SuiteTask
    methods: tuple[Method, ...]
    metrics: tuple[str, ...]
    seed: int
    explainer: Explainer
    examples: Sequence[Any]
    places: Sequence[int]  # the examples' numbers in their split
    shown: int  # heat maps of the first so many examples are kept
    judge: Judge | None = None


class TaskKind(ABC):
    """What every kind of task can do. An instance holds no state."""

    metrics: ClassVar[Collection[str]] = ()  # that a task may ask for; empty: not checked
    needs_metrics: ClassVar[bool] = True
    options: ClassVar[Collection[str] | None] = None  # that a task may set; None: the kind checks them itself

    def examples(self, catalog: Catalog, task: SuiteTask, folder: Path | None) -> Sequence[Any]:
        """All examples of the task's split."""
        return catalog.dataset(task.data).examples(task.split, folder)

    def check_options(self, task: SuiteTask) -> None:
        """Raise if the task sets an option that the kind does not have."""
        for option in task.options if self.options is not None else ():
            if option not in (self.options or ()):
                raise unknown_name(f"option of {task.kind}", option, self.options or ())

    def check(self, job: CellJob) -> None:
        """Raise if a task cannot be run, before the work starts; `job` has one example."""
        unknown = [metric for metric in job.metrics if metric not in self.metrics]
        if self.metrics and (unknown or (self.needs_metrics and not job.metrics)):
            known, got = ", ".join(self.metrics), ", ".join(unknown) or "none"
            raise InputError(f"the metrics of {job.task.kind} are {known}; got {got}")
        self.measure(job)

    @abstractmethod
    def measure(self, job: CellJob) -> Measurements:
        """The numbers of the job's examples."""
