"""Surveys a model once: at which hidden state the scores of each part can be read, and which modules are its blocks.

A hidden state stands for a part if all that the part gives to the output passes through it, and if each of its rows
reads one unit of that part alone. The last such state is the input of the first block; after it units mix. Both are
properties of the computation, found in its graph (states that all paths pass through) and by `units.proved_rows`;
module names and tensor shapes do not matter.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import FrameType
from typing import Any

from torch import Tensor, nn

from relprop.engine.leaves import Leaf, ReadingPlace
from relprop.engine.module_stack import module_frames, module_of
from relprop.engine.observer import Observer
from relprop.engine.restoring import SavedTensorHooks
from relprop.engine.units import Rows
from relprop.ops import Op
from relprop.rulebook.product import live_tensors
from relprop.targets import is_own_function

# Calls that can mix units. (`units.proved_rows` detects others, except where there is only one unit.)
_MIXES = {"softmax", "scaled_dot_product_attention", "multi_head_attention_forward", "log_softmax", "cumsum"}
_PRODUCTS_OF_WEIGHTS = {"matmul": 0, "einsum": 1}  # and the position of the weights
_PRODUCTS = {"matmul", "einsum", "baddbmm", "tensordot"}


@dataclass(frozen=True)
class LeafPlace:
    """Where a leaf is read: at the leaf itself, or at the result of a later call."""

    part: str
    place: ReadingPlace
    integer: bool  # a leaf of integers, looked up or cast
    calls: int | None = None  # how many calls depend on the leaf, up to the one whose result is read
    ignored: bool = False  # it stays a constant
    reached: bool = True  # False: the output does not depend on it
    features: tuple[int, ...] = ()  # axes of the part that are features of its units
    tokens: bool = False  # integers [batch, tokens]
    entry: str = ""  # how it enters: `Leaf.entry`
    trace: tuple[str, ...] = ()  # the calls up to the one whose result is read, by name


@dataclass(frozen=True)
class ReadingPlan:
    """Where every leaf of a model is read, in the order in which they enter; and its blocks, in the order of calls."""

    leaf_places: tuple[LeafPlace, ...]
    block_refs: tuple[weakref.ref[nn.Module], ...] = field(default=(), repr=False)  # weak: plans outlive no model
    one_stream: bool = True  # all attention is among the rows of one residual stream
    enters_elsewhere: tuple[str, ...] = ()  # parts whose effect does not all pass the tracked leaves
    steering: tuple[str, ...] = ()  # parts that also become plain numbers, which only say how to read them
    unfollowed: tuple[str, ...] = ()  # the output depends on these parts through calls that are not tracked
    proofs: dict[Any, Rows | None] = field(default_factory=dict, compare=False, repr=False)  # by what computes a state
    axes: dict[str, int] = field(default_factory=dict, compare=False, repr=False)  # batch axes of ambiguous length

    @property
    def blocks(self) -> list[nn.Module]:
        """The modules that hold one attention each, in the order of their calls."""
        return [block for one in self.block_refs if (block := one()) is not None]


@dataclass(frozen=True)
class _Call:
    """A torch call with live tensors, and the graph nodes of its results."""

    name: str
    nodes: tuple[Any, ...]
    mixes: bool  # units can mix in it


@dataclass(frozen=True)
class _AttentionCall:
    """A product of attention weights and values, and the module calls around it, outermost first."""

    frames: tuple[FrameType, ...]
    square: bool  # attention of all rows to all rows
    calls: int  # number of live calls before it
    live_queries: bool  # the queries depend on the input; otherwise they are learned


def _mixes(op: Op, given: Sequence[Tensor], result: Tensor) -> bool:
    """Whether units can mix in a call: attention, or a product of live matrices, also one written as outer products."""
    outer = op.name == "mul" and all(one.shape != result.shape for one in given)
    return op.name in _MIXES or (len(given) > 1 and (outer or op.name in _PRODUCTS))


class Recorder(Observer):
    """Records the graph node of every live call; what autograd would save for a backward pass is dropped."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.attentions: list[_AttentionCall] = []
        self.first: tuple[FrameType, ...] = ()  # the module calls around the first live call
        self.last: tuple[FrameType, ...] = ()  # and around the last
        self._weights: dict[int, Tensor] = {}  # results of softmax, also cast or reshaped

    def claims(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return True

    def after_claimed(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        given = live_tensors(args, tuple(kwargs.values()))
        if (results := live_tensors(result)) and not returns_input(given, results):
            self.calls.append(_Call(op.name, tuple(one.grad_fn for one in results), _mixes(op, given, results[0])))
            self.last = tuple(reversed(list(module_frames())))
            self.first = self.first or self.last
        self._record_attention(op, args, result)
        return result

    def _record_attention(self, op: Op, args: tuple[Any, ...], result: Any) -> None:
        if op.name == "scaled_dot_product_attention":
            self._add_attention(args[0].shape[-2] == args[1].shape[-2], args[0].requires_grad)
        elif op.name == "multi_head_attention_forward":
            self._add_attention(args[0].shape == args[1].shape, args[0].requires_grad)
        elif (product := _PRODUCTS_OF_WEIGHTS.get(op.name)) is not None and id(args[product]) in self._weights:
            weights = args[product]
            self._add_attention(weights.shape[-2] == weights.shape[-1], _both_live(weights))
            self._weights.clear()
        elif isinstance(result, Tensor) and are_weights(op, args, result, self._weights):
            self._weights[id(result)] = result

    def _add_attention(self, square: bool, live_queries: bool) -> None:
        frames = tuple(reversed(list(module_frames())))
        self.attentions.append(_AttentionCall(frames, square, len(self.calls), live_queries))

    @property
    def in_blocks(self) -> list[_AttentionCall]:
        """The attention calls up to the last square one: others after it belong to a pooling head."""
        square = [number for number, one in enumerate(self.attentions) if one.square]
        return self.attentions[: square[-1] + 1] if square else self.attentions

    def blocks(self, entered: bool) -> tuple[weakref.ref[nn.Module], ...]:
        """Per attention call its block: the outermost module call around it that holds no other attention.

        A block must not hold the last live call either, nor the first one where that lies before the blocks
        (`entered`).
        """
        own = self.in_blocks
        around = (*self.last, *(self.first if entered else ()))
        count = Counter(id(frame) for frames in (*(one.frames for one in own), around) for frame in set(frames))
        alone = [[frame for frame in one.frames if count[id(frame)] == 1] for one in own]
        return tuple(weakref.ref(module_of(frames[0])) for frames in alone if frames)

    @staticmethod
    def saving_nothing() -> SavedTensorHooks:
        return SavedTensorHooks(lambda _: None, _never)


# Product nodes of the graph, and the positions of the two factors among their inputs.
_PRODUCT_NODES = {"BmmBackward0": (0, 1), "MmBackward0": (0, 1), "BaddbmmBackward0": (1, 2)}


def _both_live(weights: Tensor) -> bool:
    """Whether both queries and keys of these attention weights are live."""
    nodes = [weights.grad_fn]
    for node in nodes:  # the list grows: breadth-first search
        factors = _PRODUCT_NODES.get(node.name()) if node is not None else None
        if node is not None and factors is not None:
            return all(node.next_functions[position][0] is not None for position in factors)
        nodes += [before for before, _ in node.next_functions] if node is not None and len(nodes) < 64 else []
    return True


# Calls whose result is still attention weights.
_CARRIES = {"dropout", "to", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "view", "reshape",
            "clone", "masked_fill", "nan_to_num", "mul"}  # fmt: skip


def are_weights(op: Op, args: tuple[Any, ...], result: Tensor, known: Mapping[int, Tensor]) -> bool:
    """Whether the result is attention weights: of a softmax, or of dropout, a cast or a reshape of `known` ones."""
    return (op.name == "softmax" and result.dim() >= 3) or (op.name in _CARRIES and bool(args) and id(args[0]) in known)


def returns_input(given: Sequence[Tensor], results: Sequence[Tensor]) -> bool:
    """Whether a call returned an argument as it is, as dropout and casts may."""
    return len(results) == 1 and any(one.grad_fn is results[0].grad_fn for one in given)


def _never(_: None) -> Tensor:
    raise AssertionError("nothing flows back through the graph of a survey")


def one_stream(recorder: Recorder, value: Tensor, leaves: Sequence[Leaf]) -> bool:
    """Whether all attention is among the rows of one residual stream.

    This holds if a state that all paths pass through lies between any two attention calls, and no queries are learned.
    """
    order, contributing = _ordered([value.grad_fn], recorder.calls)
    reach = _reach(order, [leaf.tensor for leaf in leaves])
    cuts = _cuts(order, {node for node in contributing if reach[node]})
    cut_calls = [number for number, call in enumerate(recorder.calls) if any(node in cuts for node in call.nodes)]
    own = recorder.in_blocks
    separated = all(any(a.calls <= number < b.calls for number in cut_calls) for a, b in pairwise(own))
    return separated and all(one.live_queries for one in own)


@dataclass(frozen=True)
class LeafPath:
    """The calls that depend on a leaf, before units can mix; and the states that all its paths pass through."""

    names: tuple[str, ...]
    states: tuple[tuple[int, bool], ...]  # the number of calls up to it, and whether it also depends on other parts


def leaf_paths(calls: Sequence[_Call], value: Tensor, leaves: Sequence[Leaf]) -> list[LeafPath | None]:
    """Per leaf its path to `value`; None if `value` does not depend on the leaf."""
    order, contributing = _ordered([value.grad_fn], calls)
    reach = _reach(order, [leaf.tensor for leaf in leaves])
    paths: list[LeafPath | None] = []
    for number, leaf in enumerate(leaves):
        same = sum(1 << i for i, other in enumerate(leaves) if other.part == leaf.part)
        own = {node for node in contributing if reach[node] >> number & 1}
        cuts = _cuts(order, own)
        paths.append(_before_mixing(number, cuts, calls, reach, same) if own else None)
    return paths


def _ordered(roots: list[Any], calls: Sequence[_Call]) -> tuple[list[Any], set[Any]]:
    """All nodes in the order of the forward pass, and the set of those that the roots depend on."""
    contributing = _closure(roots)
    every = contributing | _closure([node for call in calls for node in call.nodes])
    return sorted(every, key=_number), contributing


def _closure(roots: list[Any]) -> set[Any]:
    closure: set[Any] = set()
    waiting = [node for node in roots if node is not None]
    while waiting:
        node = waiting.pop()
        if node not in closure:
            closure.add(node)
            waiting += [before for before, _ in node.next_functions if before is not None]
    return closure


def _number(node: Any) -> int:
    """The position of a node in the forward pass; -1 for leaves, which have none."""
    return -1 if hasattr(node, "variable") else int(node._sequence_nr())


def _reach(order: Sequence[Any], leaves: Sequence[Tensor]) -> dict[Any, int]:
    """Per node the leaves that it depends on, as bits."""
    bits = {id(leaf): 1 << number for number, leaf in enumerate(leaves)}
    reach: dict[Any, int] = {}
    for node in order:
        own = bits.get(id(node.variable), 0) if hasattr(node, "variable") else 0
        for before, _ in node.next_functions:
            own |= reach.get(before, 0)
        reach[node] = own
    return reach


def _cuts(order: Sequence[Any], own: set[Any]) -> set[Any]:
    """Nodes that all paths pass through: when they come, no other edge is open."""
    leaving = dict.fromkeys(own, 0)
    for node in own:
        for before, _ in node.next_functions:
            if before in own:
                leaving[before] += 1
    cuts, open_edges = set(), 0
    for node in order:
        if node in own:
            open_edges -= sum(before in own for before, _ in node.next_functions)
            if open_edges == 0:
                cuts.add(node)
            open_edges += leaving[node]
    return cuts


class LeafGraph:
    """The graph of `value` as seen from the leaves that it depends on."""

    def __init__(self, value: Tensor, leaves: Sequence[Tensor]) -> None:
        order, contributing = _ordered([value.grad_fn], ())
        self._reach = _reach(order, leaves)
        own = [{node for node in contributing if self._reach[node] >> i & 1} for i in range(len(leaves))]
        self._cuts = [_cuts(order, nodes) for nodes in own]
        self._outputs: dict[Any, set[int]] = {}  # per node which of its outputs are used
        for node in contributing:
            for before, output in node.next_functions:
                self._outputs.setdefault(before, set()).add(output)

    def depends_on(self, node: Any) -> int:
        """The leaves that a node depends on, as bits; 0 for a node that `value` does not depend on."""
        return self._reach.get(node, 0)

    def is_cut(self, leaf: int, node: Any, output: int) -> bool:
        """Whether all that a leaf gives to the value passes this output of a node."""
        return node in self._cuts[leaf] and self._outputs.get(node) == {output}

    def is_chain(self, node: Any) -> bool:
        """Whether a node is computed from its leaf alone, one call after the other: no branch leaves it or joins."""
        while not hasattr(node, "variable"):
            before = [one for one, _ in node.next_functions if self._reach.get(one, 0)]
            if len(before) != 1:
                return False
            node = before[0]
        return True

    @staticmethod
    def number(node: Any) -> int:
        """The position of a node in the forward pass."""
        return _number(node)


def _before_mixing(number: int, cuts: set[Any], calls: Sequence[_Call], reach: dict[Any, int], same: int) -> LeafPath:
    names: list[str] = []
    states: list[tuple[int, bool]] = []
    for call in calls:
        if not any(reach[node] >> number & 1 for node in call.nodes):
            continue
        if call.mixes:
            break
        names.append(call.name)
        if len(call.nodes) == 1 and call.nodes[0] in cuts:
            states.append((len(names), bool(reach[call.nodes[0]] & ~same)))
    return LeafPath(tuple(names), tuple(states))


_plans: weakref.WeakKeyDictionary[nn.Module, dict[Any, list[ReadingPlan]]] = weakref.WeakKeyDictionary()
MAX_CACHED_PLANS = 4  # per model and call signature: a model may run differently for other sizes


def call_signature(inputs: Mapping[str, Any], target: Any) -> tuple[Any, ...]:
    """What the structure of a run may depend on, apart from the numbers: argument types, and the target function."""
    given = tuple(
        (name, value.dtype, value.dim()) if isinstance(value, Tensor) else (name, type(value))
        for name, value in inputs.items()
    )
    return given, getattr(target, "__code__", type(target)) if is_own_function(target) else None


def cached_plans(model: nn.Module, key: Any) -> list[ReadingPlan]:
    """The cached plans of a model for a call signature, latest first."""
    return list(_plans.get(model, {}).get(key, ()))


def cache_plan(model: nn.Module, key: Any, plan: ReadingPlan) -> None:
    plans = _plans.setdefault(model, {}).setdefault(key, [])
    plans.insert(0, plan)
    del plans[MAX_CACHED_PLANS:]
