"""A question and its context: in overlapping windows where the context is long, and answers as spans of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from relprop.errors import InputError
from relprop.readers.tokens import TokenRow, ids_of, parts_of, units_of
from relprop.tokenising import tokenise

OVERLAP = 128  # tokens that neighbouring windows share, as is usual for SQuAD
LONGEST = 30  # tokens of a predicted answer, as is usual for SQuAD


def context_windows(
    tokenizer: Any, question: str, context: str, limit: int | None, overlap: int | None = None
) -> list[TokenRow]:
    """The question with as much of the context as fits, again and again until the context is read.

    Neighbouring windows share `overlap` tokens of the context: at most half of what fits.
    """
    parts = parts_of((question, context))
    if not tokenizer.is_fast:
        raise InputError("question answering needs a fast tokenizer: only those know where a token lies in the text")
    options = {"return_special_tokens_mask": True, "return_offsets_mapping": True, "verbose": False}
    whole = tokenise(tokenizer, *parts, **options)
    count = len(whole["input_ids"])
    if 1 not in whole.sequence_ids():
        raise InputError(f"the tokenizer finds no token in the context {context!r:.60}")
    if limit is None or count <= limit:
        return [TokenRow(ids_of(tokenizer, whole), units_of(tokenizer, parts, whole), None, parts)]
    room = limit - (count - whole.sequence_ids().count(1))
    if room < 2:
        asked = whole.sequence_ids().count(0)
        raise InputError(
            f"the question has {asked} tokens, which leaves no room for the context in the {limit} that are read: "
            "shorten the question"
        )
    stride = min(OVERLAP if overlap is None else overlap, room // 2)
    many = tokenise(
        tokenizer,
        *parts,
        **options,
        truncation="only_second",
        max_length=limit,
        stride=stride,
        return_overflowing_tokens=True,
    )
    rows = []
    for number in range(len(many["input_ids"])):
        one = {name: values[number] for name, values in many.items()}
        units = units_of(tokenizer, parts, one, many.sequence_ids(number))
        rows.append(TokenRow(ids_of(tokenizer, one), units, None, parts))
    return rows


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
