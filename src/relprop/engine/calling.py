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
from relprop.targets import Chosen, Labels


def wide(tensor: Tensor) -> Tensor:
    """In float32 or better."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def call(model: nn.Module, inputs: Mapping[str, Any]) -> Any:
    """`model(**inputs)`, without a cache of keys and values where the model would keep one."""
    extra = {}
    if "use_cache" in inspect.signature(model.forward).parameters and "use_cache" not in inputs:
        extra["use_cache"] = False
    try:
        return model(**inputs, **extra)
    except (RelpropError, MisfitError, OneWayError):
        raise
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise ModelError(f"running the model failed: {type(error).__name__}: {reason}") from error


def labels_of(model: nn.Module) -> Labels | None:
    labels = getattr(getattr(model, "config", None), "id2label", None)
    return {int(index): str(name) for index, name in labels.items()} if isinstance(labels, dict) else None


def batch_of(inputs: Mapping[str, Any]) -> int:
    return next((len(value) for value in inputs.values() if isinstance(value, Tensor) and value.dim()), 1)


def check_finite(model: nn.Module, chosen: Chosen) -> None:
    numbers = chosen.value if chosen.rows is None else chosen.rows
    if not torch.isfinite(numbers).all():
        broken = [name for name, p in model.named_parameters() if not torch.isfinite(p).all()]
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
