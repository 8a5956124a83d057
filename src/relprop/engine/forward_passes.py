"""Forward passes: the target, the sources or the attention maps, with no backward pass through the blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from relprop.engine.capture import Capture, CaptureOptions
from relprop.engine.flow import Flow
from relprop.engine.map_order import MapOrder
from relprop.engine.model_call import batch_of, call, check_finite, evaluating, read_target, warnings_of
from relprop.engine.pass_cache import pass_key
from relprop.engine.passes import example_axes, propagate
from relprop.engine.placement import reading_plans
from relprop.engine.prediction import detached_target
from relprop.engine.propagation import Propagation
from relprop.engine.restoring import restoring
from relprop.engine.sources import At, Edit, MisfitError, Sources
from relprop.engine.survey import ReadingPlan
from relprop.errors import ModelError, UnruledOpError
from relprop.rulebook import rulesets


def forward_maps(model: nn.Module, inputs: Mapping[str, Any], target: Any, capture: CaptureOptions) -> Flow:
    """The attention maps of a forward pass, folded one by one; the target flows back through the head only.

    Where the target depends on more than the last block's output, it flows back through the whole model.
    """
    if pass_key(model, inputs, target, None, None) is not None:  # another method may need the backward pass
        return propagate(model, inputs, target, rulesets.gradient, capture=capture)
    for plan in reading_plans(model, inputs, target):
        try:
            return _forward_maps_at(plan, model, inputs, target, capture)
        except MisfitError:
            continue
    return propagate(model, inputs, target, rulesets.gradient, capture=capture)


@restoring
def _forward_maps_at(
    plan: ReadingPlan, model: nn.Module, inputs: Mapping[str, Any], target: Any, options: CaptureOptions
) -> Flow:
    rules = rulesets.gradient.with_maps(fused=True)
    sources = Sources(inputs, plan, live=False)
    capture = Capture(model, plan.blocks, batch_of(inputs), options, rules, live=False)
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
        given = sources.live_inputs(inputs)
        with Propagation(rules, [sources, capture], sources.live) as mode:
            outputs = call(model, given, target)
        capture.check_blocks()
        chosen = read_target(model, target, outputs, inputs)
        check_finite(model, chosen)
        last = capture.captured.last
        if last is not None and last.input.requires_grad and chosen.value.requires_grad:
            (last.gradient,) = torch.autograd.grad(chosen.value.sum(), last.input, allow_unused=True)
    if last is None or last.gradient is None:
        return propagate(model, inputs, target, rulesets.gradient, capture=options)
    return Flow(
        detached_target(chosen),
        tuple(sources.placed),
        (),
        "gradient",
        capture.captured,
        axes=example_axes(model, inputs, target, plan, sources.placed, len(chosen.value)),
        one_stream=plan.one_stream,
        warnings=warnings_of(sources, inputs, mode.warnings),
    )


@restoring
def map_order(model: nn.Module, inputs: Mapping[str, Any], target: Any) -> MapOrder:
    """Whether rows and columns of the attention maps are those of the residual stream, from one forward pass."""
    rules = rulesets.gradient.with_maps(fused=True)
    for plan in reading_plans(model, inputs, target):
        order, sources = MapOrder(), Sources(inputs, plan)
        options = CaptureOptions(fold=lambda one: torch.zeros(one.shape[0], one.shape[2], 0))
        capture = Capture(model, plan.blocks, batch_of(inputs), options, rules, order=order)
        try:
            with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
                given = sources.live_inputs(inputs)
                with Propagation(rules, [sources, capture], sources.live):
                    call(model, given, target)
                capture.finish()
        except MisfitError:
            continue
        except UnruledOpError:  # an operation without a gradient
            break
        return order
    unknown = MapOrder()
    unknown.unproved = True
    return unknown


@restoring
def forward_flow(
    model: nn.Module, inputs: Mapping[str, Any], target: Any, edit: Edit | None = None, at: At | None = None
) -> Flow:
    """A pass without a backward pass: the target and the sources; `edit` may change the sources' values first."""
    for plan in reading_plans(model, inputs, target, at):
        sources = Sources(inputs, plan, edit, live=False)
        try:
            with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
                given = sources.live_inputs(inputs)
                with Propagation(rulesets.gradient, [sources], sources.live):
                    outputs = call(model, given, target)
                chosen = detached_target(read_target(model, target, outputs, inputs))
                if edit is None:
                    check_finite(model, chosen)
        except MisfitError:
            continue
        axes = example_axes(model, inputs, target, plan, sources.placed, len(chosen.value))
        return Flow(chosen, tuple(sources.placed), (), "gradient", axes=axes, warnings=warnings_of(sources, inputs))
    raise ModelError(f"no place to change the input was found (tried: {at})")
