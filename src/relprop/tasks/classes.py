"""Classes: the score of one class of several, or a difference of two; one number; several labels of one text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from relprop.engine.model_call import labels_of
from relprop.errors import TargetError
from relprop.model_config import config_value
from relprop.readers import Reader, read_all
from relprop.readers.text import TextReader
from relprop.targets import Labels, class_index
from relprop.tasks.task import Answered, Query, Task
from relprop.types import Attribution, ExplainedStep

NUMBER = "the number"  # of a model that gives one, unless its config names it


class ClassScore:
    """The logit of a class. `target`: a class index or name, None for the predicted one, a pair for a difference.

    A model that gives texts several labels takes a list of these too: a step for each.
    """

    def __init__(self, model: nn.Module, reader: Reader[Any], labels: Labels | None = None) -> None:
        self.model = model
        self.reader = reader
        self.labels = labels  # names of the classes in place of those that the model's config has

    @property
    def name(self) -> str:
        return self.reader.name

    def target(self, target: object) -> object:
        """As given; names that the caller gave the classes become their indices."""
        if self.labels is None or target is None or callable(target):
            return target
        if isinstance(target, tuple):
            return tuple(map(self.target, target))
        return class_index(target, max(self.labels) + 1, self.labels) if isinstance(target, str) else target

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
        labels = self._names
        if len(labels) != 1 or is_multi_label(self.model) or callable(target):
            return
        if target not in (None, 0, "0", *labels.values()):
            raise TargetError(f"the model gives one number, no classes: leave out target, got {target!r:.80}")

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        best, probability = likeliest(self.model, found, number)
        prediction = "" if best is None else self.class_name(best)
        name = self._explained(query.target, found, number)
        if name == "LABEL_0" and found.logits is not None and found.logits.shape[-1] == 1:
            name = NUMBER
        return Answered(name, prediction, probability, self._step(query.target, name, found, number))

    def _step(self, target: object, name: str, found: Attribution, number: int) -> ExplainedStep | None:
        """A label that a text has or has not, whatever others it has."""
        if found.logits is None or not is_multi_label(self.model) or callable(target):
            return None
        logits, first = found.logits[number].double(), target[0] if isinstance(target, tuple) else target
        index = int(logits.argmax()) if first is None else class_index(first, len(logits), self._names)
        label, sure = self.class_name(index), logits[index].sigmoid().item()
        return ExplainedStep((), label, name, math.nan, sure, f"not {label}", 1 - sure)

    @property
    def _names(self) -> Labels:
        return self.labels or labels_of(self.model) or {}

    def class_name(self, index: int) -> str:
        return self._names.get(index, str(index))

    def _explained(self, target: object, found: Attribution, number: int) -> str:
        """The name of what was explained; by the caller's own names where there are some."""
        if self.labels is None or found.logits is None or callable(target):
            return self.target_name(found.target[number])
        if len(self.labels) != found.logits.shape[-1]:
            raise TargetError(
                f"{len(self.labels)} labels were given, and the model has {found.logits.shape[-1]} classes"
            )
        each = target if isinstance(target, tuple) else (target,)
        best = int(found.logits[number].argmax())
        return " - ".join(self.class_name(best if one is None else int(one)) for one in each)

    def target_name(self, name: str) -> str:
        """The name of what was explained, from what `Attribution.target` says."""
        return name


def with_labels(task: Task, labels: Labels | Sequence[str]) -> ClassScore:
    """A classifier's task with names of the caller's own for its classes."""
    if type(task) is not ClassScore:
        raise TargetError("labels name the classes of a classifier, and this model is asked something else")
    pairs = labels.items() if isinstance(labels, Mapping) else enumerate(labels)
    return ClassScore(task.model, task.reader, {int(index): str(name) for index, name in pairs})


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
