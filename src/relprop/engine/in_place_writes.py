"""In-place writes. What autograd saved for the backward pass is copied first: eval-mode models may overwrite it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.nn import Parameter

from relprop.engine.carried_rows import copy_carried_rows
from relprop.engine.graph_exits import GraphExits
from relprop.engine.lineage import Lineage
from relprop.engine.liveness import Liveness
from relprop.engine.observer import Observer
from relprop.engine.saved_tensors import SavedTensor, address


class InPlaceWrites:
    """The in-place writes of one pass: each target tensor gets the result in its own memory."""

    def __init__(
        self,
        observers: list[Observer],
        liveness: Liveness,
        lineage: Lineage,
        exits: GraphExits,
        stand_ins: dict[int, tuple[Tensor, Tensor]],
    ) -> None:
        self._observers, self._liveness, self._lineage, self._exits = observers, liveness, lineage, exits
        self._stand_ins = stand_ins
        self.compact: Callable[[Tensor], Any] = lambda tensor: None  # another form of a tensor to be saved, or None
        self._saved: dict[int, list[ref[SavedTensor]]] = {}  # by storage address
        self._buffers: list[Tensor] = []  # of the model, older than this pass, that live values were written to

    def close(self) -> None:
        """Release the graph: the model's own buffers keep their values only."""
        with torch.inference_mode(False):  # in it, nothing would be detached
            for tensor in self._buffers:
                tensor.detach_()
        self._buffers.clear()
        self._saved.clear()

    def save(self, tensor: Tensor) -> SavedTensor:
        """The tensor as it is now, for the backward pass."""
        with torch._C.DisableTorchFunction():  # also called outside of torch calls
            compact: SavedTensor | None = self.compact(tensor)
            if compact is not None:
                return compact
            saved = SavedTensor(tensor.detach())
            self._saved.setdefault(address(tensor), []).append(ref(saved))
        return saved

    def _copy(self, memory: int) -> None:
        """Copy the saved tensors in this memory, which is about to be overwritten."""
        for one in self._saved.pop(memory, ()) if memory else ():
            saved = one()
            if saved is not None:
                saved.tensor = saved.tensor.clone()

    def adopt(self, tensor: Tensor, live: Tensor) -> bool:
        """Make the model's own tensor live by writing `live` to it; False where that is not possible."""
        base = tensor if tensor._base is None else tensor._base
        if not self._liveness.is_constant(base) or isinstance(tensor, Parameter) or not live.requires_grad:
            return False
        if tensor.shape != live.shape or tensor.dtype != live.dtype:
            return False
        try:
            self.before_write(tensor)
            tensor.copy_(live)
        except RuntimeError:  # its elements share memory, or autograd forbids writes to this view
            return False
        self._liveness.mark_live(tensor)
        return True

    def write(self, target: Tensor, result: Tensor, before: Tensor) -> Tensor:
        """Write `result` to the memory of `target`; returns `target`."""
        self.before_write(target)
        if result.requires_grad:
            self._exits.check_alias(target)
            self._track_buffer(target)
            target.copy_(result)
            self._liveness.mark_live(target)
        elif target.requires_grad and target._is_view():
            target.copy_(result)
            self._liveness.mark_live(target)
            self._stand_ins[id(target)] = (target, target.detach())  # a gate: constant, although its base is live
        else:
            if target.requires_grad:
                target.detach_()
            with torch.no_grad():
                target.copy_(result)
        self._lineage.on_write(target, before, result)
        copy_carried_rows(result, target)
        return target

    def write_out(self, out: Any, result: Any) -> Any:
        """Write `result` to the `out=` argument, which autograd does not support."""
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
        """Before a write: observers and saved tensors copy what they need; gates in this memory are forgotten."""
        for observer in self._observers:
            observer.before_write(target)
        memory = address(target)
        self._copy(memory)
        if self._stand_ins:
            same = [key for key, (_, alias) in self._stand_ins.items()
                    if not alias.requires_grad and address(alias) == memory]  # fmt: skip
            for key in same:
                del self._stand_ins[key]

    def _track_buffer(self, target: Tensor) -> None:
        """A buffer of the model that gets live values: it may hold the graph during this pass only."""
        base = target if target._base is None else target._base
        if self._liveness.leaves is not None and not base.requires_grad and not self._liveness.is_constant(base):
            self._buffers.append(base)
