"""Classes: the score of one class of several, or a difference of two; one number; several labels of one text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import nn

from relprop.engine.model_call import labels_of
from relprop.errors import TargetError
from relprop.model_config import config_value
from relprop.readers import Reader, read_all
from relprop.readers.text import TextReader
from relprop.targets import class_index
from relprop.tasks.task import Answered, Query
from relprop.types import Attribution, ExplainedStep

NUMBER = "the number"  # of a model that gives one, unless its config names it


class ClassScore:
    """The logit of a class. `target`: a class index or name, None for the predicted one, a pair for a difference.

    A model that gives texts several labels takes a list of these too: a step for each.
    """

    def __init__(self, model: nn.Module, reader: Reader[Any]) -> None:
        self.model = model
        self.reader = reader

    @property
    def name(self) -> str:
        return self.reader.name

    def target(self, target: object) -> object:
        return target

    def check_evaluation(self) -> None:
        pass

    def queries(self, given: Sequence[object], targets: Sequence[object], max_length: int | None = None) -> list[Query]:
        rows = read_all(self.reader, given, max_length)
        return [self._query(row, target) for row, target in zip(rows, targets, strict=True)]

    @property
    def takes_lists(self) -> bool:
        """Whether several labels of one example are explained at once."""
        return is_multi_label(self.model) and isinstance(self.reader, TextReader)

    def _query(self, row: Any, target: object) -> Query:
        if not isinstance(target, list):
            self._check_number(target)
            return Query(row, self.target(target))
        if not self.takes_lists or not target:
            raise TargetError(
                "a list of targets for one example is a list of labels, for models of texts whose config has the "
                f'problem_type "multi_label_classification"; got {target!r:.80}'
            )
        return Query(row, None, Answered(f"sum of {len(target)} labels"), tuple(Query(row, one) for one in target))

    def _check_number(self, target: object) -> None:
        """Raise for a class of a model that gives one number."""
        labels = labels_of(self.model) or {}
        if len(labels) != 1 or is_multi_label(self.model) or callable(target):
            return
        if target not in (None, 0, "0", *labels.values()):
            raise TargetError(f"the model gives one number, no classes: leave out target, got {target!r:.80}")

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        best, probability = likeliest(self.model, found, number)
        prediction = "" if best is None else self.class_name(best)
        name = self.target_name(found.target[number])
        if name == "LABEL_0" and found.logits is not None and found.logits.shape[-1] == 1:
            name = NUMBER
        return Answered(name, prediction, probability, self._step(query.target, name, found, number))

    def _step(self, target: object, name: str, found: Attribution, number: int) -> ExplainedStep | None:
        """A label that a text has or has not, whatever others it has."""
        if found.logits is None or not is_multi_label(self.model) or callable(target):
            return None
        logits, first = found.logits[number].double(), target[0] if isinstance(target, tuple) else target
        labels = labels_of(self.model)
        index = int(logits.argmax()) if first is None else class_index(first, len(logits), labels)
        label, sure = self.class_name(index), logits[index].sigmoid().item()
        return ExplainedStep((), label, name, math.nan, sure, f"not {label}", 1 - sure)

    def class_name(self, index: int) -> str:
        return (labels_of(self.model) or {}).get(index, str(index))

    def target_name(self, name: str) -> str:
        """The name of what was explained, from what `Attribution.target` says."""
        return name


def likeliest(model: nn.Module, found: Attribution, number: int) -> tuple[int | None, float | None]:
    """The likeliest class of an example and its probability, where the target is one class of several."""
    if found.logits is None or found.logits.shape[-1] < 2:
        return None, None
    logits = found.logits[number].double()
    probabilities = logits.sigmoid() if is_multi_label(model) else logits.softmax(-1)
    best = int(probabilities.argmax())
    return best, probabilities[best].item()


def is_multi_label(model: nn.Module) -> bool:
    """Whether an example may have several labels: each has a probability of its own."""
    return bool(config_value(model, "problem_type") == "multi_label_classification")
