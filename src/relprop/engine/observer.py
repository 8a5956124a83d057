"""The base class of what observes the calls of a pass: sources, captures, the ledger, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from relprop.engine.saved_tensors import SavedTensor
from relprop.ops import Op

Run = Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]


class PropagationMode(Protocol):
    """What observers use of `propagation.Propagation`, where each method is described."""

    def is_live(self, tensor: Tensor) -> bool: ...

    def stand_in(self, tensor: Tensor) -> Tensor: ...

    def replace(self, tensor: Tensor, stand_in: Tensor) -> None: ...

    def live_copy(self, tensor: Tensor) -> Tensor: ...

    def save(self, tensor: Tensor) -> SavedTensor: ...

    def without_observers(self) -> PropagationMode: ...

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: Any) -> None: ...


class Observer:
    """Observes every torch call of a pass; the methods of this base class do nothing."""

    def before_call(self, mode: PropagationMode, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before every call, with the model's own arguments; may make a tensor live."""

    def after_constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """After a call without live tensors; returns its result."""
        return result

    def around_call(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        """In place of a call with live tensors; `run(op, args, kwargs)` makes the call."""
        return run(op, args, kwargs)

    def before_write(self, tensor: Tensor) -> None:
        """Before an in-place write to a tensor's memory."""

    def claims(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call lies below the place where scores are read: no rule and no ledger entry applies to it."""
        return False

    def after_claimed(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """After a claimed call; returns its result."""
        return result

    def after_claimed_write(self, result: Tensor, tensor: Tensor) -> None:
        """After the result of a claimed call was written to a tensor."""


def within(observer: Observer, run: Run) -> Run:
    """The call as an observer makes it."""
    return lambda op, args, kwargs: observer.around_call(op, args, kwargs, run)
