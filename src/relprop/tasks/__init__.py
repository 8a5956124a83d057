"""Tasks: a model's outputs -> the number that is explained, and its words for people.

A new task is one file here. Tasks of other packages join by the entry point group "relprop.tasks": a function of
(model, reader) that returns a task, or None for models it is not meant for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol

from torch import nn

from relprop.readers import Reader
from relprop.types import Attribution


@dataclass(frozen=True)
class Query:
    """One example as the model reads it, and what is explained of it."""

    row: Any  # the reader's
    target: Any  # as `relprop.attribute` takes it
    answer: Answered | None = None  # where the task asked the model before


@dataclass(frozen=True)
class Answered:
    """What is said of one example: what was explained, and what the model predicts."""

    target: str
    prediction: str = ""
    probability: float | None = None


class Task(Protocol):
    """What a model is asked."""

    @property
    def name(self) -> str:
        """What its examples are called in messages: "texts"."""

    def check_evaluation(self) -> None:
        """Raise InputError where no class's probability can be read, as `Explainer.evaluate` does."""

    def target(self, target: Any) -> Any:
        """A target of the user's as `relprop.attribute` takes it."""

    def queries(self, given: Sequence[Any], targets: Sequence[Any], max_length: int | None) -> list[Query]:
        """Every example read, with its target."""

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        """What is said of the example in row `number` of the batch."""


def task_of(model: nn.Module, reader: Reader[Any]) -> Task:
    """The task of a model, chosen by its signature and config."""
    from relprop.engine.model_call import answers_questions, fills_masks, generates
    from relprop.readers.text import TextReader
    from relprop.tasks.answers import AnswerSpan
    from relprop.tasks.classes import ClassScore
    from relprop.tasks.token import TokenScore

    for point in entry_points(group="relprop.tasks"):
        other: Task | None = point.load()(model, reader)
        if other is not None:
            return other
    if isinstance(reader, TextReader):
        if answers_questions(model):
            return AnswerSpan(model, reader)
        if generates(model) or (fills_masks(model) and reader.tokenizer.mask_token_id is not None):
            return TokenScore(model, reader)
    return ClassScore(model, reader)
