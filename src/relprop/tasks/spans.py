"""Answers as spans of tokens of a window."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from relprop.readers.tokens import TokenRow

LONGEST = 30  # tokens of a predicted answer, as is usual for SQuAD


@dataclass(frozen=True)
class Span:
    """An answer in one window: its first and its last token."""

    first: int
    last: int


@dataclass(frozen=True, eq=False)
class WindowLogits:
    """A window, and what the model says of it: logits [tokens]."""

    window: TokenRow
    start: Tensor
    end: Tensor
    nowhere: Span  # the answer that there is none

    def lead(self, span: Span) -> float:
        """By how much an answer scores above none: so windows compare."""
        return self._score(span) - self._score(self.nowhere)

    def _score(self, span: Span) -> float:
        return (self.start[span.first].double() + self.end[span.last].double()).item()

    def probability(self, span: Span) -> float:
        """That of the start times that of the end, among the tokens of the window."""
        start, end = (logits.double().softmax(-1) for logits in (self.start, self.end))
        return (start[span.first] * end[span.last]).item()

    @cached_property
    def best(self) -> Span | None:
        """The likeliest answer of the context; None where the window holds nothing of it."""
        return best_span(self.window, self.start, self.end)

    def characters(self, span: Span) -> tuple[int, int] | None:
        """Where the answer stands in the context; None for no answer."""
        first, last = self.window.units[span.first].start, self.window.units[span.last].end
        return None if span == self.nowhere or first is None or last is None else (first, last)


def no_answer_span(tokenizer: Any, window: TokenRow) -> Span:
    """The token at which a model that knows unanswerable questions (SQuAD 2) points when nothing answers.

    [CLS], where there is one; else the token that begins the text; else the first.
    """
    ids = window.ids["input_ids"]
    for token in (tokenizer.cls_token_id, tokenizer.bos_token_id):
        if token in ids:
            return Span(ids.index(token), ids.index(token))
    return Span(0, 0)


def best_span(window: TokenRow, start: Tensor, end: Tensor, longest: int = LONGEST) -> Span | None:
    """The likeliest answer within the context, from a window's logits [tokens]; None where there is no context."""
    inside = torch.tensor([unit.segment == 1 and not unit.special for unit in window.units])
    pairs = start.double()[:, None] + end.double()[None, :]
    allowed = torch.ones_like(pairs, dtype=torch.bool).triu().tril(longest - 1) & inside[:, None] & inside[None, :]
    if not allowed.any():
        return None
    pairs = pairs.masked_fill(~allowed, -torch.inf)
    return Span(*divmod(int(pairs.argmax()), len(window.units)))


def span_of(window: TokenRow, begin: int, stop: int) -> Span | None:
    """The tokens of the context's characters [begin, stop); None where the window does not hold them all."""
    inside = [
        i for i, unit in enumerate(window.units)
        if unit.segment == 1 and unit.start is not None and unit.end is not None
        and unit.start < stop and unit.end > begin
    ]  # fmt: skip
    if not inside:
        return None
    first, last = window.units[inside[0]], window.units[inside[-1]]
    whole = first.start is not None and first.start <= begin and last.end is not None and last.end >= stop
    return Span(inside[0], inside[-1]) if whole else None
