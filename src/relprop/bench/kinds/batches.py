"""A cell's texts or graphs in batches of similar length, and their explanations."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from relprop.attribution import attribute
from relprop.bench.datasets import Example
from relprop.bench.kinds.task_kind import CellJob
from relprop.bench.measurements import Measurements
from relprop.bench.suites import Method
from relprop.domains.text import TruncationWarning
from relprop.errors import InputError
from relprop.graphs import Graphs
from relprop.registry import METHODS
from relprop.texts import Texts
from relprop.types import Attribution


@dataclass(frozen=True)
class Batch:
    """Some of a job's texts or graphs, as inputs of the model."""

    domain: Texts | Graphs
    numbers: list[int]  # of the examples in the job
    examples: list[Example]
    rows: list[Any]
    inputs: dict[str, Tensor]
    labels: list[Any] | None  # the classes or answers to explain; None: the predicted ones

    def explain(self, method: Method, whole: Measurements) -> Attribution:
        """A method's scores; its time is added to the measurements."""
        options = self.domain.options(METHODS[method.method].options, dict(method.options), self.rows, self.inputs)
        with whole.timed(method.label):
            return attribute(self.domain.model, self.inputs, self.labels, method.method, **options)


def make_batches(job: CellJob, domain: Texts | Graphs) -> tuple[Measurements, Sequence[Batch]]:
    """Empty measurements of the examples in the order of the batches, and the batches."""
    with warnings.catch_warnings():  # long texts are cut on purpose
        warnings.simplefilter("ignore", TruncationWarning)
        rows: Any = domain.encode([example.text for example in job.examples], job.task.max_length)
    groups = domain.batches(rows, job.task.batch_size)
    batches = []
    for numbers in groups:
        own, examples = [rows[i] for i in numbers], [job.examples[i] for i in numbers]
        labels = [example.label for example in examples] if job.task.explain == "label" else None
        batches.append(Batch(domain, numbers, examples, own, domain.inputs(own), labels))
    return Measurements([job.places[i] for numbers in groups for i in numbers]), batches


def text_reader(job: CellJob) -> Texts:
    domain = job.explainer.domain
    if not isinstance(domain, Texts):
        raise InputError(f'"{job.task.model}" is a model of {domain.name}, and the task is about texts')
    return domain
