"""Passes shared between methods: several that want the same pass over the same inputs make it once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Number
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from relprop.targets import Against, Answer, AtMask, Several, TokenAt

_memory = threading.local()
_SAMPLE = 64  # numbers of each weight that are compared: a change through `.data` counts in no version


@dataclass(frozen=True)
class PassKey:
    """What a pass was made of. It holds the objects themselves: an id may be given again to another object."""

    model: nn.Module
    weights: tuple[Any, ...]
    inputs: tuple[tuple[str, Any], ...]  # tensors as copies: the caller may write to his own
    target: Any
    rules: Any
    at: Any

    def matches(self, other: PassKey) -> bool:
        """Whether another pass would find the same."""
        return (
            self.model is other.model
            and self.rules is other.rules
            and self.at == other.at
            and _equal(self.inputs, other.inputs)
            and _equal(self.target, other.target)
            and self.weights == other.weights
        )


@contextmanager
def shared_passes() -> Iterator[None]:
    """Inside, methods that want the same pass (same inputs, target and rules) share one; it is dropped at the end."""
    outer = getattr(_memory, "flows", None)
    _memory.flows = []
    try:
        yield
    finally:
        _memory.flows = outer


def pass_key(model: nn.Module, inputs: Mapping[str, Any], target: Any, rules: Any, at: Any) -> PassKey | None:
    """What makes two passes the same; None where nothing is shared, or where that could not be told."""
    if getattr(_memory, "flows", None) is None:
        return None
    if not all(_comparable(value) for value in inputs.values()) or not _comparable(target):
        return None
    kept = tuple((name, _kept(value)) for name, value in inputs.items())
    try:
        weights = _weights(model)
    except (RuntimeError, NotImplementedError):  # packed weights that cannot be looked at
        return None
    return PassKey(model, weights, kept, _kept(target), rules, at)


def cached_pass(key: PassKey, maps: bool, two_way: bool) -> Any:
    """A known pass with at least what is wanted: one that kept maps also serves those who want none."""
    for known, known_maps, known_two_way, flow in _memory.flows:
        if known_maps >= maps and known_two_way >= two_way and known.matches(key):
            return flow
    return None


def store_pass(key: PassKey, maps: bool, two_way: bool, flow: Any) -> None:
    _memory.flows.append((key, maps, two_way, flow))


def _weights(model: nn.Module) -> tuple[Any, ...]:
    """What changes when a weight does: where it lies, how often torch saw it written to, and some of its numbers."""
    tensors = [*model.parameters(), *model.buffers()]
    return tuple((id(one), one.data_ptr(), _version(one), _sampled(one)) for one in tensors if not one.is_meta)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _sampled(tensor: Tensor) -> tuple[float, ...]:
    flat = tensor.detach().flatten()
    step = max(1, flat.numel() // _SAMPLE)
    return tuple(flat[::step].tolist())


def _comparable(value: Any) -> bool:
    """Whether a later value can be told to be the same. An object of the caller's own may change unseen."""
    if isinstance(value, list | tuple):
        return all(map(_comparable, value))
    known = Tensor | Number | str | FunctionType | Answer | Against | TokenAt | AtMask | Several | torch.dtype
    return value is None or isinstance(value, known)


def _kept(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_kept, value)) if type(value) in (list, tuple) else value
    return value.detach().clone() if isinstance(value, Tensor) else value


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(_equal, one, other))
    return one is other or (type(one) is type(other) and not isinstance(one, FunctionType) and bool(one == other))
