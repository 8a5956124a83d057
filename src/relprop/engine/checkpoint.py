"""Checkpointing for long inputs: keep only each block's input, and run the block again in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from relprop.engine.module_stack import module_frames, module_of, stacks
from relprop.engine.observer import Observer, PropagationMode
from relprop.engine.restoring import SavedTensorHooks, undoing
from relprop.engine.saved_tensors import SavedTensor, address
from relprop.ops import Op


class _Segment:
    """One call of a block. What autograd would save is only counted, and recomputed when it is first needed."""

    def __init__(self, mode: PropagationMode, frame: FrameType) -> None:
        local = frame.f_locals
        self._mode = mode.without_observers()
        self._call = local["self"], local["args"], local["kwargs"]
        given = [one for one in tree_leaves(self._call[1:]) if isinstance(one, Tensor)]
        own = [*local["self"].parameters(), *local["self"].buffers()]
        self._memory = {address(tensor): tensor for tensor in own if not tensor.is_meta}
        self._memory |= {address(tensor): tensor for tensor in given}
        self._before: dict[int, Tensor] = {}  # old values of memory that the block wrote to
        self._count = 0
        self._recomputed: list[Tensor | None] | None = None

    def before_write(self, tensor: Tensor) -> None:
        """The block is about to write to an argument or a buffer: keep the old values for the second run."""
        memory = address(tensor)
        if memory and memory in self._memory and memory not in self._before:
            with torch.no_grad():
                self._before[memory] = _storage(tensor).clone()

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
        saved: list[SavedTensor] = []
        block, (args, kwargs) = self._call[0], self._arguments()
        with SavedTensorHooks(lambda tensor: saved.append(self._mode.save(tensor)), _never):
            with torch.enable_grad(), self._old_buffers(), self._mode:
                block(*args, **kwargs)
        if len(saved) != self._count:
            raise RuntimeError(f"a block saved {self._count} tensors, but {len(saved)} when it ran again")
        return [kept.tensor for kept in saved]

    def _arguments(self) -> tuple[Any, Any]:
        """The block's arguments; those that it wrote to as copies with their old values."""

        def old(value: Any) -> Any:
            before = self._before.get(address(value)) if isinstance(value, Tensor) else None
            if before is None:
                return value
            copy = before.clone().as_strided(value.shape, value.stride(), value.storage_offset())
            return self._mode.live_copy(copy) if self._mode.is_live(value) else copy

        arguments: tuple[Any, Any] = tree_map(old, self._call[1:])
        return arguments

    @contextmanager
    def _old_buffers(self) -> Iterator[None]:
        """Inside: the block's buffers with their old values. Afterwards: as the model left them."""
        own = [*self._call[0].parameters(), *self._call[0].buffers()]
        written = [(one, self._before[address(one)]) for one in own if address(one) in self._before]
        left = [_storage(one).clone() for one, _ in written]

        def restore() -> None:
            with torch.inference_mode(False), torch.no_grad():
                for (one, _), after in zip(written, left, strict=True):
                    _storage(one.detach_()).copy_(after)

        with undoing(restore):
            with torch.no_grad():
                for one, before in written:
                    _storage(one).copy_(before)
            yield


def _storage(tensor: Tensor) -> Tensor:
    """The whole storage of a tensor, as a flat tensor."""
    plain = tensor.detach()
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return plain.as_strided((size,), (1,), 0)


def _never(_: Any) -> Tensor:
    raise AssertionError("nothing flows back through the graph of a second run")


class Checkpoint(Observer):
    """Opens a segment when a block begins, and closes it when the block ends."""

    def __init__(self, model: nn.Module) -> None:
        self._blocks = {id(block) for stack in stacks(model) for block in stack}
        self._inside: FrameType | None = None
        self._segment: _Segment | None = None
        self._hooks: SavedTensorHooks | None = None

    def before_call(self, mode: PropagationMode, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        frame = next((f for f in module_frames() if id(module_of(f)) in self._blocks), None)
        if frame is not self._inside:
            self.close()
            self._inside = frame
            if frame is not None:
                self._segment = segment = _Segment(mode, frame)
                self._hooks = SavedTensorHooks(segment.pack, segment.unpack)
                self._hooks.__enter__()

    def before_write(self, tensor: Tensor) -> None:
        if self._segment is not None:
            self._segment.before_write(tensor)

    def close(self) -> None:
        """Close the open segment. Must be called after the forward pass, also after an error."""
        self._inside = self._segment = None
        if self._hooks is not None:
            self._hooks.__exit__()
            self._hooks = None
