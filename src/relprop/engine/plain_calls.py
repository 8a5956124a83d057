"""Model calls outside of the propagation mode, made so that a deadline stops them too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from relprop.deadline import check_deadline, has_deadline
from relprop.engine.propagation import Propagation


class _DeadlineMode(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        check_deadline()
        return func(*args, **(kwargs or {}))


def stoppable() -> AbstractContextManager[Any]:
    """A context in which every torch call checks the thread's deadline.

    It does nothing where there is no deadline, and in the propagation mode, which checks by itself: a second mode below
    it would cost a tenth of the time and more.
    """
    propagating = any(isinstance(mode, Propagation) for mode in _get_current_function_mode_stack())
    return _DeadlineMode() if has_deadline() and not propagating else nullcontext()
