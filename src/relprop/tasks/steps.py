"""Several numbers of one text, each explained by itself, as the steps of one explanation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from relprop.engine.model_call import call, evaluating
from relprop.engine.restoring import restoring
from relprop.errors import ModelError
from relprop.explanation import Explanation, warnings_of
from relprop.outputs import logits_of
from relprop.part import Part, joined_parts
from relprop.readers import tokens
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow
from relprop.registry import Record
from relprop.tasks.task import Answered, Query
from relprop.types import ExplainedStep

READ_AT_ONCE = 8  # texts whose logits are asked for before anything is explained
Explained = tuple[Explanation, Answered]


def joined_steps(query: Query, method: Record[Any], explained: Sequence[Explained]) -> Explanation:
    """One explanation with a step for each number. Without any, all is 0: the sum of no numbers."""
    answer = query.answer
    assert answer is not None
    steps = tuple(_step(*one) for one in explained)
    first = explained[0][1] if explained else answer
    return Explanation(
        parts=_parts(query.row, [one.parts for one, _ in explained]),
        method=method.name,
        target=answer.target,
        value=sum(step.value for step in steps),
        prediction=answer.prediction or first.prediction,
        probability=answer.probability if answer.prediction else first.probability,
        signed=method.signed,
        quantity=explained[0][0].quantity if explained else "",
        steps=steps,
        warnings=(*query.warnings, *warnings_of(one for one, _ in explained)),
    )


def _parts(row: Any, steps: Sequence[tuple[Part, ...]]) -> tuple[Part, ...]:
    """Every part with the scores of all steps."""
    if steps:
        return tuple(map(joined_parts, zip(*steps, strict=True)))
    assert isinstance(row, TokenRow)  # a text in which nothing was found
    return (row.part("input_ids", (0.0,) * len(row.units)),)


def _step(one: Explanation, answer: Answered) -> ExplainedStep:
    assert answer.step is not None
    return replace(answer.step, value=one.value, ledger=one.ledger, baseline=one.baseline, box=one.box)


def step_of(target: str, index: int, probabilities: Tensor, named: Callable[[int], str]) -> ExplainedStep:
    """The step of one token or label among all of them, of which [classes] are the probabilities."""
    others = probabilities.clone()
    others[index] = -1
    second = int(others.argmax())
    return ExplainedStep(
        tokens=(),
        name=named(index),
        target=target,
        value=math.nan,
        probability=probabilities[index].item(),
        runner_up=named(second) if len(others) > 1 else "",
        runner_up_probability=probabilities[second].item() if len(others) > 1 else None,
    )


@restoring
def token_logits(reader: TextReader, rows: Sequence[TokenRow], places: Sequence[Sequence[int]]) -> list[Tensor]:
    """What the model says at some tokens of each text: logits [places, classes], without a backward pass."""
    found: dict[int, Tensor] = {}
    for batch in reader.batches(rows, READ_AT_ONCE):
        inputs = reader.inputs([rows[i] for i in batch])
        with torch.no_grad(), evaluating(reader.model):
            logits = logits_of(call(reader.model, inputs))
        if logits.dim() != 3 or logits.shape[:2] != inputs["input_ids"].shape:
            raise ModelError(
                f"the model should give scores for each of {inputs['input_ids'].shape[1]} tokens, and gave logits of "
                f"shape {list(logits.shape)}"
            )
        for number, i in enumerate(batch):
            first = logits.shape[1] - len(rows[i].units) if tokens.pads_left(reader.tokenizer) else 0
            found[i] = logits[number, [first + place for place in places[i]]].double().cpu()
    return [found[i] for i in range(len(rows))]
