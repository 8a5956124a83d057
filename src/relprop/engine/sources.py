"""The sources of scores: per part the live tensors at which relevance ends and scores are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal
from zlib import crc32

import torch
from torch import Tensor
from torch.nn import Parameter

from relprop.engine.carried_rows import CarriedRows, set_carried_rows
from relprop.engine.leaves import (
    IntegerTracker,
    Leaf,
    Lookup,
    ReadingPlace,
    batch_of,
    explained_parts,
    tensors,
)
from relprop.engine.observer import Observer
from relprop.engine.survey import LeafPlace, ReadingPlan, returns_input
from relprop.engine.units import Rows, proved_rows, rows_of_leaf
from relprop.ops import Op

MAX_CACHED_PROOFS = 64
# "leaf": every part as it enters. "tokens": token ids as they enter, all other parts at their default place.
At = Literal["block", "word_embeddings", "input", "elements", "leaf", "tokens"]
PLACES = ("block", "word_embeddings", "input", "elements")


class MisfitError(Exception):
    """The model does not run as in its survey, or its rows are not those of the reading plan."""


class UnreachedError(MisfitError):
    """The explained number does not depend on any explained input, as far as this plan makes them live."""


@dataclass(frozen=True)
class Source:
    """A live tensor at which scores of a part are read."""

    part: str
    place: ReadingPlace
    leaf: Tensor
    rows: Rows
    enters: bool  # the leaf itself, not a hidden state further up
    is_integer: bool  # the part consists of integers
    features: tuple[int, ...] = ()  # axes of the part that are features of its units
    lookup: Lookup | None = None
    looked_up: Tensor | None = None  # the integers that the lookup embedded
    raw_ids: bool = True  # these are the part's own integers, not computed from them (an offset, a hash)


Edit = Callable[[Source], Tensor]  # returns new values for the source


def replaced_ids(source: Source, other: Tensor | int) -> Tensor:
    """The integers that a source looked up, with those of its part replaced."""
    assert source.looked_up is not None
    elements = source.rows.elements.view(source.looked_up.shape)
    own = other if isinstance(other, int) else other.to(source.looked_up).flatten()[elements.clamp_min(0)]
    return torch.where(elements >= 0, own, source.looked_up)


@dataclass
class Probe:
    """Per leaf the states to test, as the number of calls before them; and their proved rows."""

    calls: list[list[int]]
    proved: list[dict[int, Rows | None]]
    mixed: Counter[int] = field(default_factory=Counter)

    def done(self, number: int, count: int) -> bool:
        """Whether a leaf has no state left to test; after three mixed states the rest is mixed too."""
        return not self.calls[number] or count >= self.calls[number][-1] or self.mixed[number] >= 3


class ProbedError(MisfitError):
    """Not a failure: every state was tested, so the rest of the model need not run."""


class Sources(Observer):
    """Makes each part live at the place that the reading plan names.

    Below that place nothing flows back and no rule applies; the plain gradient there proves that rows are units.
    `edit(source)` may change a source's values before they are used. Without `live` nothing flows back at all.
    """

    def __init__(
        self,
        inputs: Mapping[str, Any],
        plan: ReadingPlan | None = None,
        edit: Edit | None = None,
        live: bool = True,
        probe: Probe | None = None,
    ) -> None:
        # Copies, one per argument: a model may write to its inputs, and one tensor may be given for two of them.
        self.parts = {name: value.clone() for name, value in explained_parts(inputs).items()}
        self._inputs = inputs
        self.placed: list[Source] = []
        self.leaves: list[Leaf] = []
        self._integers = IntegerTracker(self.parts)
        self._plan, self._edit, self._live, self._probe = plan, edit, live, probe
        self._below: dict[int, tuple[Tensor, frozenset[int]]] = {}  # states below the place of their leaves
        self._calls: dict[int, int] = {}  # per leaf: the number of calls that depended on it
        self._trace: dict[int, list[str]] = {}  # per leaf: the names of these calls
        self._computed: dict[int, list[Hashable]] = {}  # per leaf: these calls with all their constants
        self._waiting: set[int] = set()  # leaves whose place is further up

    @property
    def mixed(self) -> set[str]:
        """Parts that also enter through calls that are not tracked; not those that only steer, as the survey showed."""
        return self._integers.mixed - set(() if self._plan is None else self._plan.steering)

    @property
    def unfollowed(self) -> tuple[str, ...]:
        """Parts that the output depends on, through calls that are not tracked."""
        return () if self._plan is None else self._plan.unfollowed

    @property
    def enters_elsewhere(self) -> tuple[str, ...]:
        """Parts of which the survey found that not all of their effect passes the tracked leaves."""
        return () if self._plan is None else self._plan.enters_elsewhere

    @property
    def live(self) -> list[Tensor]:
        """The leaves that are live before the model runs: its float inputs."""
        return [leaf.tensor for leaf in self.leaves if leaf.tensor.requires_grad]

    @property
    def all_placed(self) -> bool:
        entered = self._plan is None or len(self.leaves) == len(self._plan.leaf_places)
        return entered and not self._waiting

    @property
    def leaves_below(self) -> list[Tensor]:
        """Leaves whose scores are read further up: nothing should flow back to them."""
        placed = {id(source.leaf) for source in self.placed}
        return [leaf.tensor for leaf in self.leaves if leaf.tensor.requires_grad and id(leaf.tensor) not in placed]

    def live_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs with every float part made live, detached from the caller's own graph."""
        floats = {name: value for name, value in self.parts.items() if value.is_floating_point()}
        live = {}
        for name, value in floats.items():
            elements = torch.arange(value.numel(), device=value.device).view(value.shape)
            live[name] = self._enter(Leaf(name, value.detach(), elements, "input", "float"), value)
        others = {n: v.detach().clone() for n, v in inputs.items() if isinstance(v, Tensor) and n not in self.parts}
        return {**inputs, **others, **self.parts, **live}

    def after_constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        if not self._integers.tracks(args, kwargs):
            return result
        self._integers.leave(op, args, result)
        entering = self._integers.entry_of(op, args, result)
        if entering is None:
            self._integers.follow(op, args, kwargs, result)
            return result
        integers, part, elements = entering

        def lookup(other: Tensor) -> Tensor:
            with torch.no_grad():
                return op.function(*(other if one is integers else one for one in args), **kwargs)  # type: ignore[no-any-return]

        entry = f"{op.name} {list(result.shape[elements.dim() :])}"
        leaf = Leaf(part, result.detach(), elements, "word_embeddings", entry, lookup, integers)
        table = any(isinstance(one, Parameter) for one in tensors(args))
        return self._enter(leaf, result, table)

    def _enter(self, leaf: Leaf, values: Tensor, table: bool = True) -> Tensor:
        """Add a leaf; returns its values for the model, as a copy that the model may overwrite.

        Without a lookup `table` of the model, it may be a state that the rules made constant: if the plan does not
        expect it next, it is not a leaf.
        """
        number = len(self.leaves)
        planned = self._next_place(number, leaf)
        if planned is None and self._plan is not None:
            if table:
                raise MisfitError(f'"{leaf.part}" enters differently than before')
            return values
        if (planned is None and self._probe is None) or (
            planned is not None and planned.reached and not planned.ignored and planned.calls is None
        ):
            return self._place(leaf, planned)
        self.leaves.append(leaf)
        if planned is not None and planned.ignored:
            return values
        if planned is not None and not planned.reached:  # live all the same: the output may depend on it this time
            leaf.tensor.requires_grad_(self._live)
            return leaf.tensor.clone()
        leaf.tensor.requires_grad_()
        values = leaf.tensor.clone()
        self._below[id(values)] = (values, frozenset((number,)))
        self._waiting.add(number)
        return values

    def _next_place(self, number: int, leaf: Leaf) -> LeafPlace | None:
        """The place of the leaf, if it is the one that the plan expects next."""
        if self._plan is None or number >= len(self._plan.leaf_places):
            return None
        planned = self._plan.leaf_places[number]
        return planned if (planned.part, planned.entry) == (leaf.part, leaf.entry) else None

    def _place(self, leaf: Leaf, planned: LeafPlace | None) -> Tensor:
        place, features = (leaf.place, ()) if planned is None else (planned.place, planned.features)
        rows = rows_of_leaf(leaf, self.parts[leaf.part].shape, features)
        integer = leaf.place == "word_embeddings"
        raw = integer and leaf.integers is not None and self._are_raw(leaf, leaf.integers)
        tensor = self._make_live(
            Source(leaf.part, place, leaf.tensor, rows, True, integer, features, leaf.lookup, leaf.integers, raw)
        )
        self.leaves.append(replace(leaf, tensor=tensor))
        return self._placed_values(tensor)

    def _are_raw(self, leaf: Leaf, integers: Tensor) -> bool:
        """Whether looked-up integers are the part's own, only moved."""
        own = self._inputs[leaf.part].flatten().to(integers.device)[leaf.elements.clamp_min(0)]
        return bool(((leaf.elements < 0) | (own == integers)).all())

    def _make_live(self, source: Source) -> Tensor:
        source = replace(source, leaf=source.leaf.detach())
        values = source.leaf if self._edit is None else self._edit(source)
        leaf = values.detach().requires_grad_(self._live)
        self.placed.append(replace(source, leaf=leaf))
        return leaf

    def _placed_values(self, tensor: Tensor) -> Tensor:
        """The values of the latest source for the model, as a copy that it may overwrite."""
        values = tensor.clone()
        set_carried_rows(values, CarriedRows(len(self.placed) - 1, None))
        return values

    def claims(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call reads states below the place of their leaves."""
        return bool(self._below) and any(id(one) in self._below for one in tensors((*args, *kwargs.values())))

    def after_claimed(self, op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> Any:
        """After a claimed call: returns what the model gets as its result."""
        results = [one for one in tensors((result,)) if one.requires_grad]
        if not results:
            return result
        given = [one for one in tensors((*args, *kwargs.values())) if one.requires_grad]
        if self._probe is None and any(id(one) not in self._below for one in given):
            raise MisfitError("a part meets others before the place where it is read")
        origins = frozenset[int]().union(*(self._below[id(one)][1] for one in given if id(one) in self._below))
        if returns_input(given, results):
            self._below[id(results[0])] = (results[0], origins)
            return result
        called = (op.name, _content((*args, *kwargs.values())))
        for number in origins:
            self._calls[number] = self._calls.get(number, 0) + 1
            self._trace.setdefault(number, []).append(op.name)
            self._computed.setdefault(number, []).append(called)
        for one in results:
            self._below[id(one)] = (one, origins)
        return self._arrive(origins, result) if isinstance(result, Tensor) else result

    def after_claimed_write(self, result: Tensor, tensor: Tensor) -> None:
        if id(result) in self._below:
            self._below[id(tensor)] = (tensor, self._below[id(result)][1])

    def _arrive(self, origins: frozenset[int], state: Tensor) -> Tensor:
        if self._probe is not None:
            return self._try_state(self._probe, origins, state)
        assert self._plan is not None
        here = {number for number in origins if self._plan.leaf_places[number].calls == self._calls[number]}
        if not here:
            return state
        if here != origins or any(list(self._plan.leaf_places[n].trace) != self._trace[n] for n in here):
            raise MisfitError("it runs differently than before")
        number = min(origins)
        leaf, planned = self.leaves[number], self._plan.leaf_places[number]
        rows = self._proved_rows(origins, state)
        if rows is None or not self._are_units(rows, self.parts[leaf.part]):
            raise MisfitError(f'the rows of its first block are not the units of "{leaf.part}"')
        tensor = self._make_live(
            Source(leaf.part, planned.place, state, rows, False, planned.integer, planned.features)
        )
        self._release(origins)
        return self._placed_values(tensor)

    def _proved_rows(self, origins: frozenset[int], state: Tensor) -> Rows | None:
        """The rows of a state, if they read windows of one part.

        A proof holds for the same calls with the same constants: other weights, buffers or arguments are proved anew.
        """
        own = [self.leaves[number] for number in sorted(origins)]
        if len({leaf.part for leaf in own}) > 1:
            return None
        shape = self.parts[own[0].part].shape
        if self._plan is None:
            return proved_rows(state, own, shape)
        below = tuple((number, tuple(self._computed.get(number, ()))) for number in sorted(origins))
        key = (below, state.shape, state.dtype, shape, _content([leaf.elements for leaf in own]))
        if key not in self._plan.proofs:
            if len(self._plan.proofs) >= MAX_CACHED_PROOFS:
                self._plan.proofs.clear()
            self._plan.proofs[key] = proved_rows(state, own, shape)
        return self._plan.proofs[key]

    def _are_units(self, rows: Rows | None, part: Tensor) -> bool:
        """Whether each row is a token; or, for other parts, one of several windows of an example."""
        if rows is None:
            return False
        tokens = part.dim() == 2 and not part.is_floating_point()
        return rows.single or (not tokens and prod(rows.grid) > batch_of(self._inputs) and rows.differ)

    def _try_state(self, probe: Probe, origins: frozenset[int], state: Tensor) -> Tensor:
        due = [number for number in origins if self._calls[number] in probe.calls[number]]
        if not due:
            return state
        rows = self._proved_rows(origins, state)
        for number in due:
            units = self._are_units(rows, self.parts[self.leaves[number].part])
            probe.proved[number][self._calls[number]] = rows if units else None
            probe.mixed[number] += rows is None
        if all(probe.done(number, self._calls[number]) for number in origins):
            self._release(origins)
            state = state.detach()
        if all(probe.done(number, self._calls.get(number, 0)) for number in range(len(probe.calls))):
            raise ProbedError
        return state

    def _release(self, origins: frozenset[int]) -> None:
        self._waiting -= origins
        self._below = {key: entry for key, entry in self._below.items() if not entry[1] <= origins}


def _content(value: Any) -> Hashable:
    """Equal for equal arguments of a call: constants by their content, live tensors by their shape."""
    if isinstance(value, Tensor):
        if value.requires_grad:
            return "live", value.shape
        numbers = value.detach().cpu().contiguous().reshape(-1)
        return value.shape, value.dtype, crc32(numbers.view(torch.uint8).numpy().data)
    if isinstance(value, list | tuple):
        return tuple(map(_content, value))
    return repr(value)
