"""Passes shared between methods: several that want the same pass over the same inputs make it once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

Key = tuple[Any, ...]
_memory = threading.local()


@contextmanager
def shared_passes() -> Iterator[None]:
    """Inside, methods that want the same pass (same tensors, target and rules) share one; it is dropped at the end."""
    _memory.flows = {}
    try:
        yield
    finally:
        _memory.flows = None


def key_of(model: nn.Module, inputs: Mapping[str, Any], target: Any, rules: str, at: Any) -> Key | None:
    """What makes two passes the same; None where nothing is shared."""
    if getattr(_memory, "flows", None) is None:
        return None
    tensors = tuple((name, id(value)) for name, value in inputs.items())
    return id(model), tensors, repr(target), rules, at


def recall(key: Key, maps: bool, two_way: bool) -> Any:
    """A known pass with at least what is wanted: one that kept maps also serves those who want none."""
    for known_maps in (True, False):
        for known_two_way in (True, False):
            if known_maps >= maps and known_two_way >= two_way:
                found = _memory.flows.get((key, known_maps, known_two_way))
                if found is not None:
                    return found
    return None


def remember(key: Key, maps: bool, two_way: bool, flow: Any) -> None:
    _memory.flows[key, maps, two_way] = flow
