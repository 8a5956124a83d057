"""Do the words that score highest agree with those that are known to decide, or that people marked?

Token-F1 at k as Figure 4 of [Chefer21]; precision, reciprocal rank and AUPRC of the marked words, for shortcuts
(Bastings et al. 2022), for words that people changed to change the label, and for the asked pair of a prompt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from re import finditer

import numpy as np
from torch import Tensor

from relprop.bench.catalog import Catalog
from relprop.bench.datasets import AskedValue, Example
from relprop.bench.kinds.batches import Batch, make_batches, text_reader
from relprop.bench.kinds.task_kind import CellJob, TaskKind
from relprop.bench.measurements import MARKED, Measurements
from relprop.bench.suites import SuiteTask
from relprop.errors import InputError
from relprop.metrics import marked_words, token_f1, word_scores
from relprop.metrics.rationales import KS
from relprop.metrics.score_arrays import Bools, Floats
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow, unpad
from relprop.types import Attribution

METRIC = "token_f1"


class Rationales(TaskKind):
    metrics = (METRIC, *MARKED)
    options = ("ks", "right_only")  # right_only: examples that the model gets wrong have no number

    def check(self, job: CellJob) -> None:
        if job.task.options.get("right_only") and job.task.explain != "label":
            raise InputError('right_only is about the class that the data says: set explain = "label"')
        super().check(job)

    def examples(self, catalog: Catalog, task: SuiteTask, folder: Path | None) -> Sequence[Example]:
        found = super().examples(catalog, task, folder)
        if not any(example.evidence for example in found):
            raise InputError(
                f'"{task.data}" has no marked words: name their column as "evidence" of [data.{task.data}]'
            )
        return found

    def measure(self, job: CellJob) -> Measurements:
        """Documents are longer than the model's limit: words that are cut off have no score."""
        ks = tuple(job.task.options.get("ks", KS))
        reader = text_reader(job)
        whole, batches = make_batches(job)
        for batch in batches:
            marks = [marks_of(example) for example in batch.examples]
            words = [words_of(example, row) for example, row in zip(batch.examples, batch.rows, strict=True)]
            for method in job.methods:
                found = batch.explain(method, whole)
                wrong = _wrong(batch, found) if job.task.options.get("right_only") else np.zeros(len(batch.rows), bool)
                scores = _by_word(reader, found.scores, batch.rows, words)
                if METRIC in job.metrics:
                    f1 = np.where(wrong[:, None], np.nan, token_f1(scores, marks, ks=ks).f1)
                    whole.add(method.label, METRIC, f1.mean(1).tolist())
                    whole.add_curve(method.label, METRIC, ks, f1.tolist())
                for metric in (metric for metric in job.metrics if metric in MARKED):
                    values = getattr(marked_words(scores, marks), MARKED[metric])
                    whole.add(method.label, metric, np.where(wrong, np.nan, values).tolist())
        return whole


def _wrong(batch: Batch, found: Attribution) -> Bools:
    """[examples]: does the model say another class, or next token, than the example's own?"""
    assert batch.labels is not None
    assert found.logits is not None
    wrong: Bools = found.logits.argmax(-1).cpu().numpy() != np.array(batch.labels)
    return wrong


def marks_of(example: Example) -> Bools:
    """[words]: is the word in a marked span? Words are separated by blanks; those of a question are no candidates."""
    marks = np.zeros(_candidates(example), bool)
    for start, stop in example.evidence:
        if not 0 <= start <= stop <= len(marks):  # some spans of ERASER are empty
            raise InputError(f"a marked span is [{start}, {stop}), but the document has {len(marks)} words")
        marks[start:stop] = True
    return marks


def words_of(example: Example, row: TokenRow) -> list[int]:
    """The number of the word that each unit belongs to, by its position in the text; -1 for special tokens."""
    spans = [word.span() for word in finditer(r"\S+", _single_text(example))][: _candidates(example)]
    starts = [start for start, _ in spans]
    found = []
    for unit in row.units:
        if unit.start is None and not unit.special:
            raise InputError(
                "words are found by the positions of tokens in the text, which only a fast tokenizer gives"
            )
        word = -1 if unit.start is None else bisect_right(starts, unit.start) - 1
        found.append(word if word >= 0 and (unit.start or 0) < spans[word][1] else -1)
    return found


def _candidates(example: Example) -> int:
    """How many words may be marked, from the first on."""
    return example.question if isinstance(example, AskedValue) else len(_single_text(example).split())


def _single_text(example: Example) -> str:
    if not isinstance(example.text, str):
        raise InputError("marked words belong to one text, and this is a pair of texts")
    return example.text


def _by_word(reader: TextReader, scores: Tensor, rows: list[TokenRow], words: list[list[int]]) -> list[Floats]:
    """A word's score is the highest of its tokens."""
    pairs = zip(scores, rows, words, strict=True)
    return [word_scores([unpad(reader.tokenizer, one, row)], [places])[0] for one, row, places in pairs]
