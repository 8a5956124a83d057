"""What a recipe's model learns: the class of a text, or where a context answers a question."""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.bench.datasets import Answered, Data, Example
from relprop.domains import qa
from relprop.domains.text import Encoded

_ARTICLES = re.compile(r"\b(a|an|the)\b")


@dataclass(frozen=True)
class Row:
    """What the model reads, and what it should say: a class, or the first and last token of an answer."""

    ids: dict[str, list[int]]
    right: tuple[int, ...]


class Lesson(Protocol):
    """What differs between kinds of models."""

    head: str  # the class of transformers that puts a new head on a pretrained start

    def settings(self, data: Data) -> dict[str, Any]:
        """The head's settings."""

    def rows(self, tokenizer: Any, examples: Sequence[Example], max_length: int) -> list[Row]:
        """What is learned from; of a long context, several."""

    def loss(self, outputs: Any, right: Tensor) -> Tensor:
        """How far the outputs are from what is right [batch, numbers]."""

    def marks(self, model: Any, tokenizer: Any, examples: Sequence[Example], max_length: int) -> dict[str, float]:
        """How well the model does, "accuracy" first."""


class Classes:
    """The class of a text, or of a pair of texts."""

    head = "AutoModelForSequenceClassification"

    def settings(self, data: Data) -> dict[str, Any]:
        names = dict(enumerate(data.classes))
        return {"id2label": names, "label2id": {name: number for number, name in names.items()}}

    def rows(self, tokenizer: Any, examples: Sequence[Example], max_length: int) -> list[Row]:
        rows = []
        for example in examples:
            parts = example.text if isinstance(example.text, tuple) else (example.text,)
            rows.append(Row(dict(tokenizer(*parts, truncation=True, max_length=max_length)), (example.label,)))
        return rows

    def loss(self, outputs: Any, right: Tensor) -> Tensor:
        return F.cross_entropy(outputs.logits, right[:, 0])

    def marks(self, model: Any, tokenizer: Any, examples: Sequence[Example], max_length: int) -> dict[str, float]:
        rows = self.rows(tokenizer, examples, max_length)
        hits = 0
        for batch, outputs in read(model, tokenizer, [row.ids for row in rows]):
            hits += int((outputs.logits.argmax(-1) == torch.tensor([rows[i].right[0] for i in batch])).sum())
        return {"accuracy": hits / len(rows)}


class Answers:
    """Where a context answers a question. A window without the answer has its place at the row for no answer."""

    head = "AutoModelForQuestionAnswering"

    def settings(self, data: Data) -> dict[str, Any]:
        return {}

    def rows(self, tokenizer: Any, examples: Sequence[Example], max_length: int) -> list[Row]:
        return [
            Row(window.ids, self._place(tokenizer, example, window))
            for example in examples
            for window in qa.windows(tokenizer, *_pair(example), max_length, max_length // 4)
        ]

    def _place(self, tokenizer: Any, example: Example, window: Encoded) -> tuple[int, int]:
        answer = example.answer if isinstance(example, Answered) else None
        span = qa.span_of(window, *answer) if answer else None
        span = span or qa.nowhere(tokenizer, window)
        return span.first, span.last

    def loss(self, outputs: Any, right: Tensor) -> Tensor:
        parts = zip((outputs.start_logits, outputs.end_logits), right.T, strict=True)
        return torch.stack([F.cross_entropy(logits, place) for logits, place in parts]).mean()

    def marks(self, model: Any, tokenizer: Any, examples: Sequence[Example], max_length: int) -> dict[str, float]:
        """Answers that are the same, and the share of words that they have in common, as SQuAD counts."""
        found = [qa.windows(tokenizer, *_pair(example), max_length, max_length // 4) for example in examples]
        owners = [(number, window) for number, every in enumerate(found) for window in every]
        best: dict[int, tuple[float, str]] = {}
        for batch, outputs in read(model, tokenizer, [window.ids for _, window in owners]):
            for k, i in enumerate(batch):
                number, window = owners[i]
                count = len(window.units)
                start, end = outputs.start_logits[k, :count], outputs.end_logits[k, :count]
                one = qa.Read(window, start, end, qa.nowhere(tokenizer, window))
                lead = one.lead(one.best) if one.best else -torch.inf
                if one.best and lead > best.get(number, (-torch.inf, ""))[0]:
                    best[number] = lead, _said(examples[number], window, one.best) if lead > 0 else ""
        pairs = [(best[i][1] if i in best else "", _right(example)) for i, example in enumerate(examples)]
        return {
            "accuracy": sum(_words(a) == _words(b) for a, b in pairs) / len(pairs),
            "f1": sum(_overlap(_words(a), _words(b)) for a, b in pairs) / len(pairs),
        }


def _pair(example: Example) -> tuple[str, str]:
    """The question and its context."""
    assert isinstance(example.text, tuple)
    return example.text


def _said(example: Example, window: Encoded, span: qa.Span) -> str:
    """The span in the context's own words."""
    return _pair(example)[1][window.units[span.first].start : window.units[span.last].end]


def _right(example: Example) -> str:
    answer = example.answer if isinstance(example, Answered) else None
    return _pair(example)[1][slice(*answer)] if answer else ""


def _words(text: str) -> list[str]:
    """Without case, punctuation and articles."""
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return _ARTICLES.sub(" ", plain).split()


def _overlap(said: list[str], right: list[str]) -> float:
    if not said or not right:
        return float(said == right)
    common = (Counter(said) & Counter(right)).total()
    return 2 * common / (len(said) + len(right))


def lesson_of(data: Data) -> Lesson:
    """Data with answers teaches to answer, any other its classes."""
    return Answers() if data.answer is not None else Classes()


def shuffled(lengths: Sequence[int], size: int, seed: int) -> list[list[int]]:
    """Indices in batches of similar length, in random order."""
    rng = random.Random(seed)
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], rng.random()))
    batches = [order[k : k + size] for k in range(0, len(order), size)]
    rng.shuffle(batches)
    return batches


@torch.no_grad()
def read(model: Any, tokenizer: Any, rows: Sequence[dict[str, list[int]]]) -> Iterator[tuple[list[int], Any]]:
    """What the model says of every row, batch by batch."""
    model.eval()
    for batch in shuffled([len(row["input_ids"]) for row in rows], 64, 0):
        yield batch, model(**tokenizer.pad([rows[i] for i in batch], return_tensors="pt"))
