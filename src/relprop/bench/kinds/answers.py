"""Are the tokens that score highest those of the answer? Precision@20, as Table 2 of [Song24]."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np

from relprop.bench.catalog import Catalog
from relprop.bench.datasets import AnsweredQuestion, Example
from relprop.bench.kinds.batches import batches_for
from relprop.bench.kinds.exhibits import text_exhibit
from relprop.bench.kinds.task_kind import CellJob, TaskKind
from relprop.bench.measurements import Measurements
from relprop.bench.suites import SuiteTask
from relprop.errors import InputError
from relprop.explainer import Explainer
from relprop.metrics import precision_at_k
from relprop.metrics.score_arrays import Bools
from relprop.readers.context_windows import context_windows
from relprop.readers.tokens import TokenRow, unpad
from relprop.tasks.answers import AnswerSpan
from relprop.tasks.spans import span_of

K = 20


class AnswerTokens(TaskKind):
    """The tokens of the right answer, among all tokens of the window that is explained."""

    metrics = ("precision_at_k", "pooled_recall_at_k")
    options = (
        "k",
        "token_types",
    )  # token_types = false: question and context are read as one text, as in [Song24]'s code

    def examples(self, catalog: Catalog, task: SuiteTask, folder: Path | None) -> Sequence[AnsweredQuestion]:
        """The questions that have an answer."""
        every = super().examples(catalog, task, folder)
        answered = [
            example for example in every if isinstance(example, AnsweredQuestion) and example.answer is not None
        ]
        if not answered:
            raise InputError(f'"{task.data}" has no answers: name their column as "answer" of [data.{task.data}]')
        return answered

    def measure(self, job: CellJob) -> Measurements:
        k = int(job.task.options.get("k", K))
        if not job.task.options.get("token_types", True):
            job = replace(job, explainer=_without_token_types(job.explainer))
        task = job.explainer.task
        if not isinstance(task, AnswerSpan):
            raise InputError(f'"{job.task.model}" answers no questions: it has no question-answering head')
        whole, batches = batches_for(job, _targets(job, task))
        for batch in batches:
            marks = [answer_tokens(example, row) for example, row in zip(batch.examples, batch.rows, strict=True)]
            for method in job.methods:
                found = batch.explain(method, whole)
                for i, (row, mark) in enumerate(zip(batch.rows, marks, strict=True)):
                    scores = unpad(task.tokenizer, found.scores[i], row)
                    _add_scores(whole, method.label, scores, mark, k)
                    if batch.numbers[i] < job.shown:
                        shown = batch.explanation(found, i)
                        whole.exhibits.append(text_exhibit(shown, job.places[batch.numbers[i]], method.label))
        return whole


def _without_token_types(explainer: Explainer) -> Explainer:
    """The same model, with a tokenizer that does not tell it which text a token is from."""
    tokenizer = deepcopy(explainer.tokenizer)
    if "token_type_ids" not in tokenizer.model_input_names:
        raise InputError("the model's tokenizer gives no token types that could be left out")
    tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
    return Explainer(explainer.model, tokenizer)


def _targets(job: CellJob, task: AnswerSpan) -> list[tuple[int, int] | None] | None:
    if job.task.explain != "label":
        return None
    return [_window_answer(task, example, job.task.max_length) for example in job.examples]


def _window_answer(task: AnswerSpan, example: AnsweredQuestion, length: int | None) -> tuple[int, int] | None:
    """The right answer; None if no window holds it whole: the predicted one is then explained, and not counted."""
    assert isinstance(example.text, tuple)
    question, context = example.text
    windows = context_windows(task.tokenizer, question, context, task.reader.limit(length))
    return example.answer if any(answer_tokens(example, window).any() for window in windows) else None


def answer_tokens(example: Example, row: TokenRow) -> Bools:
    """[tokens]: is the token part of the right answer? None is if the window does not hold the whole answer."""
    assert isinstance(example, AnsweredQuestion)
    assert example.answer is not None
    span = span_of(row, *example.answer)
    marks = np.zeros(len(row.units), bool)
    if span is not None:
        marks[span.first : span.last + 1] = True
    return marks


def _add_scores(whole: Measurements, label: str, scores: Sequence[float], mark: Bools, k: int) -> None:
    """NaN for a window without the answer."""
    hits = taken = answer = np.nan
    if mark.any():
        counts = precision_at_k([scores], [mark], k=k)
        hits, taken, answer = (float(column[0]) for column in (counts.hits, counts.taken, counts.answer))
    whole.add(label, "hits", [hits])
    whole.add(label, "answer", [answer])
    whole.add(label, "precision_at_k", [hits / taken])
