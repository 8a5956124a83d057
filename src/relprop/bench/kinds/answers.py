"""Are the tokens that score highest those of the answer? Precision@20, as table 2 of [Song24]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from relprop.bench.datasets import Answered, Example
from relprop.bench.kinds.batches import Batch
from relprop.bench.kinds.kind import Job
from relprop.bench.measured import Measured
from relprop.bench.suites import Suite, Task
from relprop.domains import qa
from relprop.domains.text import Encoded, unpad
from relprop.errors import InputError, unknown_name
from relprop.metrics import precision_at_k
from relprop.metrics.score_arrays import Bools
from relprop.questions import Questions

METRICS = ("precision_at_k", "pooled_recall_at_k")
K = 20


def examples(suite: Suite, task: Task, folder: Path | None) -> Sequence[Answered]:
    """The questions that have an answer."""
    data = suite.catalog.dataset(task.data)
    found = data.examples(task.split, folder)
    answered = [example for example in found if isinstance(example, Answered) and example.answer is not None]
    if not answered:
        raise InputError(f'"{data.name}" has no answers: name their column as "answer" of [data.{data.name}]')
    return answered


def check(job: Job) -> None:
    """One question through everything."""
    for option in job.task.options:
        if option != "k":
            raise unknown_name("option of answers", option, ["k"])
    unknown = [metric for metric in job.metrics if metric not in METRICS]
    if unknown or not job.metrics:
        raise InputError(f"answers take metrics of {', '.join(METRICS)}; got {', '.join(unknown) or 'none'}")
    measure(job)


def measure(job: Job) -> Measured:
    """By the right answer's tokens, among all tokens of the window that is explained."""
    k = int(job.task.options.get("k", K))
    questions = _questions(job)
    batches = list(_batches(job, questions))
    whole = Measured([job.places[i] for batch in batches for i in batch.numbers])
    for batch in batches:
        marks = [answer_of(example, row) for example, row in zip(batch.examples, batch.rows, strict=True)]
        for method in job.methods:
            found = batch.explained(method, whole)
            for place, (row, mark) in enumerate(zip(batch.rows, marks, strict=True)):
                scores = unpad(questions.tokenizer, found.scores[place], row)
                _add(whole, method.label, scores, mark, k)
                if batch.numbers[place] < job.shown:
                    shown = questions.explanation(batch.examples[place].text, row, found, place)
                    about = {"kind": "text", "example": job.places[batch.numbers[place]], "method": method.label}
                    whole.exhibits.append({**about, "explanation": shown.to_json()})
    return whole


def _questions(job: Job) -> Questions:
    domain = job.explainer.domain
    if not isinstance(domain, Questions):
        raise InputError(f'"{job.task.model}" answers no questions: it has no question-answering head')
    return domain


def _batches(job: Job, questions: Questions) -> Iterator[Batch]:
    length = job.task.max_length
    answers = [_held(questions, one, length) if job.task.explain == "label" else None for one in job.examples]
    rows, targets = questions.prepared([example.text for example in job.examples], answers, length)
    for numbers in questions.batches(rows, job.task.batch_size):
        own = [rows[i] for i in numbers]
        some = [job.examples[i] for i in numbers]
        yield Batch(questions, numbers, some, own, questions.inputs(own), [targets[i] for i in numbers])


def _held(questions: Questions, example: Answered, length: int | None) -> tuple[int, int] | None:
    """The right answer, unless it is too long for any window: the predicted one is explained then, and not counted."""
    assert isinstance(example.text, tuple)
    question, context = example.text
    windows = qa.windows(questions.tokenizer, question, context, questions.limit(length))
    return example.answer if any(answer_of(example, window).any() for window in windows) else None


def answer_of(example: Example, row: Encoded) -> Bools:
    """Which tokens are of the right answer: none, where it is not in the window whole."""
    assert isinstance(example, Answered)
    assert example.answer is not None
    span = qa.span_of(row, *example.answer)
    marks = np.zeros(len(row.units), bool)
    if span is not None:
        marks[span.first : span.last + 1] = True
    return marks


def _add(whole: Measured, label: str, scores: Sequence[float], mark: Bools, k: int) -> None:
    """A window without the answer has no number."""
    hits = taken = answer = np.nan
    if mark.any():
        counts = precision_at_k([scores], [mark], k=k)
        hits, taken, answer = (float(column[0]) for column in (counts.hits, counts.taken, counts.answer))
    whole.add(label, "hits", [hits])
    whole.add(label, "answer", [answer])
    whole.add(label, "precision_at_k", [hits / taken])
