"""Undoes what a run of the model changes for its own time, also after an interrupt (Ctrl-C) at any bytecode.

An interrupt may come after a context was entered and before its `with` body, and inside `__exit__` or a `finally`
clause: these alone guarantee nothing. So what must be undone is noted before it is done, undoing is idempotent, and the
outermost function (`restoring`) undoes all of it twice: if an interrupt hits the first time, the second still comes.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

P = ParamSpec("P")
T = TypeVar("T")

_thread = threading.local()
lock = threading.RLock()  # for what all threads share; held for a few assignments only, never while a model runs


def _notes() -> list[Callable[[], None]]:
    """What is to be undone on this thread, in the order in which it was done."""
    if not hasattr(_thread, "notes"):
        _thread.notes = []
    notes: list[Callable[[], None]] = _thread.notes
    return notes


def _entered() -> list[tuple[Any, Any]]:
    """relprop's own hooks for saved tensors that apply on this thread, the latest last."""
    if not hasattr(_thread, "entered"):
        _thread.entered = []
    entered: list[tuple[Any, Any]] = _thread.entered
    return entered


@contextmanager
def undoing(undo: Callable[[], None]) -> Iterator[None]:
    """A context at whose end `undo` runs; it may run more than once, and also before anything was done."""
    note_undo(undo)
    try:
        yield
    finally:
        undo()
        forget_undo(undo)


def note_undo(undo: Callable[[], None]) -> None:
    _notes().append(undo)


def forget_undo(undo: Callable[[], None]) -> None:
    """After it was undone: drop the note."""
    notes = _notes()
    if undo in notes:
        notes.remove(undo)


class _TorchState:
    """Torch's settings of this thread, and what was noted before."""

    def __init__(self) -> None:
        self._noted = len(_notes())
        self._modes = _get_current_function_mode_stack()
        self._saving = default_hooks()
        self._grad = torch.is_grad_enabled()
        self._function_state = torch._C._get_torch_function_state()  # type: ignore[attr-defined]

    def restore(self) -> None:
        while lock._is_owned():  # type: ignore[attr-defined]
            lock.release()
        torch._C._set_torch_function_state(self._function_state)  # type: ignore[attr-defined]
        if _get_current_function_mode_stack() != self._modes:
            while torch._C._len_torch_function_stack():
                torch._C._pop_torch_function_stack()
            for mode in self._modes:
                torch._C._push_on_torch_function_stack(mode)
        while (hooks := default_hooks()) is not None and hooks != self._saving:
            pop_hooks()
        notes = _notes()  # after the modes, which would intercept what is done here
        while len(notes) > self._noted:
            notes[-1]()
            notes.pop()
        if torch.is_grad_enabled() != self._grad:
            torch._C._set_grad_enabled(self._grad)


def default_hooks() -> Any:
    """The hooks that torch applies to saved tensors on this thread, as (pack, unpack); None if there are none.

    torch 2.6 and 2.7 do not tell: there only relprop's own, `SavedTensorHooks`, are known.
    """
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return next(reversed(_entered()), None) if top is None else top(False)


class SavedTensorHooks(saved_tensors_hooks):
    """torch's, noted while they apply."""

    def __enter__(self) -> None:
        super().__enter__()
        _entered().append((self.pack_hook, self.unpack_hook))

    def __exit__(self, *error: object) -> None:
        pop_hooks()


def pop_hooks() -> None:
    """Take the latest hooks for saved tensors from torch."""
    hooks, entered = default_hooks(), _entered()
    torch._C._autograd._pop_saved_tensors_default_hooks()
    if entered[-1:] == [hooks]:
        entered.pop()


def leave_mode(mode: TorchFunctionMode) -> None:
    """Take a mode from torch's stack, if it is still on top: an interrupt may have lost it."""
    if _get_current_function_mode_stack()[-1:] == [mode]:
        torch._C._pop_torch_function_stack()


def restoring(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator for functions that run a model: whatever they change for that time is undone at their end."""

    @wraps(function)
    def restored(*args: P.args, **kwargs: P.kwargs) -> T:
        before = _TorchState()
        try:
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                if not isinstance(error, Exception):
                    _close_contexts(error)
                raise
            finally:
                before.restore()
        finally:
            before.restore()

    return restored


def _close_contexts(error: BaseException | None) -> None:
    """Close the contexts that an interrupt left open, those of torch too: later they would undo what is restored here.

    A generator's context is closed when it is freed, and the traceback holds it.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
