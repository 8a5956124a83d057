"""Tokens: the score of the next token of a language model, or of the token at a mask of a masked one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

from torch import Tensor, nn

from relprop.engine.model_call import generates
from relprop.errors import InputError, TargetError
from relprop.readers import read_all
from relprop.readers.tokens import TokenRow
from relprop.targets import AtMask, TokenAt, class_index
from relprop.tasks.classes import ClassScore
from relprop.tasks.steps import step_of, token_logits
from relprop.tasks.task import Answered, Query
from relprop.tokenising import tokenise
from relprop.types import Attribution


class TokenScore(ClassScore):
    """The logit of a token. `target`: a token by its text or id, None for the likeliest, a pair for a difference.

    Of a masked language model it is read at the mask; where a text has several, at each, a step for each, or with
    `target=(number, token)` at one of them.
    """

    def __init__(self, model: nn.Module, reader: Any) -> None:
        super().__init__(model, reader)
        self.reader: Any = reader
        self.tokenizer = reader.tokenizer
        self.generates = generates(model)

    def queries(self, given: Sequence[object], targets: Sequence[object], max_length: int | None = None) -> list[Query]:
        if self.generates:
            return super().queries(given, targets, max_length)
        rows = read_all(self.reader, given, max_length)
        masks = [self._masks(row) for row in rows]
        own = [callable(target) for target in targets]  # functions of the outputs, which need no mask
        for i, places in enumerate(masks):
            if not places and not own[i]:
                which = f"text {i} of the list: " if len(masks) > 1 else ""
                raise InputError(
                    f"{which}the text has no mask: write {self.tokenizer.mask_token} in place of the word to explain"
                )
        asked = [i for i in range(len(rows)) if not own[i]]
        if not any(len(masks[i]) > 1 or _is_numbered(targets[i]) for i in asked):
            return [self._query(row, target) for row, target in zip(rows, targets, strict=True)]
        logits = token_logits(self.reader, [rows[i] for i in asked], [masks[i] for i in asked])
        queries = {i: self._at_masks(rows[i], masks[i], one, targets[i]) for i, one in zip(asked, logits, strict=True)}
        return [queries.get(i) or Query(row, targets[i]) for i, row in enumerate(rows)]

    def _query(self, row: TokenRow, target: object) -> Query:
        return Query(row, self.target(target))

    def check_evaluation(self) -> None:
        if not self.generates:
            raise InputError("evaluate hides tokens behind masks, and a masked language model reads masks as questions")

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        return super().answered(query, found, number) if query.answer is None else query.answer

    def target(self, target: object) -> object:
        """A token as its id, a pair as both; of a masked language model at its [MASK]."""
        if self.generates:
            return self._token(target)
        asked = target is None or isinstance(target, str | int | tuple)
        return AtMask(self.tokenizer.mask_token_id, self._token(target)) if asked else target

    def _masks(self, row: TokenRow) -> list[int]:
        return [i for i, token in enumerate(row.ids["input_ids"]) if token == self.tokenizer.mask_token_id]

    def _at_masks(self, row: TokenRow, masks: list[int], logits: Tensor, target: object) -> Query:
        """A target at one mask, or at each of them."""
        if not _is_numbered(target):
            if len(masks) == 1:
                return self._at_mask(row, masks, logits, 0, target)
            steps = tuple(self._at_mask(row, masks, logits, number, target) for number in range(len(masks)))
            said = ", ".join(one.answer.prediction for one in steps if one.answer is not None)
            return Query(row, None, Answered(f"sum of {len(masks)} masks", said), steps)
        assert isinstance(target, tuple)
        number = int(target[0])
        if not 0 <= number < len(masks):
            has = f"{len(masks)} masks, 0 to {len(masks) - 1}" if len(masks) > 1 else "one mask, number 0"
            raise TargetError(f"the text has {has}: target=(number, token) names one of them, got {target!r:.80}")
        return self._at_mask(row, masks, logits, number, target[1])

    def _at_mask(self, row: TokenRow, masks: list[int], logits: Tensor, number: int, target: object) -> Query:
        probabilities = logits[number].softmax(-1)
        best = int(probabilities.argmax())
        pair = target if isinstance(target, tuple) else (target,)
        if len(pair) > 2:
            raise TargetError(f"a difference takes two targets, got {len(pair)}: {target!r:.80}")
        ids = [best if one is None else class_index(self._token(one), len(probabilities), None) for one in pair]
        where = f" at {self.tokenizer.mask_token} {number}" if len(masks) > 1 else ""
        name = " - ".join(map(self.class_name, ids)) + where
        step = step_of(name, ids[0], probabilities, self.class_name)
        answer = Answered(name, self.class_name(best), probabilities[best].item(), replace(step, tokens=(ids[0],)))
        return Query(row, TokenAt(masks[number], *ids), answer)

    def _token(self, target: object) -> object:
        if isinstance(target, tuple):
            return tuple(self._token(one) for one in target)
        if not isinstance(target, str):
            return target
        ids = tokenise(self.tokenizer, target, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            kind = "next-token" if self.generates else "masked-token"
            raise TargetError(
                f"target {target!r} is {len(ids)} tokens; a {kind} target is one (mind the leading space)"
            )
        if ids[0] == self.tokenizer.unk_token_id and target.strip() != self.tokenizer.unk_token:
            raise TargetError(f"target {target!r} is no token that the model knows")
        return ids[0]

    def class_name(self, index: int) -> str:
        return repr(self.tokenizer.decode([index]))

    def target_name(self, name: str) -> str:
        """Ids as the tokens they stand for."""
        parts = name.split(" - ")
        return " - ".join(self.class_name(int(part)) if part.isdigit() else part for part in parts)


def _is_numbered(target: object) -> bool:
    """Whether a target names a mask by its number; two numbers are a pair of token ids."""
    if not isinstance(target, tuple) or len(target) != 2:
        return False
    return isinstance(target[0], Integral) and not isinstance(target[1], Integral)
