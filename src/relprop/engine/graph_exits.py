"""Values of live tensors that leave the graph (`no_grad`, `.data`, `detach`) and are then used as constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from relprop.engine.leaves import tensors
from relprop.engine.refusals import location
from relprop.ops import INDEXES, LIKE, VALUELESS, Op

CASTS_TO_INTEGERS = {"to", "type", "int", "char", "short", "byte", "long", "quantize_per_tensor",
                      "quantize_per_channel", "quantize_per_tensor_dynamic"}  # fmt: skip
_COMPARES = {"gt", "lt", "ge", "le", "eq", "ne", "isclose", "allclose", "equal", "greater", "less"}
_KEEPS_MAXIMUM = {"unsqueeze", "view", "reshape", "expand", "to", "expand_as", "detach", "data", "getitem", "clone"}


class GraphExits:
    """Follows values that left the graph, and warns where a live call uses one. Shapes, masks, indices are harmless."""

    def __init__(self, is_live: Callable[[Tensor], bool]) -> None:
        self.warnings: list[str] = []
        self._unreached: set[str] = set()  # warnings of results that no relevance has reached yet
        self._is_live = is_live
        # Per value that left the graph: how it left, and whether it is a maximum.
        self._exited: dict[int, tuple[ref[Tensor], str, bool]] = {}
        self._aliases: dict[int, ref[Tensor]] = {}  # `detach()` and `.data` of constants

    def clear(self) -> None:
        self._exited.clear()
        self._aliases.clear()

    @property
    def reached_warnings(self) -> list[str]:
        """The warnings, after the backward pass: without those of results that no relevance reached."""
        return [sentence for sentence in self.warnings if sentence not in self._unreached]

    def warn(self, sentence: str, result: Any = None) -> None:
        """Warn; of a `result`, only if relevance reaches it: what feeds a gate or a loss alone changes no score."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)
            self._unreached |= {sentence} if isinstance(result, Tensor) and result.requires_grad else set()
        elif not isinstance(result, Tensor) or not result.requires_grad:
            self._unreached.discard(sentence)
        if sentence in self._unreached:
            result.register_hook(_forgetting(self._unreached, sentence))

    def check_number(self, op: Op, result: Any) -> None:
        """Warn if a live tensor is read as a plain number, which cannot be followed."""
        if isinstance(result, float) or op.name in ("tolist", "numpy"):
            self.warn(
                f'a live tensor was read as a plain number by "{op.name}"{location()}: relevance does not follow it'
            )

    def check_precision(self, rules: str, tensors: list[Tensor]) -> None:
        if any(one.dtype.itemsize < 4 for one in tensors):
            self.warn(
                f'"{rules}" carries relevance in the model\'s own precision, which is too coarse for it: '
                "load the model in float32"
            )

    def record_exit(self, result: Any, how: str, op: Op | None = None) -> None:
        if op is not None and op.name in VALUELESS:
            return
        casts = op is not None and op.name in CASTS_TO_INTEGERS
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if not isinstance(tensor, Tensor) or self._is_live(tensor):
                continue
            if tensor.is_floating_point() or (casts and tensor.dtype != torch.bool):
                maximum = op is not None and op.name in ("max", "amax")
                self._exited[id(tensor)] = (ref(tensor), f"{how}{location()}", maximum)

    def record_cast(self, result: Any, op: Op, given: tuple[Any, ...]) -> None:
        """Of a live tensor; a constant that is cast to a live one's dtype and device is a constant still."""
        if op.name not in LIKE or any(self._is_live(one) for one in tensors(given[:1])):
            self.record_exit(result, f'through "{op.name}"', op)

    def has_exited(self, value: Any) -> bool:
        entry = self._exited.get(id(value))
        return entry is not None and entry[0]() is value

    def forget(self, tensor: Tensor) -> None:
        """Of a value whose graph was found after all."""
        self._exited.pop(id(tensor), None)

    def follow(self, op: Op, args: tuple[Any, ...], result: Any) -> None:
        """After a call without live tensors: a result computed from an exited value is one too."""
        if op.name in ("data", "detach") and isinstance(result, Tensor):
            self._aliases[id(result)] = ref(result)
        if not self._exited:
            return
        first = next((one for one in tensors(args[:1] if op.name in LIKE else args) if self.has_exited(one)), None)
        if first is None or op.name in VALUELESS:
            return
        self.check_number(op, result)
        _, how, maximum = self._exited[id(first)]
        for tensor in tensors((result,)):
            if tensor.is_floating_point() or (op.name in CASTS_TO_INTEGERS and tensor.dtype != torch.bool):
                kept = op.name in ("max", "amax") or (maximum and op.name in _KEEPS_MAXIMUM)
                self._exited[id(tensor)] = (ref(tensor), how, kept)

    def doubts(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """What is to be warned of if a live call has an operand that left the graph."""
        if not self._exited or op.name in VALUELESS or op.name in _COMPARES:
            return []
        sentences = []
        for tensor in tensors((*args[:1], *kwargs.values()) if op.name in LIKE else (*args, *kwargs.values())):
            if tensor.requires_grad or not self.has_exited(tensor):
                continue
            _, how, maximum = self._exited[id(tensor)]
            shift = maximum and op.name == "sub"  # of a softmax written by hand: it does not change the result
            index = op.name in INDEXES and not tensor.is_floating_point()
            if not shift and not index:
                sentences.append(
                    f'a live tensor was read {how}, and "{op.name}"{location()} used the result as a constant'
                )
        return sentences

    def check_write(self, op: Op, target: Tensor) -> None:
        """Before a write under no_grad."""
        if self._is_live(target):
            self.warn(f'"{op.name}"{location()} wrote to a live tensor under no_grad: relevance flows as if it had not')

    def check_written(self, op: Op, target: Tensor) -> None:
        if self.has_exited(target) and "data" in self._exited[id(target)][1]:
            self.warn(f'"{op.name}"{location()} wrote to a live tensor through .data: relevance flows as if it had not')

    def check_alias(self, target: Tensor) -> None:
        """Warn if live values are written to a constant through `.data` or `detach()`: it stays a constant."""
        for tensor in (target, target._base):
            entry = None if tensor is None else self._aliases.get(id(tensor))
            if entry is not None and entry() is tensor:
                self.warn(
                    f"live values were written through .data or detach(){location()}, where relevance cannot follow"
                )

    def check_assignment(self, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Warn at `x.data = y` for a live x."""
        if getattr(getattr(func, "__self__", None), "__name__", "") == "data" and self._is_live(args[0]):
            self.warn(f'"data"{location()} of a live tensor was assigned to: relevance flows as if it had not been')


def _forgetting(unreached: set[str], sentence: str) -> Callable[[Tensor], None]:
    """A hook that refers to no tensor: one that leads to a live tensor keeps its graph for ever."""

    def arrived(relevance: Tensor) -> None:
        if sentence in unreached and bool(relevance.any()):
            unreached.discard(sentence)

    return arrived
