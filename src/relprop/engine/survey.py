"""Where the scores of each part can be read: found once per model, by looking at how its output hangs together.

A hidden state stands for a part if everything that the part gives to the output passes through it, and if each of its
rows reads one unit of that part alone. The last such state is what the first block reads: behind it units mix. Both are
facts of the computation, found in its graph (states that all ways lead through) and by `units.prove`; what modules the
model has, how they are called and how its tensors are shaped plays no part.
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
from torch.autograd.graph import saved_tensors_hooks

from relprop.engine.leaves import Leaf, Place
from relprop.engine.module_stack import module_frames, module_of
from relprop.engine.observer import Observer
from relprop.ops import Op
from relprop.rulebook.product import live_tensors
from relprop.targets import is_own_function

# Where units can mix. (What mixes otherwise, `units.prove` finds out; of a single unit it cannot.)
_MIXES = {"softmax", "scaled_dot_product_attention", "multi_head_attention_forward", "log_softmax", "cumsum"}
_PRODUCTS_OF_WEIGHTS = {"matmul": 0, "einsum": 1}  # and where the weights stand
_PRODUCTS = {"matmul", "einsum", "baddbmm", "tensordot"}


@dataclass(frozen=True)
class LeafPlace:
    """Where a leaf is read: at the leaf itself, or at the result of so many calls after it."""

    part: str
    place: Place
    whole: bool  # a leaf of whole numbers, looked up or cast
    calls: int | None = None  # that depend on the leaf, up to the one whose result is read
    reached: bool = True  # False: the output does not depend on it
    features: tuple[int, ...] = ()  # axes of the part that are features of its units
    tokens: bool = False  # whole numbers [batch, tokens]
    entry: str = ""  # how it enters
    trace: tuple[str, ...] = ()  # the calls up to the one whose result is read, by name


@dataclass(frozen=True)
class ReadingPlan:
    """Where every leaf of a model is read, in the order in which they come; and its blocks, in the order of calls."""

    leaf_places: tuple[LeafPlace, ...]
    block_refs: tuple[weakref.ref[nn.Module], ...] = field(
        default=(), repr=False
    )  # weakly: it is kept as long as the model
    one_stream: bool = True  # all attention is among the rows of one stream of states
    unfollowed: tuple[str, ...] = ()  # parts that the output depends on, and nobody knows how
    proofs: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # what rows were shown to be
    axes: dict[str, int] = field(default_factory=dict, compare=False, repr=False)  # of examples, where several may be

    @property
    def blocks(self) -> list[nn.Module]:
        """The module calls that hold one attention each, in their order."""
        return [block for one in self.block_refs if (block := one()) is not None]


@dataclass(frozen=True)
class _Call:
    """A torch call with live tensors, and the nodes of the graph that it made."""

    name: str
    nodes: tuple[Any, ...]
    live: int


@dataclass(frozen=True)
class _AttentionCall:
    """A product of attention weights and values: the module calls around it, outermost first."""

    frames: tuple[FrameType, ...]
    square: bool  # of all rows by all rows
    calls: int  # that came before it
    live_queries: bool  # its queries depend on the input; else they are learned


class Recorder(Observer):
    """Keeps the graph's node of every live call. What the nodes would save for a backward pass is let go at once."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.attentions: list[_AttentionCall] = []
        self.first: tuple[FrameType, ...] = ()  # the module calls around the first live call, and around the last
        self.last: tuple[FrameType, ...] = ()
        self._weights: dict[int, Tensor] = {}  # results of softmax, and what handed them on

    def claims(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return True

    def after_claimed(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        given = live_tensors(args, tuple(kwargs.values()))
        if (made := live_tensors(result)) and not returns_input(given, made):
            self.calls.append(_Call(op.name, tuple(one.grad_fn for one in made), len(given)))
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
        elif isinstance(result, Tensor) and keeps_weights(op, args, result, self._weights):
            self._weights[id(result)] = result

    def _add_attention(self, square: bool, live_queries: bool) -> None:
        frames = tuple(reversed(list(module_frames())))
        self.attentions.append(_AttentionCall(frames, square, len(self.calls), live_queries))

    @property
    def in_blocks(self) -> list[_AttentionCall]:
        """Up to the last attention among all rows: what attends otherwise behind it is a head that pools."""
        square = [number for number, one in enumerate(self.attentions) if one.square]
        return self.attentions[: square[-1] + 1] if square else self.attentions

    def blocks(self, entered: bool) -> tuple[weakref.ref[nn.Module], ...]:
        """The module call that each attention is in, in order: the outermost that holds no other, nor what lies around.

        `entered`: the first live call lies before the blocks.
        """
        own = self.in_blocks
        around = (*self.last, *(self.first if entered else ()))
        count = Counter(id(frame) for frames in (*(one.frames for one in own), around) for frame in set(frames))
        alone = [[frame for frame in one.frames if count[id(frame)] == 1] for one in own]
        return tuple(weakref.ref(module_of(frames[0])) for frames in alone if frames)

    @staticmethod
    def saving_nothing() -> saved_tensors_hooks:
        return saved_tensors_hooks(lambda _: None, _never)


# Products in the graph, and where their factors stand among what they came from.
_PRODUCT_NODES = {"BmmBackward0": (0, 1), "MmBackward0": (0, 1), "BaddbmmBackward0": (1, 2)}


def _both_live(weights: Tensor) -> bool:
    """Whether both factors of the product that attention weights were made of, queries and keys, are live."""
    nodes = [weights.grad_fn]
    for node in nodes:  # which grows: breadth first
        factors = _PRODUCT_NODES.get(node.name()) if node is not None else None
        if node is not None and factors is not None:
            return all(node.next_functions[place][0] is not None for place in factors)
        nodes += [before for before, _ in node.next_functions] if node is not None and len(nodes) < 64 else []
    return True


# Calls that hand attention weights on as they are.
_CARRIES = {"dropout", "to", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "view", "reshape",
            "clone", "masked_fill", "nan_to_num", "mul"}  # fmt: skip


def keeps_weights(op: Op, args: tuple[Any, ...], result: Tensor, cached_plans: Mapping[int, Tensor]) -> bool:
    """A softmax makes attention weights; dropout, casts and reshapes hand them on."""
    return (op.name == "softmax" and result.dim() >= 3) or (
        op.name in _CARRIES and bool(args) and id(args[0]) in cached_plans
    )


def returns_input(given: Sequence[Tensor], made: Sequence[Tensor]) -> bool:
    """Whether a call gave a tensor back as it was, as dropout and casts may: it made nothing."""
    return len(made) == 1 and any(one.grad_fn is made[0].grad_fn for one in given)


def _never(_: None) -> Tensor:
    raise AssertionError("the graph of a survey is never walked")


def one_stream(recorder: Recorder, value: Tensor, leaves: Sequence[Leaf]) -> bool:
    """Whether all attention is among the rows of one stream of states: each attention finds all that came before it.

    So it is where between any two of them lies a state that all ways lead through, and queries are not learned.
    """
    order, contributing = _ordered([value.grad_fn], recorder.calls)
    reach = _reach(order, leaves)
    cuts = _cuts(order, {node for node in contributing if reach[node]})
    places = [number for number, call in enumerate(recorder.calls) if any(node in cuts for node in call.nodes)]
    own = recorder.in_blocks
    met = all(any(a.calls <= place < b.calls for place in places) for a, b in pairwise(own))
    return met and all(one.live_queries for one in own)


@dataclass(frozen=True)
class LeafPath:
    """The calls that depend on a leaf, before units can mix; and the states that all its ways lead through."""

    names: tuple[str, ...]
    states: tuple[tuple[int, bool], ...]  # so many calls after the leaf; and whether other parts are in it too


def leaf_paths(calls: Sequence[_Call], value: Tensor, leaves: Sequence[Leaf]) -> list[LeafPath | None]:
    """Per leaf: after how many calls that depend on it come the states that all its ways to `value` lead through.

    Only those before units can mix. None for a leaf that `value` does not depend on.
    """
    order, contributing = _ordered([value.grad_fn], calls)
    reach = _reach(order, leaves)
    found: list[LeafPath | None] = []
    for number, leaf in enumerate(leaves):
        same = sum(1 << i for i, other in enumerate(leaves) if other.part == leaf.part)
        own = {node for node in contributing if reach[node] >> number & 1}
        cuts = _cuts(order, own)
        found.append(_before_mixing(number, cuts, calls, reach, same) if own else None)
    return found


def _ordered(roots: list[Any], calls: Sequence[_Call]) -> tuple[list[Any], set[Any]]:
    """All nodes in the order in which they were made, and those that the roots depend on."""
    contributing = _closure(roots)
    every = contributing | _closure([node for call in calls for node in call.nodes])
    return sorted(every, key=_number), contributing


def _closure(roots: list[Any]) -> set[Any]:
    found: set[Any] = set()
    waiting = [node for node in roots if node is not None]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [before for before, _ in node.next_functions if before is not None]
    return found


def _number(node: Any) -> int:
    """Leaves have none of their own: they come first."""
    return -1 if hasattr(node, "variable") else int(node._sequence_nr())


def _reach(order: Sequence[Any], leaves: Sequence[Leaf]) -> dict[Any, int]:
    """Per node, as bits: the leaves that it depends on."""
    bits = {id(leaf.tensor): 1 << number for number, leaf in enumerate(leaves)}
    reach: dict[Any, int] = {}
    for node in order:
        own = bits.get(id(node.variable), 0) if hasattr(node, "variable") else 0
        for before, _ in node.next_functions:
            own |= reach.get(before, 0)
        reach[node] = own
    return reach


def _cuts(order: Sequence[Any], own: set[Any]) -> set[Any]:
    """Nodes that all ways lead through: when they come, no way is open that passes them by."""
    leaving = dict.fromkeys(own, 0)
    for node in own:
        for before, _ in node.next_functions:
            if before in own:
                leaving[before] += 1
    cuts, open_ways = set(), 0
    for node in order:
        if node in own:
            open_ways -= sum(before in own for before, _ in node.next_functions)
            if open_ways == 0:
                cuts.add(node)
            open_ways += leaving[node]
    return cuts


def _before_mixing(number: int, cuts: set[Any], calls: Sequence[_Call], reach: dict[Any, int], same: int) -> LeafPath:
    names: list[str] = []
    states: list[tuple[int, bool]] = []
    for call in calls:
        if not any(reach[node] >> number & 1 for node in call.nodes):
            continue
        if call.name in _MIXES or (call.name in _PRODUCTS and call.live > 1):
            break
        names.append(call.name)
        if len(call.nodes) == 1 and call.nodes[0] in cuts:
            states.append((len(names), bool(reach[call.nodes[0]] & ~same)))
    return LeafPath(tuple(names), tuple(states))


_plans: weakref.WeakKeyDictionary[nn.Module, dict[Any, list[ReadingPlan]]] = weakref.WeakKeyDictionary()
MAX_CACHED_PLANS = 4  # readings of one model and kind of input: it may run otherwise for other sizes


def call_signature(inputs: Mapping[str, Any], target: Any) -> tuple[Any, ...]:
    """What the way of a computation may depend on, short of the numbers: the arguments, and what is read off."""
    given = tuple(
        (name, value.dtype, value.dim()) if isinstance(value, Tensor) else (name, type(value))
        for name, value in inputs.items()
    )
    return given, getattr(target, "__code__", type(target)) if is_own_function(target) else None


def cached_plans(model: nn.Module, key: Any) -> list[ReadingPlan]:
    return list(_plans.get(model, {}).get(key, ()))


def cache_plan(model: nn.Module, key: Any, reading: ReadingPlan) -> None:
    kept = _plans.setdefault(model, {}).setdefault(key, [])
    kept.insert(0, reading)
    del kept[MAX_CACHED_PLANS:]
