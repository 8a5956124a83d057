"""Multiple choice: why one of several endings or answers, and not another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.model_call import call, evaluating
from relprop.engine.restoring import restoring
from relprop.errors import InputError, ModelError, TargetError
from relprop.explanation import Explanation, warnings_of
from relprop.outputs import logits_of
from relprop.readers.choices import ChoiceReader
from relprop.readers.tokens import TokenRow
from relprop.registry import Record
from relprop.targets import class_index
from relprop.tasks.steps import Explained
from relprop.tasks.task import Answered, Query
from relprop.types import Attribution, Ledger

_FORM = 'a text with its choices is given as ("text", ["one choice", "another"])'
# How far a choice's score alone may be from its score among the others, relative to the largest.
_SAME = {torch.float64: 1e-6, torch.float32: 1e-3}
_COARSE = 5e-2


@dataclass(frozen=True)
class ChoiceAnswered(Answered):
    """What is said of a text with its choices, and the logit that the choice has among the others."""

    logit: float = 0.0
    near: float = 0.0


class ChoiceScore:
    """The logit of a choice, over the tokens of the text with that choice.

    `target`: a choice by its index or its text, None for the likeliest, a pair for a difference: then each choice is a
    part of its own.
    """

    name = "texts"

    def __init__(self, model: nn.Module, reader: ChoiceReader) -> None:
        self.model = model
        self.reader = reader

    def target(self, target: object) -> object:
        return target

    def check_evaluation(self) -> None:
        raise InputError("evaluate reads the probability of one class per text, and choices differ from text to text")

    def queries(self, given: Sequence[object], targets: Sequence[object], max_length: int | None) -> list[Query]:
        queries = []
        for number, (one, target) in enumerate(zip(given, targets, strict=True)):
            which = f"text {number} of the list: " if len(given) > 1 else ""
            try:
                queries.append(self._query(one, target, max_length))
            except (InputError, TargetError) as error:
                raise type(error)(f"{which}{error}") from None
        return queries

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        answer = query.answer
        assert isinstance(answer, ChoiceAnswered)
        alone = found.value[number].item()
        if abs(alone - answer.logit) > answer.near:
            raise ModelError(
                f"the model gives the choice {answer.target} {alone:.6g} alone and {answer.logit:.6g} among the "
                "others: it compares choices with each other, and they cannot be explained one by one"
            )
        return answer

    def _query(self, given: object, target: object, max_length: int | None) -> Query:
        text, choices = _checked(given)
        rows = [self.reader.read((text, choice), max_length) for choice in choices]
        logits = self._logits(rows)
        names = dict(enumerate(choices))
        if callable(target):
            raise TargetError("a target is a choice, by its index or its text, or a pair of choices; not a function")
        pair = target if isinstance(target, tuple) else (target,)
        if len(pair) > 2:
            raise TargetError(f"a difference takes two choices, got {len(pair)}: {target!r:.80}")
        best = int(logits.argmax())
        indices = [best if one is None else class_index(one, len(choices), names) for one in pair]
        likely = (choices[best], logits.softmax(-1)[best].item())
        single = [Query(rows[i], 0, self._answer(repr(choices[i]), likely, logits, i)) for i in indices]
        if len(single) == 1:
            return single[0]
        name = " - ".join(repr(choices[i]) for i in indices)
        return Query(rows[indices[0]], None, Answered(name, *likely), tuple(single), joined_choices)

    def _answer(self, name: str, likely: tuple[str, float], logits: Tensor, index: int) -> ChoiceAnswered:
        dtypes = {parameter.dtype for parameter in self.model.parameters() if parameter.is_floating_point()}
        near = max((_SAME.get(dtype, _COARSE) for dtype in dtypes), default=_SAME[torch.float32])
        return ChoiceAnswered(
            name, *likely, logit=logits[index].item(), near=near * max(1.0, float(logits.abs().max()))
        )

    @restoring
    def _logits(self, rows: Sequence[TokenRow]) -> Tensor:
        """What the model gives all choices of a text, side by side."""
        with torch.no_grad(), evaluating(self.model):
            logits = logits_of(call(self.model, self.reader.together(rows)))
        if logits.shape != (1, len(rows)):
            raise ModelError(
                f"the model should give one score for each of {len(rows)} choices, and gave logits of shape "
                f"{list(logits.shape)}"
            )
        return logits[0].double().cpu()


def joined_choices(query: Query, method: Record[Any], explained: Sequence[Explained]) -> Explanation:
    """A difference: one part per choice, the second with the other sign where the scores have one."""
    (first, _), (second, _) = explained
    answer, sign = query.answer, -1.0 if method.signed else 1.0
    assert answer is not None
    opposed = replace(second.part, scores=tuple(sign * score for score in second.part.scores))
    ledgers = [one.ledger for one in (first, second)]
    baselines = [one.baseline for one in (first, second)]
    known = all(one is not None for one in ledgers)
    return Explanation(
        parts=(replace(first.part, name="choice"), replace(opposed, name="other choice")),
        method=method.name,
        target=answer.target,
        value=first.value - second.value,
        prediction=answer.prediction,
        probability=answer.probability,
        ledger=Ledger.summed([ledgers[0], _negated(ledgers[1])]) if known else None,  # type: ignore[list-item,arg-type]
        baseline=None if None in baselines else baselines[0] - baselines[1],  # type: ignore[operator]
        signed=method.signed,
        warnings=warnings_of((first, second)),
    )


def _negated(ledger: Ledger) -> Ledger:
    entries = tuple(replace(entry, value=-entry.value) for entry in ledger.entries)
    return replace(ledger, value=-ledger.value, entries=entries)


def _checked(given: object) -> tuple[object, list[str]]:
    """A text and its choices; raises with the form that is expected."""
    if not isinstance(given, tuple | list) or len(given) != 2 or not isinstance(given[1], list | tuple):
        raise InputError(f"{_FORM}; got {given!r:.80}")
    text, choices = given[0], list(given[1])
    if len(choices) < 2 or not all(isinstance(choice, str) for choice in choices):
        raise InputError(f"{_FORM}, two choices or more, each a text; got {given[1]!r:.80}")
    return text, choices
