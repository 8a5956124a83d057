"""When the work of the current thread should stop: checked on every torch call of a pass and in every long loop.

A thread's own, so that other threads that use the same model go on; nothing is placed on the model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class OutOfTimeError(BaseException):
    """The work was stopped. Not an `Exception`, which the engine would report as the model's."""


class _Deadline(threading.local):
    is_over: Callable[[], bool] | None = None


_thread = _Deadline()


@contextmanager
def stop_when(is_over: Callable[[], bool]) -> Iterator[None]:
    """Within, this thread's work raises OutOfTimeError soon after `is_over()` has become true."""
    before, _thread.is_over = _thread.is_over, is_over
    try:
        yield
    finally:
        _thread.is_over = before


def has_deadline() -> bool:
    """Whether this thread's work may have to stop."""
    return _thread.is_over is not None


def check_deadline() -> None:
    """Raises OutOfTimeError if this thread's work should stop."""
    is_over = _thread.is_over
    if is_over is not None and is_over():
        raise OutOfTimeError
