"""Reads relevance at the input of every block, reduced to one number per row in the backward pass.

A block's input is read if three things hold in this very pass: all that one source gives to the output passes through
it (a cut of the graph), nothing of another source does, and its rows are those of the source, each of them once
(`carried_rows`). What a source gives is then accounted for at each of these states: the output is the relevance of its
rows plus what the calls above it took.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.carried_rows import CarriedRows, carried_rows, rows_after, set_carried_rows
from relprop.engine.module_stack import float_arguments, module_frames, module_of, stacks
from relprop.engine.observer import Observer, PropagationMode, Run
from relprop.engine.saved_tensors import address
from relprop.engine.sources import Source
from relprop.engine.survey import LeafGraph
from relprop.ops import Op, at_least_float32


class _State:
    """A block's input in one pass: its values until they are needed, and what flowed back to its rows."""

    def __init__(self, carried: CarriedRows | None, values: Tensor) -> None:
        self.carried = carried
        self.values = values
        self.read = False  # whether it is shown to stand for its source
        self.order: Tensor | None = None  # the source's row that each of its rows is
        self.axis = -1  # its features
        self.arrived: Tensor | None = None  # [rows]

    def arrive(self, gradient: Tensor | None) -> None:
        if self.read and gradient is not None:
            product = at_least_float32(self.values) * at_least_float32(gradient)
            self.arrived = product.sum(self.axis).flatten()


@dataclass(frozen=True)
class RowRelevance:
    """Per source: the relevance of each row, over its states."""

    rows: tuple[Tensor, ...]
    states: tuple[int, ...]  # how many, that of the source itself included
    unread: tuple[int, ...]  # of its other block inputs, those that could not be read


def stacked(each: Sequence[RowRelevance]) -> RowRelevance:
    """The rows of several backward passes as [targets, rows]."""
    rows = tuple(torch.stack(one) for one in zip(*(relevance.rows for relevance in each), strict=True))
    return RowRelevance(rows, each[0].states, each[0].unread)


class BlockStates(Observer):
    """Finds the inputs of all blocks and reads relevance there. The rules must carry the gradient.

    `share` is that of the mean over all states; the rest is what the source's own state has.
    """

    def __init__(
        self, model: nn.Module, blocks: Sequence[nn.Module], placed: Sequence[Source], share: float = 1.0
    ) -> None:
        self._share = share
        self._blocks = {id(block) for stack in (blocks, *stacks(model)) for block in stack}
        self._sources = placed  # grows while the model runs
        self._block_frame: FrameType | None = None
        self._states: list[_State] = []
        self._nodes: list[tuple[Any, int]] = []  # per block input its node of the graph: no state may refer to it
        self._saved: dict[int, list[_State]] = {}
        self._row_numbers: list[Tensor] = []
        self._unread: list[int] = []

    # The forward pass.

    def before_call(self, mode: PropagationMode, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        frame = next((f for f in module_frames() if id(module_of(f)) in self._blocks), None)
        if frame is self._block_frame:
            return
        self._block_frame = frame
        live = [] if frame is None else [x for one in float_arguments(frame) if mode.is_live(x := mode.stand_in(one))]
        entering = next((x for x in live if carried_rows(x) is not None), live[0] if live else None)
        if entering is not None and (entering.grad_fn, entering.output_nr) not in self._nodes:
            self._add(entering)

    def _add(self, x: Tensor) -> None:
        state = _State(carried_rows(x), x.detach())
        self._states.append(state)
        self._nodes.append((x.grad_fn, x.output_nr))
        self._saved.setdefault(address(x), []).append(state)
        x.register_hook(state.arrive)

    def around_call(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        result = run(op, args, kwargs)
        if isinstance(result, Tensor) and result.requires_grad and not any(one is result for one in args):
            set_carried_rows(result, rows_after(op, args, kwargs, result, self._numbers()))
        return result

    def _numbers(self) -> list[Tensor]:
        """Per source the row of each of its numbers."""
        for source in self._sources[len(self._row_numbers) :]:
            rows, shape = source.rows, source.leaf.shape
            index = torch.arange(len(rows.low), device=source.leaf.device)[:, None]
            self._row_numbers.append(rows.back(index.expand(-1, source.leaf.numel() // len(index)), shape))
        return self._row_numbers

    def before_write(self, tensor: Tensor) -> None:
        for state in self._saved.pop(address(tensor), ()):
            state.values = state.values.clone()

    # Between the passes.

    def finish(self, value: Tensor) -> Callable[[Any], float]:
        """Decide which states are read. Returns for a call, by its node, how much the states below it weigh.

        What a call takes is missing at these states only: the mean of what all states miss has this share of it.
        """
        graph = LeafGraph(value, [source.leaf for source in self._sources])
        passed: list[list[int]] = [[] for _ in self._sources]
        unread: list[list[bool]] = [[] for _ in self._sources]
        for state, (node, output) in zip(self._states, self._nodes, strict=True):
            own = graph.depends_on(node)
            if own == 0 or own & (own - 1) or graph.is_chain(node):  # none or several sources, or the source itself
                continue
            number = own.bit_length() - 1
            cut = graph.is_cut(number, node, output)
            if cut and self._prove(state, number):
                passed[number].append(graph.number(node))
            else:
                unread[number].append(cut)
        self._unread = [sum(cuts) if own else len(cuts) for cuts, own in zip(unread, passed, strict=True)]
        self._nodes, self._saved, self._block_frame = [], {}, None

        def share_below(node: Any) -> float:
            own = graph.depends_on(node)
            if own == 0 or own & (own - 1):
                return 1.0
            states = passed[own.bit_length() - 1]
            below = (1 + sum(number < graph.number(node) for number in states)) / (1 + len(states))
            return 1 - self._share + self._share * below

        return share_below

    def _prove(self, state: _State, number: int) -> bool:
        """Whether the rows of a state are those of the source, each of them once."""
        carried, count = state.carried, len(self._sources[number].rows.low)
        if carried is None or carried.source != number:
            return False
        numbers = self._numbers()[number] if carried.rows is None else carried.rows
        for axis in range(numbers.dim() - 1, -1, -1):
            rows = numbers.select(axis, 0)
            if rows.numel() != count or not torch.equal(numbers, rows.unsqueeze(axis).expand_as(numbers)):
                continue
            order = rows.flatten()
            state.read = torch.equal(order.sort().values, torch.arange(count, device=order.device))
            state.order, state.axis = order, axis
            return state.read
        return False

    # The backward pass.

    def relevance(self, at_sources: Sequence[Tensor]) -> RowRelevance:
        """Over all states, given the relevance of each row at the sources; for the latest backward pass."""
        total, count = list(at_sources), [1] * len(at_sources)
        for state in self._states:
            if state.read and state.carried is not None and state.order is not None:
                number = state.carried.source
                count[number] += 1
                if state.arrived is not None:
                    own = torch.zeros_like(state.arrived).index_copy(0, state.order, state.arrived)
                    total[number] = total[number] + own.to(total[number])
                    state.arrived = None
        means = [one / number for one, number in zip(total, count, strict=True)]
        rows = tuple(torch.lerp(own, mean, self._share) for own, mean in zip(at_sources, means, strict=True))
        return RowRelevance(rows, tuple(count), tuple(self._unread))

    def release(self) -> None:
        """After the last backward pass."""
        self._states.clear()
