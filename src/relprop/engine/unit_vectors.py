"""Carries through the forward pass what each unit gives to every tensor, as vectors that sum to it ([DecompX]).

Under conservative rules each call is linear in its live tensors, up to a constant: the vector of a unit is pushed
through the call by its derivative, and the constant is shared out among the units, so that vectors always sum to the
tensor itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from relprop.deadline import check_deadline
from relprop.engine.batch_axes import proved_axes
from relprop.engine.flow import Flow
from relprop.engine.model_call import batch_of, call, check_finite, evaluating, read_target, warnings_of, why_unreached
from relprop.engine.observer import Observer, Run
from relprop.engine.placement import reading_plans
from relprop.engine.prediction import detached_target
from relprop.engine.propagation import Propagation
from relprop.engine.restoring import restoring
from relprop.engine.sources import MisfitError, Source, Sources
from relprop.engine.survey import ReadingPlan
from relprop.errors import InputError, ModelError, OneByOneError
from relprop.ops import AFFINE, Op, at_least_float32
from relprop.rulebook.rulesets import RuleSet

MOST_UNITS = 128
Edge = tuple[Any, int]  # a node of the graph, and which of its outputs
Split = Callable[[Tensor, Tensor], Tensor]  # the shares of a constant, from the units' vectors and the constant


def unit_vectors(
    model: nn.Module, inputs: Mapping[str, Any], target: Any, rules: RuleSet, split: Split
) -> tuple[Flow, list[Tensor]]:
    """The pass of one example, without its way back; and per source what each of its rows gives to the target."""
    if batch_of(inputs) > 1:
        raise OneByOneError("vectors are carried for one example at a time")
    for plan in reading_plans(model, inputs, target):
        with suppress(MisfitError):
            return _carried(model, inputs, target, rules, split, plan)
    raise ModelError("no place to read scores from was found: it runs differently every time")


@restoring
def _carried(
    model: nn.Module, inputs: Mapping[str, Any], target: Any, rules: RuleSet, split: Split, plan: ReadingPlan
) -> tuple[Flow, list[Tensor]]:
    sources = Sources(inputs, plan)
    segments = _LinearSegments()
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
        given = sources.live_inputs(inputs)
        with Propagation(rules, [sources, segments], sources.live) as mode:
            outputs = call(model, given, target)
            chosen = read_target(model, target, outputs, inputs)
            mode.is_live(chosen.value)
    if not sources.all_placed:
        raise MisfitError("a part did not pass the place where it is read")
    check_finite(model, chosen)
    if not chosen.value.requires_grad:
        raise ModelError(why_unreached(chosen))
    if len(chosen.value) > 1:
        raise OneByOneError("vectors are carried for one number at a time")
    placed = tuple(sources.placed)
    with torch.inference_mode(False), torch.enable_grad():
        found = at_least_float32(_carry(chosen.value, placed, segments.results, split)).flatten(1).sum(1)
    axes, _ = proved_axes(placed, 1, plan)
    warnings = warnings_of(sources, inputs, mode.warnings)
    flow = Flow(
        detached_target(chosen), placed, (), "gradient", axes=axes, one_stream=plan.one_stream, warnings=warnings
    )
    return flow, list(found.split([len(one.rows.low) for one in placed]))


class _LinearSegments(Observer):
    """Cuts the graph behind every call that may add a constant: each segment is linear, and its results are kept."""

    def __init__(self) -> None:
        self.results: dict[Edge, Tensor] = {}  # by the edge at which the next segments begin
        self._begins: list[Tensor] = []

    def around_call(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        result = run(op, args, kwargs)
        if op.name not in AFFINE or not isinstance(result, Tensor) or not result.requires_grad:
            return result
        begin = result.detach().clone().requires_grad_()
        self._begins.append(begin)
        self.results[_edge(begin)] = result
        return begin.clone()  # the model may write to it


def _carry(value: Tensor, sources: Sequence[Source], results: dict[Edge, Tensor], split: Split) -> Tensor:
    """The vectors of the explained number."""
    vectors = _first_vectors(sources)
    top: Edge = (None, 0)
    results = {**results, top: value}
    below = _edges_below(top, results, set(vectors))
    uses = Counter(edge for edges in below.values() for edge in edges)
    for edge, own in below.items():  # from the sources up
        check_deadline()
        result = results[edge]
        pushed = _pushed(result, own, [vectors[one] for one in own])
        vectors[edge] = pushed + split(pushed, result.detach() - pushed.sum(0))
        uses.subtract(own)
        for one in own:
            if not uses[one]:
                del vectors[one]  # the largest tensors by far
    return vectors[top]


def _first_vectors(sources: Sequence[Source]) -> dict[Edge, Tensor]:
    """Each row of a source is a unit, whose vector is that row alone."""
    counts = [len(one.rows.low) for one in sources]
    if sum(counts) > MOST_UNITS:
        raise InputError(f'"decompx" carries a vector per unit, of {MOST_UNITS} units at most: got {sum(counts)}')
    vectors: dict[Edge, Tensor] = {}
    for number, source in enumerate(sources):
        leaf, count = source.leaf.detach(), counts[number]
        index = torch.arange(count, device=leaf.device)[:, None]
        rows = source.rows.back(index.expand(-1, leaf.numel() // count), leaf.shape) + sum(counts[:number])
        vectors[_edge(source.leaf)] = torch.stack([torch.where(rows == unit, leaf, 0) for unit in range(sum(counts))])
    return vectors


def _edges_below(top: Edge, results: Mapping[Edge, Tensor], sources: set[Edge]) -> dict[Edge, list[Edge]]:
    """Per edge those at which its segment begins; in the order of the computation."""
    below: dict[Edge, list[Edge]] = {}
    ordered: dict[Edge, list[Edge]] = {}
    waiting = [top]
    while waiting:
        edge = waiting[-1]
        if edge in below:
            ordered.setdefault(waiting.pop(), below[edge])  # all that it is computed from is there
        else:
            below[edge] = _begins(_edge(results[edge]), {*results, *sources})
            waiting += [one for one in below[edge] if one not in below and one not in sources]
    return ordered


def _begins(start: Edge, known: set[Edge]) -> list[Edge]:
    """The edges at which the segment of a result begins."""
    found: list[Edge] = []
    visited: set[Edge] = set()
    waiting = [start]
    while waiting:
        edge = waiting.pop()
        if edge in visited or edge[0] is None:
            continue
        visited.add(edge)
        if edge in known:
            found.append(edge)
        else:
            waiting += edge[0].next_functions
    return found


def _edge(tensor: Tensor) -> Edge:
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _pushed(result: Tensor, edges: list[Edge], vectors: list[Tensor]) -> Tensor:
    """The vectors where a segment begins, carried to its end: u J is linear in u, and its derivative by u is J."""
    u = torch.zeros_like(result, requires_grad=True)
    back = torch.autograd.grad(result, [GradientEdge(*one) for one in edges], u, create_graph=True)
    reached = [(one, own) for one, own in zip(back, vectors, strict=True) if one.requires_grad]  # others get nothing
    if not reached:
        return torch.zeros(len(vectors[0]), *result.shape).to(result)
    parts, vectors = ([pair[i] for pair in reached] for i in (0, 1))
    try:
        (pushed,) = torch.autograd.grad(parts, u, vectors, is_grads_batched=True, retain_graph=True)
    except RuntimeError:  # a rule that cannot be batched
        each = [torch.autograd.grad(parts, u, list(own), retain_graph=True)[0] for own in zip(*vectors, strict=True)]
        pushed = torch.stack(each)
    return pushed.detach()
