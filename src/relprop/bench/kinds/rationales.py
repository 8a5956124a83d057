"""Do the words that score highest agree with those that people marked? Token-F1 at k, as figure 4 of [Chefer21]."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from re import finditer

import numpy as np
from torch import Tensor

from relprop.bench.datasets import Example
from relprop.bench.kinds.batches import batched, texts_of
from relprop.bench.kinds.kind import Job
from relprop.bench.measured import Measured
from relprop.bench.suites import Suite, Task
from relprop.domains.text import Encoded, unpad
from relprop.errors import InputError, unknown_name
from relprop.metrics import token_f1, word_scores
from relprop.metrics.rationales import KS
from relprop.metrics.score_arrays import Bools, Floats
from relprop.texts import Texts

METRIC = "token_f1"


def examples(suite: Suite, task: Task, folder: Path | None) -> Sequence[Example]:
    data = suite.catalog.dataset(task.data)
    found = data.examples(task.split, folder)
    if not any(example.evidence for example in found):
        raise InputError(f'"{data.name}" has no marked words: name their column as "evidence" of [data.{data.name}]')
    return found


def check(job: Job) -> None:
    """One document through everything."""
    for option in job.task.options:
        if option != "ks":
            raise unknown_name("option of rationales", option, ["ks"])
    if job.metrics != (METRIC,):
        raise InputError(f"rationales take the metric {METRIC}; got {', '.join(job.metrics) or 'none'}")
    measure(job)


def measure(job: Job) -> Measured:
    ks = tuple(job.task.options.get("ks", KS))
    texts = texts_of(job)
    whole, batches = batched(job, texts)  # documents are longer than models read: what is cut off counts against them
    for batch in batches:
        marks = [marked(example) for example in batch.examples]
        words = [words_of(example, row) for example, row in zip(batch.examples, batch.rows, strict=True)]
        for method in job.methods:
            scores = batch.explained(method, whole).scores
            result = token_f1(_by_word(texts, scores, batch.rows, words), marks, ks=ks)
            whole.add(method.label, METRIC, result.f1.mean(1).tolist())
            whole.add_curve(method.label, METRIC, ks, result.f1.tolist())
    return whole


def marked(example: Example) -> Bools:
    """[words]: is the word, as blanks part them, in a marked span?"""
    marks = np.zeros(len(_plain(example).split()), bool)
    for start, stop in example.evidence:
        if not 0 <= start <= stop <= len(marks):  # some spans of ERASER are empty
            raise InputError(f"a marked span is [{start}, {stop}), but the document has {len(marks)} words")
        marks[start:stop] = True
    return marks


def words_of(example: Example, row: Encoded) -> list[int]:
    """Which word each unit is a piece of, by their places in the text; -1 for special tokens, which are of none."""
    spans = [word.span() for word in finditer(r"\S+", _plain(example))]
    starts = [start for start, _ in spans]
    found = []
    for unit in row.units:
        if unit.start is None and not unit.special:
            raise InputError("words are told by where tokens stand in the text, which only a fast tokenizer says")
        word = -1 if unit.start is None else bisect_right(starts, unit.start) - 1
        found.append(word if word >= 0 and (unit.start or 0) < spans[word][1] else -1)
    return found


def _plain(example: Example) -> str:
    if not isinstance(example.text, str):
        raise InputError("marked words are of one text, and this is a pair of texts")
    return example.text


def _by_word(texts: Texts, scores: Tensor, rows: list[Encoded], words: list[list[int]]) -> list[Floats]:
    """A word's score is the best of its tokens'."""
    pairs = zip(scores, rows, words, strict=True)
    return [word_scores([unpad(texts.tokenizer, one, row)], [places])[0] for one, row, places in pairs]
