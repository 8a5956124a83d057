"""Classes: the score of one class of several, or a difference of two. Also regression and multi-label models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from relprop.engine.model_call import labels_of
from relprop.model_config import config_value
from relprop.readers import Reader, read_all
from relprop.tasks.task import Answered, Query
from relprop.types import Attribution


class ClassScore:
    """The logit of a class. `target`: a class index or name, None for the predicted one, a pair for a difference."""

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
        return [Query(row, self.target(target)) for row, target in zip(rows, targets, strict=True)]

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        best, probability = likeliest(self.model, found, number)
        prediction = "" if best is None else self.class_name(best)
        return Answered(self.target_name(found.target[number]), prediction, probability)

    def class_name(self, index: int) -> str:
        return (labels_of(self.model) or {}).get(index, str(index))

    def target_name(self, name: str) -> str:
        """The name of what was explained, from what `Attribution.target` says."""
        return name


def likeliest(model: nn.Module, found: Attribution, number: int) -> tuple[int | None, float | None]:
    """The likeliest class of an example and its probability, where the target is one class of several."""
    if found.logits is None or found.logits.shape[-1] < 2:
        return None, None
    several = config_value(model, "problem_type") == "multi_label_classification"
    logits = found.logits[number].double()
    probabilities = logits.sigmoid() if several else logits.softmax(-1)
    best = int(probabilities.argmax())
    return best, probabilities[best].item()
