"""A cell's texts or graphs in batches of similar length, and their explanations: what several kinds have in common."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from relprop.attribution import attribute
from relprop.bench.datasets import Example
from relprop.bench.kinds.kind import Job
from relprop.bench.measured import Measured
from relprop.bench.suites import Method
from relprop.domains.text import TruncationWarning
from relprop.errors import InputError
from relprop.graphs import Graphs
from relprop.registry import METHODS
from relprop.texts import Texts
from relprop.types import Attribution


@dataclass(frozen=True)
class Batch:
    """Some of a job's texts or graphs, as the model takes them."""

    domain: Texts | Graphs
    numbers: list[int]  # which of the job's examples
    examples: list[Example]
    rows: list[Any]
    inputs: dict[str, Tensor]
    labels: list[Any] | None  # the classes or answers to be explained; None: the predicted ones

    def explained(self, method: Method, whole: Measured) -> Attribution:
        """A method's scores, and how long it took."""
        settled = self.domain.options(METHODS[method.method].options, dict(method.options), self.rows, self.inputs)
        start = time.perf_counter()
        found = attribute(self.domain.model, self.inputs, self.labels, method.method, **settled)
        whole.took(method.label, time.perf_counter() - start)
        return found


def batched(job: Job, domain: Texts | Graphs) -> tuple[Measured, Sequence[Batch]]:
    """All examples, and what will hold their numbers: of the same examples, in the order of the batches."""
    with warnings.catch_warnings():  # that long texts are cut is known
        warnings.simplefilter("ignore", TruncationWarning)
        rows: Any = domain.encode([example.text for example in job.examples], job.task.max_length)
    groups = domain.batches(rows, job.task.batch_size)
    batches = [_batch(job, domain, numbers, [rows[i] for i in numbers]) for numbers in groups]
    return Measured([job.places[i] for numbers in groups for i in numbers]), batches


def _batch(job: Job, domain: Texts | Graphs, numbers: list[int], rows: list[Any]) -> Batch:
    examples: list[Any] = [job.examples[i] for i in numbers]
    labels = [example.label for example in examples] if job.task.explain == "label" else None
    return Batch(domain, numbers, examples, rows, domain.inputs(rows), labels)


def texts_of(job: Job) -> Texts:
    domain = job.explainer.domain
    if not isinstance(domain, Texts):
        raise InputError(f'"{job.task.model}" is a model of {domain.name}, and the task is about texts')
    return domain
