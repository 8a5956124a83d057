"""Long inputs: keep only each block's input, and run the block once more when the backward pass gets there."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from relprop.engine.propagation import Observer, Propagation
from relprop.engine.structure import calls, module_of, stacks
from relprop.ops import Op


class _Segment:
    """One call of a block. What autograd would save is only counted, and recomputed at the first question for it."""

    def __init__(self, mode: Propagation, frame: FrameType) -> None:
        local = frame.f_locals
        self._mode = mode.again()
        self._call = local["self"], local["args"], local["kwargs"]
        self._count = 0
        self._recomputed: list[Tensor | None] | None = None

    def pack(self, tensor: Tensor) -> int:
        self._count += 1
        return self._count - 1

    def unpack(self, index: int) -> Tensor:
        if self._recomputed is None:
            self._recomputed = list(self._run_again())
        tensor = self._recomputed[index]
        assert tensor is not None, "a saved tensor was asked for twice"
        self._recomputed[index] = None
        return tensor

    def _run_again(self) -> list[Tensor]:
        saved: list[Tensor] = []
        block, args, kwargs = self._call
        with saved_tensors_hooks(lambda tensor: saved.append(tensor.detach()), _never):
            with torch.enable_grad(), self._mode:
                block(*args, **kwargs)
        if len(saved) != self._count:
            raise RuntimeError(f"a block saved {self._count} tensors, but {len(saved)} when it ran again")
        return saved


def _never(_: Any) -> Tensor:
    raise AssertionError("the graph of a second run is never walked")


class Checkpoint(Observer):
    """Opens a segment when a block begins and closes it when it ends."""

    def __init__(self, model: nn.Module) -> None:
        self._blocks = {id(block) for stack in stacks(model) for block in stack}
        self._inside: FrameType | None = None
        self._hooks: saved_tensors_hooks | None = None

    def before(self, mode: Propagation, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        frame = next((f for f in calls() if id(module_of(f)) in self._blocks), None)
        if frame is not self._inside:
            self.close()
            self._inside = frame
            if frame is not None:
                segment = _Segment(mode, frame)
                self._hooks = saved_tensors_hooks(segment.pack, segment.unpack)
                self._hooks.__enter__()

    def close(self) -> None:
        """End the open segment, if there is one. Must be called when the forward pass is over, also after an error."""
        self._inside = None
        if self._hooks is not None:
            self._hooks.__exit__()
            self._hooks = None
