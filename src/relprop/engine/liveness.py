"""Which tensors are live: those that depend on what is explained, not on a model's own tensors that require grad."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import ref

from torch import Tensor
from torch.nn import Parameter

from relprop.engine.refusals import location
from relprop.errors import UnruledOpError

_UNSEEN = "was computed where the rules do not see it, in a scripted or compiled module"
_WRITES = {"CopySlices", "CopyBackwards", "AccumulateGrad"}
_VIEWS = {"AsStrided", "Select", "Slice", "View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze", "Transpose",
          "Permute", "Expand", "T", "Alias", "Diagonal", "Unfold", "Split", "Unbind", "Clone", "ToCopy"}  # fmt: skip


class Liveness:
    """Marks the graph of one pass, and tells it from any other.

    Without `leaves` whatever requires grad is live, but parameters.
    """

    def __init__(self, leaves: Iterable[Tensor] | None, warn: Callable[[str], None] | None) -> None:
        self.leaves = None if leaves is None else list(leaves)
        self.token = object()  # marks the graph of this pass
        self._warn = warn  # of functions with a backward pass of their own
        self._constants: dict[int, ref[Tensor]] = {}  # constants that this pass computed

    def clear(self) -> None:
        self._constants.clear()

    def add_constant(self, result: Any, given: tuple[Any, ...]) -> None:
        """A constant that a call of this pass returned."""
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and not any(tensor is one for one in given):
                self._constants[id(tensor)] = ref(tensor)

    def add_live(self, tensor: Tensor) -> None:
        """An observer made this tensor live."""
        if self.leaves is not None:
            if tensor.grad_fn is None:
                self.leaves.append(tensor)
            else:
                self.mark_live(tensor)

    def mark_live(self, result: Any) -> None:
        """This pass made it."""
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and (node := tensor.grad_fn) is not None:
                _node_notes(node)["relprop"] = self.token

    def is_live(self, tensor: Tensor) -> bool:
        """Whether a tensor that requires grad does so because of what is explained."""
        node = tensor.grad_fn
        if node is not None and _node_notes(node).get("relprop") is self.token:
            return True
        if isinstance(tensor, Parameter):
            return False
        if node is None:
            return self.leaves is None or any(tensor is leaf for leaf in self.leaves)
        return self._is_live_from_outside(node)

    def _is_live_from_outside(self, node: Any) -> bool:
        """A tensor that no torch call of this pass made: by a function of the model's own, or before the pass."""
        live = self.leaves is None or self._reaches(node)
        if live:
            cls, unseen = getattr(node, "_forward_cls", None), self._unruled_op(node)
            _node_notes(node)["relprop"] = self.token
            if cls is not None and not cls.__module__.startswith("relprop.") and self._warn is not None:
                self._warn(f'"{cls.__name__}"{location()} has a backward pass of its own, which no rule changes')
            elif unseen is not None and self._warn is not None:
                self._warn(f'"{unseen}"{location()} {_UNSEEN}: its gradient was taken, no rule')
            elif unseen is not None:
                raise UnruledOpError(f'relevance reached "{unseen}"{location()}, which {_UNSEEN}: use lrp_ah_ln')
        return live

    def _unruled_op(self, node: Any) -> str | None:
        """The operation that made a tensor in this pass, but not by a torch call that the mode saw; views aside."""
        if self.leaves is None:
            return None
        while node is not None and _node_notes(node).get("relprop") is not self.token:
            name = node.name().rpartition("::")[2].removesuffix("0").removesuffix("Backward")
            if hasattr(node, "_forward_cls") or name in _WRITES:
                return None
            if name not in _VIEWS:
                return str(name)
            node = node.next_functions[0][0]
        return None

    def _reaches(self, node: Any) -> bool:
        nodes, seen = [node], set()
        while nodes:
            one = nodes.pop()
            if one is None or one in seen:
                continue
            seen.add(one)
            if _node_notes(one).get("relprop") is self.token:
                return True
            leaf = getattr(one, "variable", None)
            if leaf is not None and any(leaf is add_live for add_live in self.leaves or ()):
                return True
            nodes += [following for following, _ in one.next_functions]
        return False

    def is_constant(self, tensor: Tensor) -> bool:
        known = self._constants.get(id(tensor))
        return known is not None and known() is tensor


def _node_notes(node: Any) -> dict[str, Any]:
    """What is noted on a node of the graph."""
    notes: dict[str, Any] = node.metadata
    return notes
