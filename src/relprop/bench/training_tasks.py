"""What a recipe's model learns: the class of a text, or where a context answers a question."""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.bench.datasets import AnsweredQuestion, Dataset, Example
from relprop.readers.context_windows import context_windows
from relprop.readers.tokens import TokenRow
from relprop.tasks.spans import WindowLogits, no_answer_span, span_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_ARTICLES = re.compile(r"\b(a|an|the)\b")


@dataclass(frozen=True)
class TrainingRow:
    """The input of a model and its target: a class, or the first and last token of an answer."""

    ids: dict[str, list[int]]
    target: tuple[int, ...]


class ClassificationTask:
    """The class of a text, or of a pair of texts."""

    head = "AutoModelForSequenceClassification"  # of transformers: puts a new head on a pretrained start

    def settings(self, data: Dataset) -> dict[str, object]:
        """The settings of the head."""
        names = dict(enumerate(data.classes))
        return {"id2label": names, "label2id": {name: number for number, name in names.items()}}

    def rows(
        self, tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], max_length: int
    ) -> list[TrainingRow]:
        rows = []
        for example in examples:
            parts = example.text if isinstance(example.text, tuple) else (example.text,)
            rows.append(TrainingRow(dict(tokenizer(*parts, truncation=True, max_length=max_length)), (example.label,)))
        return rows

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.logits, targets[:, 0])

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], max_length: int
    ) -> dict[str, float]:
        rows = self.rows(tokenizer, examples, max_length)
        hits = 0
        for batch, outputs in batch_outputs(model, tokenizer, [row.ids for row in rows]):
            hits += int((outputs.logits.argmax(-1) == torch.tensor([rows[i].target[0] for i in batch])).sum())
        return {"accuracy": hits / len(rows)}


class AnsweringTask:
    """Where a context answers a question. The target of a window without the answer is the token for no answer."""

    head = "AutoModelForQuestionAnswering"

    def settings(self, data: Dataset) -> dict[str, object]:
        return {}

    def rows(
        self, tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], max_length: int
    ) -> list[TrainingRow]:
        return [
            TrainingRow(window.ids, self._target(tokenizer, example, window))
            for example in examples
            for window in context_windows(tokenizer, *_pair(example), max_length, max_length // 4)
        ]

    def _target(self, tokenizer: PreTrainedTokenizerBase, example: Example, window: TokenRow) -> tuple[int, int]:
        span = span_of(window, *answer) if (answer := _answer(example)) else None
        span = span or no_answer_span(tokenizer, window)
        return span.first, span.last

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        parts = zip((outputs.start_logits, outputs.end_logits), targets.T, strict=True)
        return torch.stack([F.cross_entropy(logits, place) for logits, place in parts]).mean()

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example], max_length: int
    ) -> dict[str, float]:
        """Exact match and F1 of words, as SQuAD counts them."""
        found = [context_windows(tokenizer, *_pair(example), max_length, max_length // 4) for example in examples]
        owners = [(number, window) for number, every in enumerate(found) for window in every]
        best: dict[int, tuple[float, str]] = {}
        for batch, outputs in batch_outputs(model, tokenizer, [window.ids for _, window in owners]):
            for k, i in enumerate(batch):
                number, window = owners[i]
                count = len(window.units)
                start, end = outputs.start_logits[k, :count], outputs.end_logits[k, :count]
                one = WindowLogits(window, start, end, no_answer_span(tokenizer, window))
                lead = one.lead(one.best) if one.best else -torch.inf
                if one.best and lead > best.get(number, (-torch.inf, ""))[0]:
                    first, last = window.units[one.best.first], window.units[one.best.last]
                    best[number] = lead, _pair(examples[number])[1][first.start : last.end] if lead > 0 else ""
        right = [_pair(one)[1][slice(*answer)] if (answer := _answer(one)) else "" for one in examples]
        pairs = [(best[i][1] if i in best else "", text) for i, text in enumerate(right)]
        return {
            "accuracy": sum(_words(a) == _words(b) for a, b in pairs) / len(pairs),
            "f1": sum(_word_f1(_words(a), _words(b)) for a, b in pairs) / len(pairs),
        }


def _pair(example: Example) -> tuple[str, str]:
    """The question and its context."""
    assert isinstance(example.text, tuple)
    return example.text


def _answer(example: Example) -> tuple[int, int] | None:
    return example.answer if isinstance(example, AnsweredQuestion) else None


def _words(text: str) -> list[str]:
    """The words without case, punctuation and articles."""
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return _ARTICLES.sub(" ", plain).split()


def _word_f1(predicted: list[str], right: list[str]) -> float:
    if not predicted or not right:
        return float(predicted == right)
    common = (Counter(predicted) & Counter(right)).total()
    return 2 * common / (len(predicted) + len(right))


TrainingTask = ClassificationTask | AnsweringTask


def training_task_for(data: Dataset) -> TrainingTask:
    """Answering for data with answers, else classification."""
    return AnsweringTask() if data.answer is not None else ClassificationTask()


def shuffled_batches(lengths: Sequence[int], size: int, seed: int) -> list[list[int]]:
    """Indices in batches of similar length, in random order."""
    rng = random.Random(seed)
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], rng.random()))
    batches = [order[k : k + size] for k in range(0, len(order), size)]
    rng.shuffle(batches)
    return batches


@torch.no_grad()
def batch_outputs(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: Sequence[dict[str, list[int]]]
) -> Iterator[tuple[list[int], Any]]:
    """The row numbers and the model's outputs of every batch."""
    model.eval()
    for batch in shuffled_batches([len(row["input_ids"]) for row in rows], 64, 0):
        yield batch, model(**tokenizer.pad([rows[i] for i in batch], return_tensors="pt"))
