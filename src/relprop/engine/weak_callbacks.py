"""Callbacks that a graph calls but does not keep alive.

A graph is C++: Python's garbage collector does not see what its hooks and saved tensors refer to. If one of these leads
back to a tensor of the same graph, the whole graph is never freed. So whatever holds tensors of a graph gives it only
weak callbacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakMethod, ref


def weak_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """A bound method as a function that does not keep its object alive."""
    return _weak(WeakMethod(method))


class WeakCallbacks:
    """Callbacks of one object: it owns them, and the graph refers to them weakly."""

    def __init__(self) -> None:
        self._owned: list[Callable[..., Any]] = []

    def __call__(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """The callback, for a graph."""
        self._owned.append(callback)
        return _weak(ref(callback))

    def clear(self) -> None:
        """After the backward pass: a callback mostly refers to its owner, and only a collection would free the two."""
        self._owned.clear()


def _weak(callback: ref[Callable[..., Any]]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        function = callback()
        assert function is not None, "something flows back through a graph whose pass has ended"
        return function(*args)

    return call
