"""Writes in place. What autograd keeps for the backward pass is copied before: models that only run may write to it."""

from __future__ import annotations

from typing import Any
from weakref import ref

import torch
from torch import Tensor

from relprop.engine.graph_exits import Leaving
from relprop.engine.lineage import Lineage
from relprop.engine.liveness import Liveness
from relprop.engine.observer import Observer


def address(tensor: Tensor) -> int:
    """Of the memory that a tensor lies in; 0 for those without any of their own (meta tensors, quantised weights)."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


class Kept:
    """A tensor that autograd keeps for the backward pass; a copy of it, once its memory is written to."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Memory:
    """Writes of one pass: every tensor holds its own values, in its own memory."""

    def __init__(
        self,
        observers: list[Observer],
        liveness: Liveness,
        lineage: Lineage,
        leaving: Leaving,
        stand_ins: dict[int, tuple[Tensor, Tensor]],
    ) -> None:
        self._observers, self._liveness, self._lineage, self._leaving = observers, liveness, lineage, leaving
        self._stand_ins = stand_ins
        self._kept: dict[int, list[ref[Kept]]] = {}  # by the memory that it lies in
        self._lent: list[Tensor] = []  # tensors from before this pass that live values were written to

    def close(self) -> None:
        """The model's own buffers keep their values, and let the graph go."""
        for tensor in self._lent:
            tensor.detach_()
        self._lent.clear()
        self._kept.clear()

    def keep(self, tensor: Tensor) -> Kept:
        """The tensor as it is now, for the backward pass."""
        with torch._C.DisableTorchFunction():  # also called where no torch call is under way
            kept = Kept(tensor.detach())
            self._kept.setdefault(address(tensor), []).append(ref(kept))
        return kept

    def _copy(self, memory: int) -> None:
        """This memory is about to be written to."""
        for one in self._kept.pop(memory, ()) if memory else ():
            kept = one()
            if kept is not None:
                kept.tensor = kept.tensor.clone()

    def write(self, target: Tensor, result: Tensor, before: Tensor) -> Tensor:
        """Let `target` hold `result`, in its own memory."""
        self.before_write(target)
        if result.requires_grad:
            self._leaving.check_alias(target)
            self._lend(target)
            target.copy_(result)
            self._liveness.mark(target)
        elif target.requires_grad and target._is_view():
            target.copy_(result)
            self._liveness.mark(target)
            self._stand_ins[id(target)] = (target, target.detach())  # a gate: constant, though its base is live
        else:
            if target.requires_grad:
                target.detach_()
            with torch.no_grad():
                target.copy_(result)
        self._lineage.written(target, before, result)
        return target

    def write_out(self, out: Any, result: Any) -> Any:
        """`out=`: autograd has no such calls; the result is written after."""
        if isinstance(out, tuple | list):
            written = [self.write_out(*pair) for pair in zip(out, result, strict=True)]
            return type(result)(written)
        target = self._stand_ins[id(out)][1] if id(out) in self._stand_ins else out
        before = target.detach().clone()
        if target.shape != result.shape:
            with torch.no_grad():
                target.detach_().resize_(result.shape)
        return self.write(target, result, before)

    def before_write(self, target: Tensor) -> None:
        """What observers and autograd keep of this memory is copied; a gate in it is no gate any more."""
        for observer in self._observers:
            observer.writing(target)
        memory = address(target)
        self._copy(memory)
        if self._stand_ins:
            same = [key for key, (_, alias) in self._stand_ins.items()
                    if not alias.requires_grad and address(alias) == memory]  # fmt: skip
            for key in same:
                del self._stand_ins[key]

    def _lend(self, target: Tensor) -> None:
        """A buffer of the model's own that live values are written to holds the graph for this pass only."""
        base = target if target._base is None else target._base
        if self._liveness.leaves is not None and not base.requires_grad and not self._liveness.is_made(base):
            self._lent.append(base)


def kept_values(kept: Kept) -> Tensor:
    return kept.tensor
