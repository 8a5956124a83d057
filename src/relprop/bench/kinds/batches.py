"""A cell's texts or graphs in batches of similar length, and their explanations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from relprop.attribution import attribute
from relprop.bench.datasets import Example
from relprop.bench.kinds.task_kind import CellJob
from relprop.bench.measurements import Measurements
from relprop.bench.suites import Method
from relprop.errors import InputError
from relprop.explainer import Explainer
from relprop.explanation import Explanation
from relprop.readers.text import TextReader
from relprop.readers.tokens import without_truncation_warnings
from relprop.registry import METHODS
from relprop.tasks import Query
from relprop.types import Attribution


@dataclass(frozen=True)
class Batch:
    """Some of a job's texts or graphs, as inputs of the model."""

    explainer: Explainer
    numbers: list[int]  # of the examples in the job
    examples: list[Example]
    queries: list[Query]
    inputs: dict[str, Tensor]
    labels: list[Any] | None  # the classes or answers to explain; None: the predicted ones

    @property
    def rows(self) -> list[Any]:
        """The examples as the model reads them."""
        return [query.row for query in self.queries]

    def explain(self, method: Method, whole: Measurements) -> Attribution:
        """A method's scores; its time is added to the measurements."""
        known = METHODS[method.method].options
        options = self.explainer.reader.options(known, dict(method.options), self.rows, self.inputs)
        with whole.timed(method.label):
            return attribute(self.explainer.model, self.inputs, self.labels, method.method, **options)

    def explanation(self, found: Attribution, place: int) -> Explanation:
        """The explanation of the example at a place of the batch."""
        return self.explainer.explanation(self.queries[place], found, place)


def make_batches(job: CellJob) -> tuple[Measurements, Sequence[Batch]]:
    """Empty measurements of the examples in the order of the batches, and the batches."""
    labels = [example.target for example in job.examples] if job.task.explain == "label" else None
    return batches_for(job, labels)


def batches_for(job: CellJob, targets: Sequence[Any] | None) -> tuple[Measurements, Sequence[Batch]]:
    """The same with one target per example; None: what the model predicts."""
    explainer, given = job.explainer, [example.text for example in job.examples]
    with without_truncation_warnings():  # long texts are cut on purpose
        queries = explainer.task.queries(given, targets or [None] * len(given), job.task.max_length)
    groups = explainer.reader.batches([query.row for query in queries], job.task.batch_size)
    batches = []
    for numbers in groups:
        own = [queries[i] for i in numbers]
        inputs = explainer.reader.inputs([query.row for query in own])
        known = targets is not None or any(query.answer for query in own)
        labels = [query.target for query in own] if known else None
        batches.append(Batch(explainer, numbers, [job.examples[i] for i in numbers], own, inputs, labels))
    return Measurements([job.places[i] for numbers in groups for i in numbers]), batches


def text_reader(job: CellJob) -> TextReader:
    reader = job.explainer.reader
    if not isinstance(reader, TextReader):
        raise InputError(f'"{job.task.model}" is a model of {reader.name}, and the task is about texts')
    return reader
