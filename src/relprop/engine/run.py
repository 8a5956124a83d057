"""One pass: the model runs under the rules, the target flows back, and what reaches the sources is returned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.calling import batch_of, call, check_finite, check_live, evaluating, labels_of, wide
from relprop.engine.capture import Capture, Watch
from relprop.engine.checkpoint import Checkpoint
from relprop.engine.ledger import Books
from relprop.engine.propagation import Propagation, guard_opaque
from relprop.engine.seen import Seen
from relprop.engine.sharing import key_of, recall, remember
from relprop.engine.sources import PLACES, At, Edit, MisfitError, Source, Sources
from relprop.errors import InputError, ModelError, unknown_name
from relprop.rulebook import rulesets
from relprop.rulebook.rulesets import RuleSet
from relprop.rulebook.zplus import OneWayError, Phase
from relprop.targets import Chosen, Several, choose

Places = At | tuple[At, ...] | None


@dataclass(frozen=True)
class Flow:
    """What one pass found."""

    chosen: Chosen
    sources: tuple[Source, ...]
    arrived: tuple[Tensor, ...]  # per source: the gradient, or the relevance
    carries: str
    seen: Seen | None = None
    books: Books | None = None
    gradient: Flow | None = None  # the gradient's own way back, where one forward pass served both

    def relevance(self) -> list[Tensor]:
        """Per source, element by element, in float32 or better."""
        return [
            wide(arrived) if self.carries == "relevance" else wide(source.leaf.detach()) * wide(arrived)
            for source, arrived in zip(self.sources, self.arrived, strict=True)
        ]


@dataclass(frozen=True)
class _Plan:
    """How a pass goes."""

    rules: RuleSet
    at: Places
    edit: Edit | None
    watch: Watch | None
    two_way: bool
    checkpoint: bool
    ledger: bool
    gradients: Seen | None = None  # found by an earlier pass


def propagate(
    model: nn.Module,
    inputs: Mapping[str, Any],
    target: Any,
    rules: RuleSet,
    *,
    at: Places = None,
    edit: Edit | None = None,
    watch: Watch | None = None,
    two_way: bool = False,
    checkpoint: bool = False,
    ledger: bool = False,
) -> Flow:
    """Run `model(**inputs)` under `rules` and let the target flow back to where the scores are read.

    `at`: the first block's input ("block"), the word embeddings, or the model's float "input"; several are tried in
    order, and None tries all three. `watch` says what to see of attention. `two_way`: relevance-carrying rules also let
    the gradient flow back, from the same forward pass where the model allows.
    """
    plan = _Plan(rules, at, edit, watch, two_way, checkpoint, ledger)
    shareable = edit is None and not (watch is not None and watch.heads) and not (checkpoint or ledger)
    key = key_of(model, inputs, target, rules.name, at) if shareable else None
    if key is None:
        return _settled(model, inputs, target, plan)
    wanted = (watch is not None, two_way)
    if (known := recall(key, *wanted)) is not None:
        return known  # type: ignore[no-any-return]
    # What this method would fold away, another may want.
    flow = _settled(model, inputs, target, replace(plan, watch=watch and Watch()))
    remember(key, *wanted, flow)
    if flow.gradient is not None:
        gradient_key = key_of(model, inputs, target, rulesets.gradient.name, at)
        assert gradient_key is not None
        remember(gradient_key, watch is not None, False, flow.gradient)
    return flow


def _settled(model: nn.Module, inputs: Mapping[str, Any], target: Any, plan: _Plan) -> Flow:
    """Both ways from one forward pass; from two, where the rules cut the gradient."""
    try:
        return _first_place(model, inputs, target, plan)
    except OneWayError:
        watch = plan.watch and Watch(outflows=plan.watch.fold is not None and plan.rules.sees_fused)
        alone = replace(plan, two_way=False, rules=rulesets.gradient, watch=watch)
        gradient = _first_place(model, inputs, target, alone)
        flow = _first_place(model, inputs, target, replace(plan, two_way=False, gradients=gradient.seen))
        return replace(flow, gradient=gradient)


def _first_place(model: nn.Module, inputs: Mapping[str, Any], target: Any, plan: _Plan) -> Flow:
    """The pass at the first place where the model lets scores be read."""
    places = PLACES if plan.at is None else plan.at if isinstance(plan.at, tuple) else (plan.at,)
    for place in places:
        if place not in PLACES:
            raise unknown_name("place", place, PLACES)
        pass_ = _Pass(model, inputs, Sources(model, inputs, place, plan.edit), plan)
        try:
            flow = pass_.run(target)
        except MisfitError as misfit:
            if len(places) == 1:
                raise InputError(f'scores cannot be read at="{place}": {misfit}; try at="word_embeddings"') from None
            continue
        if flow is not None:
            return flow
    raise ModelError(f"no place to read scores from was found (looked at: {', '.join(places)})")


class _Pass:
    """The observers of one pass, and the pass itself."""

    def __init__(self, model: nn.Module, inputs: Mapping[str, Any], sources: Sources, plan: _Plan) -> None:
        self.model = model
        self.sources = sources
        self.inputs = sources.float_inputs(inputs) if sources.at == "input" else inputs
        self.phase = Phase() if plan.two_way else None
        rules = plan.rules if self.phase is None else plan.rules.two_way(self.phase)
        if plan.watch is not None:
            folding = plan.watch.fold is not None or plan.watch.outflows
            rules = rules.with_maps(fused=folding and plan.rules.sees_fused)
        self.rules = rules
        self.saver = Checkpoint(model) if plan.checkpoint else None
        self.capture = Capture(model, batch_of(inputs), plan.watch, self.rules) if plan.watch else None
        self.gradients = plan.gradients
        self.books = Books(model, rules) if plan.ledger else None

    def run(self, target: Any) -> Flow | None:
        """The flow, or None where no source was found."""
        with torch.inference_mode(False), torch.enable_grad(), evaluating(self.model):
            outputs = self._forward(target)
            if not self.sources.placed:
                return None
            chosen = choose(target, outputs, self.inputs, labels_of(self.model))
            check_finite(self.model, chosen)
            check_live(chosen)
            guard_opaque(chosen.value, self.rules)
            if isinstance(target, Several):
                return self._flows(chosen, target, outputs)
            if self.books is not None:
                self.books.look_for_opaque(chosen.value)
            gradient = None
            if self.phase is not None:
                gradient = self._flow(chosen, "gradient", keep_graph=True)
                self.phase.gradient = False
            flow = self._flow(chosen, self.rules.carries)
        if self.capture is not None:
            self.capture.settle()
        return replace(flow, books=self.books, gradient=gradient)

    def _flow(self, chosen: Chosen, carries: str, keep_graph: bool = False) -> Flow:
        sources = tuple(self.sources.placed)
        seen = None if self.capture is None else self.capture.seen
        if self.capture is not None and self.capture.end is not None:
            torch.autograd.grad(chosen.value.sum(), self.capture.end, allow_unused=True)
            return Flow(_detached(chosen), (), (), carries, seen)
        leaves = [source.leaf for source in sources]
        arrived = torch.autograd.grad(chosen.value.sum(), leaves, allow_unused=True, retain_graph=keep_graph)
        reached = tuple(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, arrived, strict=True))
        return Flow(_detached(chosen), sources, reached, carries, seen)

    def _flows(self, chosen: Chosen, target: Several, outputs: Any) -> Flow:
        """One way back for each of several targets of a single example: what arrived is a batch of them."""
        if any(one is not None for one in (self.phase, self.saver, self.capture, self.books)):
            raise InputError("several targets at once allow neither maps, a checkpoint nor a ledger: ask one by one")
        if batch_of(self.inputs) != 1:
            raise InputError(f"several targets at once are of a single example, got {batch_of(self.inputs)}")
        sources = tuple(self.sources.placed)
        leaves = [source.leaf for source in sources]
        ways = []
        for number, one in enumerate(target.targets, 1):  # each read anew: the others' rows would ride along as zeros
            last = number == len(target.targets)
            value = one(outputs).sum()
            arrived = torch.autograd.grad(value, leaves, allow_unused=True, retain_graph=not last)
            ways.append([torch.zeros_like(x) if g is None else g for x, g in zip(leaves, arrived, strict=True)])
        reached = tuple(torch.cat(each) for each in zip(*ways, strict=True))
        return Flow(_detached(chosen), sources, reached, self.rules.carries)

    def _forward(self, target: Any) -> Any:
        every = (self.sources, self.saver, self.capture, self.books)
        try:
            with Propagation(self.rules, [one for one in every if one is not None]):
                outputs = call(self.model, self.inputs, target)
        finally:
            if self.saver is not None:
                self.saver.close()
        if self.capture is not None:
            self.capture.finish(self.gradients)
        return outputs


def attend(model: nn.Module, inputs: Mapping[str, Any], target: Any, watch: Watch) -> Flow:
    """The attention maps of a forward pass, folded as they are seen; the target flows back through the head only.

    Where it cannot be traced to the last block's output alone, it flows back all the way.
    """
    if key_of(model, inputs, target, "", None) is not None:  # another method may need the way back
        return propagate(model, inputs, target, rulesets.gradient, watch=watch)
    rules = rulesets.gradient.with_maps(fused=True)
    capture = Capture(model, batch_of(inputs), watch, rules, live=False)
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
        with Propagation(rules, [capture]):
            outputs = call(model, inputs, target)
        chosen = choose(target, outputs, inputs, labels_of(model))
        check_finite(model, chosen)
        last = capture.seen.last
        if last is not None and last.input.requires_grad and chosen.value.requires_grad:
            (last.gradient,) = torch.autograd.grad(chosen.value.sum(), last.input, allow_unused=True)
    if last is None or last.gradient is None:
        return propagate(model, inputs, target, rulesets.gradient, watch=watch)
    return Flow(_detached(chosen), (), (), "gradient", capture.seen)


def _detached(chosen: Chosen) -> Chosen:
    rows = None if chosen.rows is None else wide(chosen.rows.detach())
    return Chosen(wide(chosen.value.detach()), chosen.names, rows, chosen.exact)


def predict(model: nn.Module, inputs: Mapping[str, Any], target: Any) -> Chosen:
    """The target read off a plain forward pass."""
    with torch.no_grad(), evaluating(model):
        chosen = choose(target, call(model, inputs, target), inputs, labels_of(model))
    check_finite(model, chosen)
    return _detached(chosen)


def predict_edited(model: nn.Module, inputs: Mapping[str, Any], target: Any, at: At, edit: Edit) -> Chosen:
    """The target read off a forward pass with an edited input, and no backward pass."""
    sources = Sources(model, inputs, at, edit, live=False)
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
        edited = sources.float_inputs(inputs) if at == "input" else inputs
        with Propagation(rulesets.gradient, [sources]):
            outputs = call(model, edited, target)
        if not sources.placed:
            raise ModelError(f"no place to change the input was found (looked at: {at})")
        return _detached(choose(target, outputs, inputs, labels_of(model)))
