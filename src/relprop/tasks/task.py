"""The protocol of a task, and what is asked and answered of one example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from relprop.types import Attribution, Box, ExplainedStep


@dataclass(frozen=True)
class Query:
    """One example as the model reads it, and what is explained of it."""

    row: Any  # the reader's
    target: object  # as `relprop.attribute` takes it
    answer: Answered | None = None  # where the task asked the model before
    steps: tuple[Query, ...] | None = None  # where several numbers of the example are explained: a query for each
    joined: Callable[..., Any] | None = None  # makes one explanation of theirs; None keeps them as its steps
    warnings: tuple[str, ...] = ()  # what the explanation's numbers do not say


@dataclass(frozen=True)
class Answered:
    """What is said of one example: what was explained, and what the model predicts."""

    target: str
    prediction: str = ""
    probability: float | None = None
    step: ExplainedStep | None = None  # where it is one of several numbers of the example; its value is not known yet
    box: Box | None = None  # where on a picture it is read
    value: float | None = None  # the number, where it is known before it is explained


class Task(Protocol):
    """What a model is asked."""

    @property
    def name(self) -> str:
        """What its examples are called in messages: "texts"."""

    def check_evaluation(self) -> None:
        """Raise InputError where no class's probability can be read, as `Explainer.evaluate` does."""

    def target(self, target: object) -> object:
        """A target of the user's as `relprop.attribute` takes it."""

    def queries(self, given: Sequence[object], targets: Sequence[object], max_length: int | None) -> list[Query]:
        """Every example read, with its target."""

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        """What is said of the example in row `number` of the batch."""
