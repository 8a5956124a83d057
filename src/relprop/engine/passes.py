"""One pass: the model runs under the rules, the target flows back, and a `Flow` says what reached the sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.backward_pass import backward
from relprop.engine.batch_axes import PERIOD, common_axis, proved_axes
from relprop.engine.block_states import BlockStates, stacked
from relprop.engine.capture import Capture, CaptureOptions
from relprop.engine.captured_maps import CapturedMaps
from relprop.engine.checkpoint import Checkpoint
from relprop.engine.double_precision import (
    in_double_precision,
    in_single_precision,
    why_not_double,
    widened_inputs,
)
from relprop.engine.flow import Flow
from relprop.engine.ledger import LedgerKeeper
from relprop.engine.model_call import (
    batch_of,
    call,
    check_finite,
    evaluating,
    read_target,
    tensors_in,
    warnings_of,
    why_unreached,
)
from relprop.engine.output_gates import OutputGates, gates_behind
from relprop.engine.pass_cache import cached_pass, pass_key, store_pass
from relprop.engine.placement import axis_by_changes, reading_plans
from relprop.engine.prediction import detached_target, predict, same_target
from relprop.engine.propagation import Propagation
from relprop.engine.refusals import guard_opaque
from relprop.engine.restoring import restoring
from relprop.engine.sources import At, Edit, MisfitError, Source, Sources, UnreachedError
from relprop.engine.survey import ReadingPlan
from relprop.engine.undefined_values import DefinedValues
from relprop.engine.units import row_owners
from relprop.errors import InputError, ModelError, UnruledOpError
from relprop.rulebook import rulesets
from relprop.rulebook.relevance_flow import GradientCutError, Phase
from relprop.rulebook.rulesets import Carries, RuleSet
from relprop.targets import ChosenTarget, Several, is_own_function


@dataclass(frozen=True)
class _PassOptions:
    """The options of `propagate`."""

    rules: RuleSet
    at: At | None
    edit: Edit | None
    capture: CaptureOptions | None
    two_way: bool
    checkpoint: bool
    ledger: bool
    block_share: float = 0.0
    gradients: CapturedMaps | None = None  # of an earlier pass that carried the gradient
    double: bool = False
    gates: OutputGates | None = None  # looked for at the end of the model
    undefined: DefinedValues | None = None  # where NaN on the way is not part of the explained number


def propagate(
    model: nn.Module,
    inputs: Mapping[str, Any],
    target: Any,
    rules: RuleSet,
    *,
    at: At | None = None,
    edit: Edit | None = None,
    capture: CaptureOptions | None = None,
    two_way: bool = False,
    checkpoint: bool = False,
    ledger: bool = False,
    block_share: float = 0.0,
    double: bool = False,
) -> Flow:
    """Run `model(**inputs)` under `rules` and let the target flow back to the place where scores are read.

    `at`: the first block's input ("block"), the "word_embeddings", or the model's float "input"; None takes the first
    of these that can be shown to hold the units. `capture` says what to keep of attention. `two_way`:
    relevance-carrying rules also let the gradient flow back, from the same forward pass where the model allows it.
    `block_share`: the share of the mean over all blocks in the relevance of rows, beside what is read at the place
    itself. `double`: a model in float32 is run in float64, for
    rules that magnify rounding errors.
    """
    double = double and in_single_precision(model)
    options = _PassOptions(rules, at, edit, capture, two_way, checkpoint, ledger, block_share, double=double)
    shareable = edit is None and not (capture is not None and capture.heads) and not (checkpoint or ledger)
    shareable = shareable and not block_share
    key = pass_key(model, inputs, target, rules, at, double) if shareable else None
    if key is None:
        return _in_precision(model, inputs, target, options)
    wanted = (capture is not None, two_way)
    cached: Flow | None = cached_pass(key, *wanted)
    if cached is not None:
        return cached
    # Keep whole maps: another method may need what this one would fold away.
    flow = _in_precision(model, inputs, target, replace(options, capture=capture and CaptureOptions()))
    store_pass(key, *wanted, flow)
    if flow.gradient is not None:
        gradient_key = pass_key(model, inputs, target, rulesets.gradient, at, double)
        assert gradient_key is not None
        store_pass(gradient_key, capture is not None, False, flow.gradient)
    return flow


def _in_precision(model: nn.Module, inputs: Mapping[str, Any], target: Any, options: _PassOptions) -> Flow:
    """The pass, in float64 if asked for, with the model's own numbers as its target.

    Where that fails, or where the model gives other numbers in float64, the pass is in float32 and says so.
    """
    if not options.double:
        return _run_pass(model, inputs, target, options)
    reason = why_not_double(model)
    if reason is None:
        own = predict(model, inputs, target)  # before: what the model computes once and keeps is then in float32
        try:
            flow = _run_pass(model, inputs, target, options)
            if same_target(flow.chosen, own):
                return replace(flow, chosen=own)
            reason = "it gives other numbers in float64"
        except (ModelError, UnruledOpError):
            reason = "it does not run in float64"
    flow = _run_pass(model, inputs, target, replace(options, double=False))
    told = f"relevance was carried in float32, which magnifies rounding errors here to a percent and more: {reason}"
    return replace(flow, warnings=(*flow.warnings, told))


def _run_pass(model: nn.Module, inputs: Mapping[str, Any], target: Any, options: _PassOptions) -> Flow:
    """Gradient and relevance from one forward pass; from two, where the rules cut the gradient."""
    try:
        return _first_fitting_pass(model, inputs, target, options)
    except GradientCutError:
        capture = options.capture and CaptureOptions(
            output_gradients=options.capture.fold is not None and options.rules.captures_fused
        )
        alone = replace(options, two_way=False, rules=rulesets.gradient, capture=capture)
        gradient = _first_fitting_pass(model, inputs, target, alone)
        flow = _first_fitting_pass(model, inputs, target, replace(options, two_way=False, gradients=gradient.captured))
        return replace(flow, gradient=gradient)


def _first_fitting_pass(model: nn.Module, inputs: Mapping[str, Any], target: Any, options: _PassOptions) -> Flow:
    """The pass by the first reading plan that fits: a cached plan may not fit these inputs."""
    for plan in reading_plans(model, inputs, target, options.at):
        try:
            return _reaching_pass(model, inputs, plan, target, options)
        except MisfitError as misfit:
            reason = misfit
    if isinstance(reason, UnreachedError):
        raise ModelError(str(reason))
    raise ModelError(f"no place to read scores from was found: {reason}")


def _reaching_pass(
    model: nn.Module, inputs: Mapping[str, Any], plan: ReadingPlan, target: Any, options: _PassOptions
) -> Flow:
    """The pass; where a gate ends the model (a probability), one with that gate open.

    Where NaN flows back although the explained number is finite, the model computes it beside that number.
    """
    try:
        flow = _Pass(model, inputs, plan, options).run(target)
        if options.undefined is not None or not any(bool(one.isnan().any()) for one in flow.arrived):
            return flow
        again = _Pass(model, inputs, plan, replace(options, undefined=DefinedValues())).run(target)
        return again if torch.equal(again.chosen.value, flow.chosen.value) else flow
    except UnreachedError:
        if options.rules.carries != "gradient" or isinstance(target, Several):
            raise
    opened = frozenset[int]()
    while True:
        opening = _Pass(model, inputs, plan, replace(options, gates=OutputGates(options.rules, opened)))
        try:
            return opening.run(target)
        except UnreachedError:
            if opening.behind <= opened:
                raise
            opened |= opening.behind


def example_axes(
    model: nn.Module,
    inputs: Mapping[str, Any],
    target: Any,
    plan: ReadingPlan,
    sources: Sequence[Source],
    examples: int,
) -> dict[str, int]:
    """Per part its batch axis. Where that is not proved yet, a plain pass proves it by what flows back per example.

    Behind operations without a gradient, runs with changed inputs prove it.
    """
    axes, unproved = proved_axes(sources, examples, plan)
    if unproved:
        plain = _PassOptions(rulesets.gradient, None, None, None, two_way=False, checkpoint=False, ledger=False)
        try:
            _Pass(model, inputs, plan, plain).run(target)
        except UnruledOpError:
            for part in dict.fromkeys(source.part for source in unproved):
                axis = axis_by_changes(model, inputs, target, part, examples)
                if axis is not None:
                    plan.axes[part] = axis
        axes, _ = proved_axes(sources, examples, plan)
    return axes


class _Pass:
    """One pass with its observers."""

    def __init__(self, model: nn.Module, inputs: Mapping[str, Any], plan: ReadingPlan, options: _PassOptions) -> None:
        self.model = model
        self.plan = plan
        self.mode: Propagation | None = None
        self.double = options.double
        self.given = widened_inputs(inputs) if options.double else inputs  # to the model
        self.sources = Sources(self.given, plan, options.edit)
        self.inputs = inputs
        self.phase = Phase() if options.two_way else None
        rules = options.rules if self.phase is None else options.rules.two_way(self.phase)
        if options.capture is not None:
            folding = options.capture.fold is not None or options.capture.output_gradients
            rules = rules.with_maps(fused=folding and options.rules.captures_fused)
        self.rules = rules
        self.saver = Checkpoint(model) if options.checkpoint else None
        self.capture = (
            Capture(model, plan.blocks, batch_of(inputs), options.capture, self.rules) if options.capture else None
        )
        self.gradients = options.gradients
        self.gates = options.gates
        self.undefined = options.undefined
        self.behind = frozenset[int]()  # the gates that the explained number is computed from
        self.keeper = LedgerKeeper(model, rules) if options.ledger else None
        share = options.block_share
        self.states = BlockStates(model, plan.blocks, self.sources.placed, share) if share else None

    @property
    def _result_fields(self) -> dict[str, Any]:
        told = [] if self.mode is None else self.mode.reached_warnings
        warnings = warnings_of(self.sources, self.inputs, told)
        return {"one_stream": self.plan.one_stream, "warnings": warnings, "double": self.double}

    @restoring
    def run(self, target: Any) -> Flow:
        with torch.inference_mode(False), torch.enable_grad(), evaluating(self.model):
            outputs, chosen = self._forward(target)
            check_finite(self.model, chosen)
            if not chosen.value.requires_grad:
                self.behind = gates_behind(chosen.value)
                raise UnreachedError(why_unreached(chosen))
            guard_opaque(chosen.value, self.rules)
            share = None if self.states is None else self.states.finish(chosen.value)
            if self.keeper is not None:
                self.keeper.weigh(share)
            if isinstance(target, Several):
                return self._flow_of_several(chosen, target, outputs)
            if self.keeper is not None:
                self.keeper.note_opaque_functions(chosen.value)
            axes, packed = self._examples(target, chosen.value)
            gradient = None
            if self.phase is not None:
                gradient = replace(self._flow(chosen, "gradient", keep_graph=True), axes=axes, row_owners=packed)
                self.phase.gradient = False
            flow = self._flow(chosen, self.rules.carries)
        if self.states is not None:
            flow = replace(flow, block_rows=self.states.relevance(flow.rows()))
            self.states.release()
        if self.capture is not None:
            self.capture.release()
        return replace(flow, keeper=self.keeper, gradient=gradient, row_owners=packed, axes=axes)

    def _examples(self, target: Any, value: Tensor) -> tuple[dict[str, int], dict[str, Tensor]]:
        """Per part its batch axis; for parts without one (patches of all pictures in a row) the example of each row.

        Proved by the plain gradient: under other rules an example could reach another one unseen.
        """
        observed = any(one is not None for one in (self.capture, self.saver, self.keeper, self.phase))
        if observed or self.rules.name != rulesets.gradient.name:
            axes = example_axes(self.model, self.inputs, target, self.plan, self.sources.placed, len(value))
            unproved = [] if observed else [one for one in self.sources.placed if one.part not in axes]
        else:
            axes, unproved = proved_axes(self.sources.placed, len(value), self.plan)
        owners = self._row_owners(unproved, value) if unproved else []
        packed: dict[str, Tensor] = {}
        for part in dict.fromkeys(source.part for source in unproved):
            own = [pair for pair in zip(unproved, owners, strict=True) if pair[0].part == part]
            axis = common_axis(own, len(value))
            if axis is not None:
                axes[part] = self.plan.axes[part] = axis
            elif len(own) == 1 and len(value) <= PERIOD:
                packed[part] = own[0][1][0]
        return axes, packed

    def _row_owners(self, sources: Sequence[Source], value: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Per source the example of each row, modulo PERIOD; and which rows have a gradient."""
        powers = torch.ldexp(torch.ones_like(value), torch.arange(len(value), device=value.device) % PERIOD)
        leaves = [one.leaf for one in sources]
        plain, scaled = (backward(seeds, leaves, keep_graph=True) for seeds in (value.sum(), (value * powers).sum()))
        owners = []
        for source, before, after in zip(sources, plain, scaled, strict=True):
            zeros = torch.zeros_like(source.leaf)
            owner = row_owners(source.rows, zeros if before is None else before, zeros if after is None else after)
            if owner is None:
                raise InputError(
                    f'the explained numbers of several examples depend on the same unit of "{source.part}": explain '
                    "one example at a time, with a target that gives one number"
                )
            owners.append(owner)
        return owners

    def _flow(self, chosen: ChosenTarget, carries: Carries, keep_graph: bool = False) -> Flow:
        sources = tuple(self.sources.placed)
        captured = None if self.capture is None else self.capture.captured
        if self.capture is not None and self.capture.end is not None:
            backward(chosen.value.sum(), [self.capture.end])
            return Flow(detached_target(chosen), sources, (), carries, captured, **self._result_fields)
        reached = self._arrived(chosen.value.sum(), keep_graph)
        return Flow(detached_target(chosen), sources, reached, carries, captured, **self._result_fields)

    def _arrived(self, value: Tensor, keep_graph: bool) -> tuple[Tensor, ...]:
        """What flowed back to each source. Raises if something reaches the inputs without passing a source."""
        leaves = [source.leaf for source in self.sources.placed]
        flowed = backward(value, [*leaves, *self.sources.leaves_below], keep_graph)
        if any(one is not None and bool(one.any()) for one in flowed[len(leaves) :]):
            raise MisfitError("a part also reaches the output past the place where it is read")
        return tuple(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, flowed, strict=False))

    def _flow_of_several(self, chosen: ChosenTarget, target: Several, outputs: Any) -> Flow:
        """One backward pass per target of a single example; `arrived` is stacked over the targets."""
        if any(one is not None for one in (self.phase, self.saver, self.capture, self.keeper)):
            raise InputError("several targets at once allow neither maps, a checkpoint nor a ledger: ask one by one")
        if batch_of(self.inputs) != 1:
            raise InputError(f"several targets at once are of a single example, got {batch_of(self.inputs)}")
        sources = tuple(self.sources.placed)
        per_target, rows = [], []
        for number, one in enumerate(target.targets, 1):  # one by one: together each would carry the others' zero rows
            last = number == len(target.targets)
            per_target.append(self._arrived(one(outputs).sum(), keep_graph=not last))
            if self.states is not None:
                flow = Flow(detached_target(chosen), sources, per_target[-1], self.rules.carries)
                rows.append(self.states.relevance(flow.rows()))
        reached = tuple(torch.stack(each) for each in zip(*per_target, strict=True))
        axes, _ = proved_axes(sources, 1, self.plan)
        return Flow(
            detached_target(chosen),
            sources,
            reached,
            self.rules.carries,
            several=True,
            axes=axes,
            block_rows=stacked(rows) if rows else None,
            **self._result_fields,
        )

    def _forward(self, target: Any) -> tuple[Any, ChosenTarget]:
        """The outputs and the target. A target function of the caller runs under the rules too."""
        observers = (self.undefined, self.sources, self.saver, self.capture, self.keeper, self.states, self.gates)
        given = self.sources.live_inputs(self.given)
        present = [one for one in observers if one is not None]
        try:
            with (
                Propagation(self.rules, present, self.sources.live) as mode,
                in_double_precision(mode) if self.double else nullcontext(),
            ):
                outputs = call(self.model, given, target)
                if self.saver is not None:
                    self.saver.close()
                under_rules = is_own_function(target) or self.gates is not None
                chosen = read_target(self.model, target, outputs, self.inputs) if under_rules else None
                for one in (*tensors_in(outputs), *(() if chosen is None else (chosen.value,))):
                    mode.is_live(one)  # notes or refuses what was computed last where no rule applies
            self.mode = mode
        finally:
            if self.saver is not None:
                self.saver.close()
        if not self.sources.all_placed:
            raise MisfitError("a part did not pass the place where it is read")
        if self.capture is not None:
            self.capture.finish(self.gradients)
        return outputs, read_target(self.model, target, outputs, self.inputs) if chosen is None else chosen
