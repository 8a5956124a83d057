"""The base class of what observes the calls of a pass: sources, captures, the ledger, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from relprop.ops import Op

Run = Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]


class PassMode(Protocol):
    """What observers ask of the running mode, which is `Propagation`."""

    def is_live(self, tensor: Tensor) -> bool: ...
    def stand_in(self, tensor: Tensor) -> Tensor: ...
    def replace(self, tensor: Tensor, stand_in: Tensor) -> None: ...


class Observer:
    """Observes every torch call of a pass; the methods of this base class do nothing."""

    def before(self, mode: PassMode, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before every call, with the model's own arguments; may make a tensor live."""

    def constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """After a call without live tensors; returns its result."""
        return result

    def around(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
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
