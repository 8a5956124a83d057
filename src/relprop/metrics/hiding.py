"""The model on inputs with units hidden: many at a time, each only once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from relprop.engine.model_call import call, evaluating
from relprop.errors import InputError, ModelError
from relprop.outputs import logits_of

# From the examples' indices [rows] and what is hidden of each [rows, units] to the model's input.
Hide = Callable[[Tensor, Tensor], Mapping[str, Any] | Tensor]


class Hidden(NamedTuple):
    """One question to the model: an example by its index, and which of its units are hidden."""

    example: int
    units: Tensor


def logits_without(
    model: nn.Module,
    hide: Hide,
    questions: Iterable[Hidden],
    *,
    batch_size: int = 32,
    keys: Iterable[bytes] | None = None,
) -> Tensor:
    """The logits [questions, classes], in order.

    Questions are drawn one by one and answered in full batches; one that was asked before is not asked again. The same
    are those with equal `keys`, one a question: by default those of one example that hide the same units.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    keyed = ((q, _key(q)) for q in questions) if keys is None else zip(questions, keys, strict=True)
    places: list[int] = []
    seen: dict[bytes, int] = {}
    waiting: list[Hidden] = []
    answers: list[Tensor] = []
    with evaluating(model), torch.no_grad():
        for question, name in keyed:
            key = blake2b(name, digest_size=16).digest()
            if key not in seen:
                seen[key] = len(seen)
                waiting.append(question)
            places.append(seen[key])
            if len(waiting) == batch_size:
                answers.append(_answer(model, hide, waiting))
                waiting = []
        if waiting:
            answers.append(_answer(model, hide, waiting))
    return torch.cat(answers)[places]


def _key(question: Hidden) -> bytes:
    return question.example.to_bytes(8) + np.packbits(question.units.cpu().numpy()).tobytes()


def _answer(model: nn.Module, hide: Hide, questions: list[Hidden]) -> Tensor:
    which = torch.tensor([question.example for question in questions])
    inputs = hide(which, torch.stack([question.units for question in questions]))
    if isinstance(inputs, Tensor):
        inputs = {next(iter(inspect.signature(model.forward).parameters)): inputs}
    logits = logits_of(call(model, inputs)).cpu()
    if logits.dim() != 2 or len(logits) != len(questions):
        raise ModelError(f"expected logits [{len(questions)}, classes], the model gave {list(logits.shape)}")
    if not torch.isfinite(logits).all():
        raise ModelError("the model's output is not a finite number; check the inputs and how they are prepared")
    return logits
