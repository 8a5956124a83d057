"""One pass: the model runs under the rules, the target flows back, and what reaches the sources is returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.capture import Capture, Watch
from relprop.engine.captured_maps import Seen
from relprop.engine.checkpoint import Checkpoint
from relprop.engine.ledger import Books
from relprop.engine.model_call import (
    batch_of,
    call,
    check_finite,
    check_live,
    evaluating,
    read_target,
    unexplained_inputs,
    wide,
)
from relprop.engine.pass_cache import key_of, recall, remember
from relprop.engine.placement import readings_of
from relprop.engine.propagation import Propagation
from relprop.engine.refusals import guard_opaque
from relprop.engine.sources import At, Edit, MisfitError, Source, Sources
from relprop.engine.survey import Reading
from relprop.engine.units import owners
from relprop.errors import InputError, ModelError
from relprop.rulebook import rulesets
from relprop.rulebook.rulesets import RuleSet
from relprop.rulebook.zplus import OneWayError, Phase
from relprop.targets import Chosen, Several, is_own_function

PERIOD = 12  # examples that are told apart by powers of two, which half precision bears too


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
    several: bool = False  # what arrived is a stack: one for each of several targets of a single example
    owners: Mapping[str, Tensor] = field(default_factory=dict)  # per part without an axis of examples, of its rows
    axes: Mapping[str, int] = field(default_factory=dict)  # per part its axis of examples; -1 for none
    one_stream: bool = True  # all attention is among the rows of one stream of states
    warnings: tuple[str, ...] = ()

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
    at: At | None
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
    at: At | None = None,
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
    key = key_of(model, inputs, target, rules, at) if shareable else None
    if key is None:
        return _settled(model, inputs, target, plan)
    wanted = (watch is not None, two_way)
    if (known := recall(key, *wanted)) is not None:
        return known  # type: ignore[no-any-return]
    # What this method would fold away, another may want.
    flow = _settled(model, inputs, target, replace(plan, watch=watch and Watch()))
    remember(key, *wanted, flow)
    if flow.gradient is not None:
        gradient_key = key_of(model, inputs, target, rulesets.gradient, at)
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
    """The pass at the places where the model lets its parts be read. What was known of them may no longer hold."""
    for reading in readings_of(model, inputs, target, plan.at):
        try:
            return _Pass(model, inputs, reading, plan).run(target)
        except MisfitError as misfit:
            reason = misfit
    raise ModelError(f"no place to read scores from was found: {reason}")


def _axes(sources: Sequence[Source], examples: int, reading: Reading) -> tuple[dict[str, int], list[Source]]:
    """Per part the axis as long as there are examples, -1 for none; and the sources where that is unclear."""
    axes, unclear = {}, []
    for source in sources:
        fitting = [axis for axis, size in enumerate(source.rows.shape) if size == examples]
        if examples == 1:
            axes[source.part] = 0 if fitting[:1] == [0] else -1
        elif len(fitting) == 1:
            axes[source.part] = fitting[0]
        elif source.part in reading.axes:
            axes[source.part] = reading.axes[source.part]
        else:
            unclear.append(source)
    return axes, unclear


def axes_of(
    model: nn.Module,
    inputs: Mapping[str, Any],
    target: Any,
    reading: Reading,
    sources: Sequence[Source],
    examples: int,
) -> dict[str, int]:
    """The same; what is unclear is shown by a plain pass: what flows back from each example tells which axis it is."""
    axes, unclear = _axes(sources, examples, reading)
    if unclear:
        plain = _Plan(rulesets.gradient, None, None, None, two_way=False, checkpoint=False, ledger=False)
        _Pass(model, inputs, reading, plain).run(target)
        axes, _ = _axes(sources, examples, reading)
    return axes


class _Pass:
    """The observers of one pass, and the pass itself."""

    def __init__(self, model: nn.Module, inputs: Mapping[str, Any], reading: Reading, plan: _Plan) -> None:
        self.model = model
        self.reading = reading
        self.noticed: list[str] = []
        self.sources = Sources(inputs, reading, plan.edit)
        self.inputs = inputs
        self.phase = Phase() if plan.two_way else None
        rules = plan.rules if self.phase is None else plan.rules.two_way(self.phase)
        if plan.watch is not None:
            folding = plan.watch.fold is not None or plan.watch.outflows
            rules = rules.with_maps(fused=folding and plan.rules.sees_fused)
        self.rules = rules
        self.saver = Checkpoint(model) if plan.checkpoint else None
        self.capture = Capture(model, reading.blocks, batch_of(inputs), plan.watch, self.rules) if plan.watch else None
        self.gradients = plan.gradients
        self.books = Books(model, rules) if plan.ledger else None

    @property
    def _told(self) -> dict[str, Any]:
        return {"one_stream": self.reading.one_stream, "warnings": warnings_of(self.sources, self.inputs, self.noticed)}

    def run(self, target: Any) -> Flow:
        with torch.inference_mode(False), torch.enable_grad(), evaluating(self.model):
            outputs, chosen = self._forward(target)
            check_finite(self.model, chosen)
            check_live(chosen)
            guard_opaque(chosen.value, self.rules)
            if isinstance(target, Several):
                return self._flows(chosen, target, outputs)
            if self.books is not None:
                self.books.look_for_opaque(chosen.value)
            axes, packed = self._examples(target, chosen.value)
            gradient = None
            if self.phase is not None:
                gradient = replace(self._flow(chosen, "gradient", keep_graph=True), axes=axes, owners=packed)
                self.phase.gradient = False
            flow = self._flow(chosen, self.rules.carries)
        if self.capture is not None:
            self.capture.settle()
        return replace(flow, books=self.books, gradient=gradient, owners=packed, axes=axes)

    def _examples(self, target: Any, value: Tensor) -> tuple[dict[str, int], dict[str, Tensor]]:
        """Per part its axis of examples; and of parts without one (patches of all pictures in a row) each row's own."""
        busy = any(one is not None for one in (self.capture, self.saver, self.books, self.phase))
        if busy:
            return axes_of(self.model, self.inputs, target, self.reading, self.sources.placed, len(value)), {}
        axes, unclear = _axes(self.sources.placed, len(value), self.reading)
        owned = self._owned(unclear, value) if unclear else {}
        for source in unclear:
            if (owner := owned.get(source.part)) is None:
                continue
            read = ~source.rows.empty
            for axis, size in enumerate(source.rows.shape):
                if size == len(value) and torch.equal(source.rows.low[read, axis] % PERIOD, owner[read]):
                    axes[source.part] = self.reading.axes.setdefault(source.part, axis)
        packed = {name: owner for name, owner in owned.items() if name not in axes and len(value) <= PERIOD}
        return axes, packed

    def _owned(self, sources: Sequence[Source], value: Tensor) -> dict[str, Tensor]:
        """Which example each row of the sources belongs to, counted anew after every PERIOD."""
        powers = torch.ldexp(torch.ones_like(value), torch.arange(len(value), device=value.device) % PERIOD)
        leaves = [one.leaf for one in sources]
        plain, scaled = (
            torch.autograd.grad(seeds, leaves, retain_graph=True, allow_unused=True)
            for seeds in (value.sum(), (value * powers).sum())
        )
        found = {}
        for source, before, after in zip(sources, plain, scaled, strict=True):
            owner = None if before is None or after is None else owners(source.rows, before, after)
            if owner is not None:
                found[source.part] = owner
        return found

    def _flow(self, chosen: Chosen, carries: str, keep_graph: bool = False) -> Flow:
        sources = tuple(self.sources.placed)
        seen = None if self.capture is None else self.capture.seen
        if self.capture is not None and self.capture.end is not None:
            torch.autograd.grad(chosen.value.sum(), self.capture.end, allow_unused=True)
            return Flow(_detached(chosen), sources, (), carries, seen, **self._told)
        reached = self._arrived(chosen.value.sum(), keep_graph)
        return Flow(_detached(chosen), sources, reached, carries, seen, **self._told)

    def _arrived(self, value: Tensor, keep_graph: bool) -> tuple[Tensor, ...]:
        """What flowed back to each source; nothing may pass them by."""
        leaves = [source.leaf for source in self.sources.placed]
        below = self.sources.passed_by
        flowed = torch.autograd.grad(value, [*leaves, *below], allow_unused=True, retain_graph=keep_graph)
        if any(one is not None and bool(one.any()) for one in flowed[len(leaves) :]):
            raise MisfitError("a part also reaches the output past the place where it is read")
        return tuple(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, flowed, strict=False))

    def _flows(self, chosen: Chosen, target: Several, outputs: Any) -> Flow:
        """One way back for each of several targets of a single example: what arrived is a batch of them."""
        if any(one is not None for one in (self.phase, self.saver, self.capture, self.books)):
            raise InputError("several targets at once allow neither maps, a checkpoint nor a ledger: ask one by one")
        if batch_of(self.inputs) != 1:
            raise InputError(f"several targets at once are of a single example, got {batch_of(self.inputs)}")
        sources = tuple(self.sources.placed)
        ways = []
        for number, one in enumerate(target.targets, 1):  # each read anew: the others' rows would ride along as zeros
            last = number == len(target.targets)
            ways.append(self._arrived(one(outputs).sum(), keep_graph=not last))
        reached = tuple(torch.stack(each) for each in zip(*ways, strict=True))
        axes, _ = _axes(sources, 1, self.reading)
        return Flow(_detached(chosen), sources, reached, self.rules.carries, several=True, axes=axes, **self._told)

    def _forward(self, target: Any) -> tuple[Any, Chosen]:
        """The outputs and the target. A function of the caller's is explained too: the rules apply to it."""
        every = (self.sources, self.saver, self.capture, self.books)
        given = self.sources.given(self.inputs)
        try:
            with Propagation(self.rules, [one for one in every if one is not None], self.sources.live) as mode:
                outputs = call(self.model, given, target)
                if self.saver is not None:
                    self.saver.close()
                chosen = read_target(self.model, target, outputs, self.inputs) if is_own_function(target) else None
            self.noticed = mode.noticed
        finally:
            if self.saver is not None:
                self.saver.close()
        if not self.sources.all_placed:
            raise MisfitError("a part did not pass the place where it is read")
        if self.capture is not None:
            self.capture.finish(self.gradients)
        return outputs, read_target(self.model, target, outputs, self.inputs) if chosen is None else chosen


def warnings_of(sources: Sources, inputs: Mapping[str, Any], noticed: Sequence[str] = ()) -> tuple[str, ...]:
    """What the scores will not say."""
    lost = [
        f'the output depends on "{part}" in a way that could not be followed: no score covers it'
        for part in sources.unfollowed
    ]
    mixed = [
        f'"{part}" also enters the model in a way whose units could not be told: the scores leave that share out'
        for part in sorted(sources.mixed)
    ]
    return (*lost, *mixed, *unexplained_inputs(inputs), *noticed)


def attend(model: nn.Module, inputs: Mapping[str, Any], target: Any, watch: Watch) -> Flow:
    """The attention maps of a forward pass, folded as they are seen; the target flows back through the head only.

    Where it cannot be traced to the last block's output alone, it flows back all the way.
    """
    if key_of(model, inputs, target, None, None) is not None:  # another method may need the way back
        return propagate(model, inputs, target, rulesets.gradient, watch=watch)
    rules = rulesets.gradient.with_maps(fused=True)
    for reading in readings_of(model, inputs, target):
        try:
            return _attended(model, inputs, target, watch, rules, reading)
        except MisfitError:
            continue
    return propagate(model, inputs, target, rulesets.gradient, watch=watch)


def _attended(
    model: nn.Module, inputs: Mapping[str, Any], target: Any, watch: Watch, rules: RuleSet, reading: Reading
) -> Flow:
    sources = Sources(inputs, reading, live=False)
    capture = Capture(model, reading.blocks, batch_of(inputs), watch, rules, live=False)
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
        given = sources.given(inputs)
        with Propagation(rules, [sources, capture], sources.live) as mode:
            outputs = call(model, given, target)
        chosen = read_target(model, target, outputs, inputs)
        check_finite(model, chosen)
        last = capture.seen.last
        if last is not None and last.input.requires_grad and chosen.value.requires_grad:
            (last.gradient,) = torch.autograd.grad(chosen.value.sum(), last.input, allow_unused=True)
    if last is None or last.gradient is None:
        return propagate(model, inputs, target, rulesets.gradient, watch=watch)
    axes = axes_of(model, inputs, target, reading, sources.placed, len(chosen.value))
    own = {"one_stream": reading.one_stream, "axes": axes, "warnings": warnings_of(sources, inputs, mode.noticed)}
    return Flow(_detached(chosen), tuple(sources.placed), (), "gradient", capture.seen, **own)  # type: ignore[arg-type]


def _detached(chosen: Chosen) -> Chosen:
    rows = None if chosen.rows is None else wide(chosen.rows.detach())
    return Chosen(wide(chosen.value.detach()), chosen.names, rows, chosen.exact)


def predict(model: nn.Module, inputs: Mapping[str, Any], target: Any) -> Chosen:
    """The target read off a plain forward pass."""
    with torch.no_grad(), evaluating(model):
        chosen = read_target(model, target, call(model, inputs, target), inputs)
    check_finite(model, chosen)
    return _detached(chosen)


def look(
    model: nn.Module, inputs: Mapping[str, Any], target: Any, edit: Edit | None = None, at: At | None = None
) -> Flow:
    """The target read off a forward pass, with an edited input on request; the sources, and nothing that flows back."""
    for reading in readings_of(model, inputs, target, at):
        sources = Sources(inputs, reading, edit, live=False)
        try:
            with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
                given = sources.given(inputs)
                with Propagation(rulesets.gradient, [sources], sources.live):
                    outputs = call(model, given, target)
                chosen = _detached(read_target(model, target, outputs, inputs))
                if edit is None:
                    check_finite(model, chosen)
        except MisfitError:
            continue
        axes = axes_of(model, inputs, target, reading, sources.placed, len(chosen.value))
        return Flow(chosen, tuple(sources.placed), (), "gradient", axes=axes, warnings=warnings_of(sources, inputs))
    raise ModelError(f"no place to change the input was found (looked at: {at})")
