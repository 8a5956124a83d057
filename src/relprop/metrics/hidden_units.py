"""The model on inputs with some units hidden: in full batches, and each distinct input once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from relprop.engine.model_call import call, evaluating
from relprop.engine.restoring import restoring
from relprop.engine.wrappers import unwrapped
from relprop.errors import InputError, ModelError
from relprop.outputs import logits_of

# From the examples' indices [rows] and the hidden units of each [rows, units] to the model's input.
HideUnits = Callable[[Tensor, Tensor], Mapping[str, Any] | Tensor]


class Hidden(NamedTuple):
    """One question to the model: an example by its index, and which of its units are hidden."""

    example: int
    units: Tensor


def stack_questions(questions: Iterable[Hidden]) -> tuple[Tensor, Tensor]:
    """The examples' indices [questions], and the hidden units [questions, units]."""
    examples, units = zip(*questions, strict=True)
    return torch.tensor(examples), torch.stack(units)


def moved_together(kept: Tensor) -> tuple[Tensor, Tensor]:
    """Where the kept units come from once they are moved to the front [rows, most kept], and which columns hold one."""
    width = max(1, int(kept.sum(1).max()))
    order = (~kept).to(torch.uint8).argsort(dim=1, stable=True)[:, :width]
    return order, kept.gather(1, order)


@restoring
def logits_without(
    model: nn.Module,
    hide: HideUnits,
    questions: Iterable[Hidden],
    *,
    batch_size: int = 32,
    keys: Iterable[bytes] | None = None,
) -> Tensor:
    """The logits [questions, classes], in order.

    Questions are drawn one by one and answered in full batches. Questions with equal `keys` (one per question) are
    asked once; by default those of one example that hide the same units.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    model = unwrapped(model)
    keyed = ((q, _key(q)) for q in questions) if keys is None else zip(questions, keys, strict=True)
    rows: list[int] = []  # of each question: the row of its answer
    row_of: dict[bytes, int] = {}
    waiting: list[Hidden] = []
    answers: list[Tensor] = []
    with evaluating(model), torch.no_grad():
        for question, key in keyed:
            digest = blake2b(key, digest_size=16).digest()
            if digest not in row_of:
                row_of[digest] = len(row_of)
                waiting.append(question)
            rows.append(row_of[digest])
            if len(waiting) == batch_size:
                answers.append(_answer(model, hide, waiting))
                waiting = []
        if waiting:
            answers.append(_answer(model, hide, waiting))
    return torch.cat(answers)[rows]


def _key(question: Hidden) -> bytes:
    return question.example.to_bytes(8) + np.packbits(question.units.cpu().numpy()).tobytes()


def _answer(model: nn.Module, hide: HideUnits, questions: list[Hidden]) -> Tensor:
    inputs = hide(*stack_questions(questions))
    if isinstance(inputs, Tensor):
        inputs = {next(iter(inspect.signature(model.forward).parameters)): inputs}
    logits = logits_of(call(model, inputs)).cpu()
    if logits.dim() != 2 or len(logits) != len(questions):
        raise ModelError(f"expected logits [{len(questions)}, classes], the model gave {list(logits.shape)}")
    if not torch.isfinite(logits).all():
        raise ModelError("the model's output is not a finite number; check the inputs and how they are prepared")
    return logits
