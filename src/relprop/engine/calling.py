"""Calling the user's model: as it is, in eval mode, and with what goes wrong said in one sentence."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.sources import MisfitError
from relprop.errors import ModelError, RelpropError
from relprop.rulebook.zplus import OneWayError
from relprop.targets import Chosen, Labels, Several, TokenAt


def wide(tensor: Tensor) -> Tensor:
    """In float32 or better."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


_ANY: Any = lambda outputs: outputs  # noqa: E731  (a target that may read every row)


def call(model: nn.Module, inputs: Mapping[str, Any], target: Any = _ANY) -> Any:
    """`model(**inputs)`, without a cache of keys and values, and with those logits only that the target reads."""
    settings: dict[str, Any] = {"use_cache": False}
    if generates(model) and (rows := rows_read(target, inputs)) is not None:
        settings["logits_to_keep"] = rows
    taken = inspect.signature(model.forward).parameters
    extra = {name: value for name, value in settings.items() if name in taken and name not in inputs}
    try:
        return model(**inputs, **extra)
    except (RelpropError, MisfitError, OneWayError):
        raise
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise ModelError(f"running the model failed: {type(error).__name__}: {reason}") from error


def rows_read(target: Any, inputs: Mapping[str, Any]) -> int | None:
    """How many of a language model's last rows the target reads; None where it may read any.

    A next token is read off the last row, but where an example of the batch ends in padding.
    """
    if isinstance(target, Several | list):
        each = [rows_read(one, inputs) for one in (target.targets if isinstance(target, Several) else target)]
        known = [rows for rows in each if rows is not None]
        return max(known, default=None) if len(known) == len(each) else None
    if isinstance(target, TokenAt):
        return -target.row if target.row < 0 else None
    mask = inputs.get("attention_mask")
    padded = isinstance(mask, Tensor) and mask.dim() == 2 and not bool((mask[:, -1] != 0).all())
    return None if callable(target) or padded else 1


def labels_of(model: nn.Module) -> Labels | None:
    labels = getattr(getattr(model, "config", None), "id2label", None)
    return {int(index): str(name) for index, name in labels.items()} if isinstance(labels, dict) else None


def generates(model: nn.Module) -> bool:
    """A language model: its outputs are tokens."""
    return bool(getattr(model, "can_generate", lambda: False)())


def answers_questions(model: nn.Module) -> bool:
    """Does the model have a question-answering head? It then learns from the answers' places."""
    return "start_positions" in inspect.signature(model.forward).parameters


def is_dispatched(model: nn.Module) -> bool:
    """Whether accelerate places its weights: those that it keeps elsewhere are loaded for each module's call."""
    return any(hasattr(module, "_hf_hook") for module in model.modules())


def device_of(model: nn.Module) -> torch.device:
    """Where its inputs belong. A dispatched model moves them on by itself."""
    tensors = (*model.parameters(), *model.buffers())
    return next((tensor.device for tensor in tensors if not tensor.is_meta), torch.device("cpu"))


def batch_of(inputs: Mapping[str, Any]) -> int:
    return next((len(value) for value in inputs.values() if isinstance(value, Tensor) and value.dim()), 1)


def check_finite(model: nn.Module, chosen: Chosen) -> None:
    numbers = chosen.value if chosen.rows is None else chosen.rows
    if not torch.isfinite(numbers).all():
        broken = [name for name, p in model.named_parameters() if not p.is_meta and not torch.isfinite(p).all()]
        cause = f'its parameter "{broken[0]}" is not finite' if broken else "its weights are finite: check the input"
        raise ModelError(f"the model's output is not a finite number; {cause}")


def check_live(chosen: Chosen) -> None:
    if not chosen.value.requires_grad:
        raise ModelError(
            "no relevance can flow from the target to the input: under these rules the output is a constant "
            "(explain logits rather than probabilities)"
        )


_evaluating: weakref.WeakKeyDictionary[nn.Module, list[Any]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode, each module's own flag restored after; threads that share a model leave it together."""
    with _lock:
        entry = _evaluating.get(model)
        if entry is None:
            training = [module for module in model.modules() if module.training]
            entry = _evaluating[model] = [0, training]
            for module in training:
                module.training = False
        entry[0] += 1
    try:
        yield
    finally:
        with _lock:
            entry[0] -= 1
            if entry[0] == 0:
                del _evaluating[model]
                for module in entry[1]:
                    module.training = True
