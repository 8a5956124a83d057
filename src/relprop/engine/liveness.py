"""Which tensors are live: those that depend on an explained input, not on parameters that require grad."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.nn import Parameter

from relprop.engine.refusals import location
from relprop.errors import UnruledOpError

_UNSEEN = "was computed where no rule applies, in a scripted or compiled module"
_WRITES = {"CopySlices", "CopyBackwards", "AccumulateGrad"}
_VIEWS = {"AsStrided", "Select", "Slice", "View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze", "Transpose",
          "Permute", "Expand", "T", "Alias", "Diagonal", "Unfold", "Split", "Unbind", "Clone", "ToCopy"}  # fmt: skip


class Liveness:
    """Marks the nodes of one pass's graph.

    With `leaves`, what depends on these is live; without, everything that requires grad, except parameters.
    """

    def __init__(self, leaves: Iterable[Tensor] | None, warn: Callable[[str], None] | None) -> None:
        self.leaves = None if leaves is None else list(leaves)
        self.token = object()  # marks the graph of this pass
        self._first_node = _newest_node_number()  # nodes of the graph that were made before are not of this pass
        self._warn = warn  # at autograd functions of the model's own; None: these are refused elsewhere
        self._constants: dict[int, ref[Tensor]] = {}  # that this pass computed

    def clear(self) -> None:
        self._constants.clear()

    def add_constant(self, result: Any, given: tuple[Any, ...]) -> None:
        """Note the constants that a call of this pass computed."""
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and not any(tensor is one for one in given):
                self._constants[id(tensor)] = ref(tensor)

    def add_live(self, tensor: Tensor) -> None:
        """Note a tensor that an observer made live."""
        if self.leaves is not None:
            if tensor.grad_fn is None:
                self.leaves.append(tensor)
            else:
                self.mark_live(tensor)

    def mark_live(self, result: Any) -> None:
        """Mark the tensors of a result as computed by this pass."""
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and (node := tensor.grad_fn) is not None:
                _node_notes(node)["relprop"] = self.token

    def is_marked(self, tensor: Tensor) -> bool:
        """Whether this pass computed a live tensor."""
        node = tensor.grad_fn
        return node is not None and _node_notes(node).get("relprop") is self.token

    def is_live(self, tensor: Tensor) -> bool:
        """Whether a tensor that requires grad depends on what is explained."""
        if self.is_marked(tensor):
            return True
        if isinstance(tensor, Parameter):
            return False
        node = tensor.grad_fn
        if node is None:
            return self.leaves is None or any(tensor is leaf for leaf in self.leaves)
        return self._is_live_from_outside(node)

    def _is_live_from_outside(self, node: Any) -> bool:
        """Whether a tensor is live that was computed by an autograd function, or before this pass."""
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
        """The operation, other than a view, that computed a tensor in this pass outside of the torch function mode."""
        while node is not None and _node_notes(node).get("relprop") is not self.token:
            if self.leaves is None and node._sequence_nr() <= self._first_node:
                return None
            name = node.name().rpartition("::")[2].removesuffix("0").removesuffix("Backward")
            if hasattr(node, "_forward_cls") or name in _WRITES:
                return None
            if name not in _VIEWS:
                return str(name)
            node = node.next_functions[0][0]
        return None

    def _reaches(self, node: Any) -> bool:
        nodes, visited = [node], set()
        while nodes:
            one = nodes.pop()
            if one is None or one in visited:
                continue
            visited.add(one)
            if _node_notes(one).get("relprop") is self.token:
                return True
            leaf = getattr(one, "variable", None)
            if leaf is not None and any(leaf is add_live for add_live in self.leaves or ()):
                return True
            nodes += [following for following, _ in one.next_functions]
        return False

    def is_constant(self, tensor: Tensor) -> bool:
        entry = self._constants.get(id(tensor))
        return entry is not None and entry() is tensor


def _newest_node_number() -> int:
    """The number of the newest node of any graph in this thread: nodes count up as they are made."""
    with torch.enable_grad(), torch._C.DisableTorchFunction():
        node: Any = (torch.zeros((), requires_grad=True) * 1).grad_fn
    return int(node._sequence_nr())


def _node_notes(node: Any) -> dict[str, Any]:
    """The metadata of a node of the graph."""
    notes: dict[str, Any] = node.metadata
    return notes
