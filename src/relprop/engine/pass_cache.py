"""Passes shared between methods: methods that need the same pass over the same inputs run it once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Number
from types import FunctionType
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from relprop.rulebook.rulesets import RuleSet
from relprop.targets import Against, Answer, AtMask, Several, TokenAt

_cache = threading.local()
_SAMPLE = 64  # numbers per weight that are compared: a write through `.data` does not raise the version


@dataclass(frozen=True)
class PassKey:
    """What identifies a pass. It holds the objects themselves, because an id may be reused."""

    model: nn.Module
    weights: tuple[Any, ...]
    inputs: tuple[tuple[str, Any], ...]  # tensors as copies, because the caller may overwrite the originals
    target: Any
    rules: RuleSet | None
    at: str | None
    double: bool

    def matches(self, other: PassKey) -> bool:
        """Whether another pass would have the same result."""
        return (
            self.model is other.model
            and self.rules is other.rules
            and (self.at, self.double) == (other.at, other.double)
            and _equal(self.inputs, other.inputs)
            and _equal(self.target, other.target)
            and self.weights == other.weights
        )


class _Flows(list[tuple[PassKey, bool, bool, Any]]):
    """The passes of one context. The thread refers to them weakly, so that they are gone whatever ends the context."""


def _shared() -> _Flows | None:
    flows: ref[_Flows] | None = getattr(_cache, "flows", None)
    return None if flows is None else flows()


@contextmanager
def shared_passes() -> Iterator[None]:
    """A context in which methods share passes with the same inputs, target and rules; they are dropped at the end."""
    outer = getattr(_cache, "flows", None)
    own = _Flows()
    _cache.flows = ref(own)
    try:
        yield
    finally:
        _cache.flows = outer


def pass_key(
    model: nn.Module,
    inputs: Mapping[str, Any],
    target: Any,
    rules: RuleSet | None,
    at: str | None,
    double: bool = False,
) -> PassKey | None:
    """The key of a pass; None outside of `shared_passes`, or where inputs or target cannot be compared."""
    if _shared() is None:
        return None
    if not all(_comparable(value) for value in inputs.values()) or not _comparable(target):
        return None
    copies = tuple((name, _copy_of(value)) for name, value in inputs.items())
    try:
        weights = _weights(model)
    except (RuntimeError, NotImplementedError):  # packed weights that cannot be read
        return None
    return PassKey(model, weights, copies, _copy_of(target), rules, at, double)


def cached_pass(key: PassKey, maps: bool, two_way: bool) -> Any:
    """A stored pass with at least what is asked for: one with maps also serves methods that need none."""
    for stored, stored_maps, stored_two_way, flow in _shared() or ():
        if stored_maps >= maps and stored_two_way >= two_way and stored.matches(key):
            return flow
    return None


def store_pass(key: PassKey, maps: bool, two_way: bool, flow: Any) -> None:
    flows = _shared()
    if flows is not None:
        flows.append((key, maps, two_way, flow))


def _weights(model: nn.Module) -> tuple[Any, ...]:
    """Changes when a weight does: its address, its version and some of its numbers."""
    tensors = [*model.parameters(), *model.buffers()]
    return tuple((id(one), one.data_ptr(), _version(one), _sample(one)) for one in tensors if not one.is_meta)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _sample(tensor: Tensor) -> tuple[float, ...]:
    flat = tensor.detach().flatten()
    step = max(1, flat.numel() // _SAMPLE)
    return tuple(flat[::step].tolist())


def _comparable(value: Any) -> bool:
    """Whether a later value can be compared with this one. An object of the caller may change without notice."""
    if isinstance(value, list | tuple):
        return all(map(_comparable, value))
    comparable = Tensor | Number | str | FunctionType | Answer | Against | TokenAt | AtMask | Several | torch.dtype
    return value is None or isinstance(value, comparable)


def _copy_of(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_copy_of, value)) if type(value) in (list, tuple) else value
    return value.detach().clone() if isinstance(value, Tensor) else value


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(_equal, one, other))
    return one is other or (type(one) is type(other) and not isinstance(one, FunctionType) and bool(one == other))
