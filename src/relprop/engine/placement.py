"""Makes reading plans: one plain forward pass records the graph, a second one, up to where units mix, proves rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.leaves import Leaf, ReadingPlace
from relprop.engine.model_call import call, check_cache, cloned_inputs, evaluating, read_target
from relprop.engine.propagation import Propagation
from relprop.engine.refusals import NO_GRADIENT, NO_UNITS
from relprop.engine.restoring import restoring
from relprop.engine.sources import PLACES, MisfitError, Probe, ProbedError, Source, Sources, replaced_ids
from relprop.engine.survey import (
    LeafPath,
    LeafPlace,
    ReadingPlan,
    Recorder,
    cache_plan,
    cached_plans,
    call_signature,
    leaf_paths,
    one_stream,
)
from relprop.engine.units import Rows
from relprop.errors import InputError, RelpropError, UnruledOpError, unknown_name
from relprop.rulebook import rulesets
from relprop.targets import AtMask

FIRST_CALLS = 4  # of a leaf that no state stands for: what they read shows which axes are features


def reading_plans(
    model: nn.Module, inputs: Mapping[str, Any], target: Any, at: str | None = None
) -> Iterator[ReadingPlan]:
    """Plans where to read the model's parts, by default as far up as can be proved.

    First come cached plans, then the plan of a new survey, then the inputs as they enter. The caller uses the first
    plan that fits the model's run.
    """
    key = call_signature(inputs, target)
    for plan in cached_plans(model, key):
        with suppress(InputError):  # a plan of inputs as they enter has no other place; a survey may find one
            yield _plan_at(plan, at)
    plan = survey_model(model, inputs, target)
    cache_plan(model, key, plan)
    yield _plan_at(plan, at)
    if at is None:
        low = _plan_at(plan, "leaf")
        cache_plan(model, key, low)
        yield low


def reading_plan(model: nn.Module, inputs: Mapping[str, Any], target: Any) -> ReadingPlan:
    """The first plan: a cached one, or that of a survey."""
    return next(reading_plans(model, inputs, target))


def _plan_at(plan: ReadingPlan, at: str | None) -> ReadingPlan:
    """The same plan at another place; parts that do not have it are read at their default place."""
    if at is None:
        return plan
    if at not in (*PLACES, "leaf", "tokens"):
        raise unknown_name("place", at, PLACES)
    reached = [one for one in plan.leaf_places if one.reached]
    if at == "block":
        if not any(one.place in ("block", "features") for one in reached):
            raise InputError('scores cannot be read at="block": its rows could not be shown to be the input\'s units')
        return plan
    if at == "word_embeddings" and not any(one.integer for one in reached):
        raise InputError('scores cannot be read at="word_embeddings": no input of token ids is looked up')
    if at in ("input", "elements") and all(one.integer for one in reached):
        raise InputError(f'scores cannot be read at="{at}": token ids are no numbers; try at="word_embeddings"')
    every = at in ("leaf", "input", "elements")
    lowered = [
        one for one in plan.leaf_places
        if every or (at == "word_embeddings" and one.integer) or (at == "tokens" and one.tokens)
    ]  # fmt: skip
    places = [_at_leaf(one) if one in lowered else one for one in plan.leaf_places]
    if at == "elements":  # every number is a unit, whatever the model joins
        places = [one if one.integer else replace(one, features=()) for one in places]
    return replace(plan, leaf_places=tuple(places))


def _at_leaf(place: LeafPlace) -> LeafPlace:
    return replace(place, place="word_embeddings" if place.integer else "input", calls=None)


def _surveyed(model: nn.Module, given: Mapping[str, Any], target: Any) -> Any:
    """The outputs. Raises at operations without a gradient: no method can do without the units that it shows."""
    try:
        return call(model, given, target)
    except UnruledOpError as error:
        raise UnruledOpError(str(error).replace(NO_GRADIENT, NO_UNITS)) from None


@restoring
def survey_model(model: nn.Module, inputs: Mapping[str, Any], target: Any) -> ReadingPlan:
    """The reading plan of a model, from plain runs of it."""
    check_cache(model, inputs, target)
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
        sources, recorder = Sources(inputs), Recorder()
        given = sources.live_inputs(inputs)
        with Recorder.saving_nothing(), Propagation(rulesets.gradient, [sources, recorder], sources.live):
            outputs = _surveyed(model, given, target)
            value = read_target(model, target, outputs, given).value
            total = value.sum()
        paths = leaf_paths(recorder.calls, total, sources.leaves) if total.requires_grad else []
        paths = paths or [None] * len(sources.leaves)
        blocks = recorder.blocks(entered=any(path is not None and path.states for path in paths))
        stream = one_stream(recorder, total, sources.leaves)
        del total, recorder, value, outputs
        proved = _proved_rows(model, inputs, target, sources.leaves, paths)
    leaf_places = [_leaf_place(*one) for one in zip(sources.leaves, paths, proved, strict=True)]
    leaf_places = [replace(one, tokens=one.integer and inputs[one.part].dim() == 2) for one in leaf_places]
    entered = {leaf.part for leaf in sources.leaves}
    lost = [name for name in sources.parts if name not in entered and _affects_output(model, inputs, target, name)]
    plan = ReadingPlan(tuple(_same_place_per_part(leaf_places)), blocks, stream, unfollowed=tuple(lost))
    rows = [name for name in entered if inputs[name].dim() > 1]
    swapped = {name: _with_two_swapped(model, inputs, name, target) for name in rows}
    elsewhere = [name for name in rows if _all_looked_up(model, inputs, target, name, plan, swapped[name]) is False]
    others = {name: _with_others(model, inputs, name, target) for name in sources.mixed if name in rows}
    steering = [name for name in others if _all_looked_up(model, inputs, target, name, plan, others[name])]
    return replace(plan, enters_elsewhere=tuple(elsewhere), steering=tuple(steering))


def _affects_output(model: nn.Module, inputs: Mapping[str, Any], target: Any, name: str) -> bool:
    """Whether the output depends on an input that never entered as a tensor (it became plain numbers, for instance)."""
    given = inputs[name]
    moved = given.roll(1, -1 if given.shape[-1] > 1 else 0)
    if torch.equal(moved, given):  # a single number, or equal ones
        moved = torch.where(given > given.new_zeros(()), given - 1, given + 1)
    try:
        before, after = (_value(model, one, target) for one in (inputs, {**inputs, name: moved}))
    except RelpropError:  # moving it breaks the model: it describes other inputs
        return False
    return not torch.equal(before, after)


def axis_by_changes(model: nn.Module, inputs: Mapping[str, Any], target: Any, part: str, examples: int) -> int | None:
    """The batch axis of a part: what is changed at an index of it changes the value of that example only.

    For parts without a gradient. The content changes at all indices with a certain binary digit, then at all others:
    an index that reaches another example differs from it in some digit.
    """
    axes = [axis for axis, size in enumerate(inputs[part].shape) if size == examples]
    return next((axis for axis in axes if _changes_own(model, inputs, target, part, axis)), None)


def _changes_own(model: nn.Module, inputs: Mapping[str, Any], target: Any, part: str, axis: int) -> bool:
    """Whether changes along this axis change the values of the same examples, and no others."""
    given, before = inputs[part], _value(model, inputs, target)
    other = next((i for i, size in enumerate(given.shape) if i != axis and size > 1), axis)
    moved = given.roll(1, axis).roll(1, other)
    index = torch.arange(given.shape[axis])
    seen = False
    for digit in range(max(1, (len(index) - 1).bit_length())):
        for own in (index >> digit & 1 == side for side in (0, 1)):
            chosen = own.to(given.device).view([-1 if i == axis else 1 for i in range(given.dim())])
            try:
                after = _value(model, {**inputs, part: torch.where(chosen, moved, given)}, target)
            except RelpropError:  # such content breaks the model
                return False
            differs = _differ(after, before).cpu()
            if bool(differs[~own].any()):
                return False
            seen = seen or bool(differs.any())
    return seen


def _differ(values: Tensor, others: Tensor) -> Tensor:
    """Per value whether it differs from the other by more than rounding."""
    scale = others.abs().max().clamp_min(1e-30)
    return (values - others).abs() > 1e4 * torch.finfo(others.dtype).eps * scale


@restoring
def _value(model: nn.Module, inputs: Mapping[str, Any], target: Any) -> Tensor:
    with torch.no_grad(), evaluating(model):
        return read_target(model, target, call(model, cloned_inputs(inputs), target), inputs).value


@restoring
def _all_looked_up(
    model: nn.Module, inputs: Mapping[str, Any], target: Any, name: str, plan: ReadingPlan, other: Tensor | None
) -> bool | None:
    """Whether other integers in the leaves of a part change the output as in the part itself; None: it cannot be said.

    They are given once in the input and once in what is looked up: unless both give the same output, the part also
    enters through calls that are not tracked (a hash, a comparison, a product with the integers).
    """
    if other is None or not any(place.part == name and place.integer for place in plan.leaf_places):
        return None

    computed: list[bool] = []  # of leaves whose integers are computed from the part's, nothing can be said

    def edit(source: Source) -> Tensor:
        if source.part != name or source.lookup is None:
            return source.leaf
        computed.append(not source.raw_ids)
        return source.leaf if computed[-1] else source.lookup(replaced_ids(source, other))

    try:
        given_to_model = _value(model, {**inputs, name: other}, target)
        sources = Sources(inputs, _plan_at(plan, "leaf"), edit, live=False)
        with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
            given = sources.live_inputs(inputs)
            with Propagation(rulesets.gradient, [sources], sources.live):
                outputs = call(model, given, target)
            edited = read_target(model, target, outputs, inputs).value.detach()
    except (RelpropError, MisfitError):
        return None
    if any(computed) or given_to_model.shape != edited.shape or not edited.is_floating_point():
        return None
    return not bool(_differ(edited, given_to_model).any())


def _with_two_swapped(model: nn.Module, inputs: Mapping[str, Any], name: str, target: Any) -> Tensor | None:
    """The integers with two plain ones of the first example exchanged."""
    ids = inputs[name]
    row, plain = _plain_integers(model, ids, target)
    pair = next(((i, j) for i in plain for j in plain if int(row[i]) != int(row[j])), None)
    if pair is None:
        return None
    order = torch.arange(ids.shape[-1], device=ids.device)
    order[list(pair)] = order[list(pair[::-1])]
    other: Tensor = ids.clone()
    first = (0,) * (ids.dim() - 1)
    other[first] = ids[first][order]
    return other


def _with_others(model: nn.Module, inputs: Mapping[str, Any], name: str, target: Any) -> Tensor | None:
    """The integers with every plain one of the first example replaced by the next larger: the sum changes too."""
    row, plain = _plain_integers(model, inputs[name], target)
    values = sorted({int(row[i]) for i in plain})
    if len(values) < 3:
        return None
    following = dict(zip(values, [*values[1:], values[-1]], strict=True))
    other: Tensor = inputs[name].clone()
    own = other[(0,) * (other.dim() - 1)]  # a view
    for i in plain:
        own[i] = following[int(row[i])]
    return other


def _plain_integers(model: nn.Module, ids: Tensor, target: Any) -> tuple[Tensor, list[int]]:
    """The first row of integers, and at which places it holds plain ones.

    Never the first, the last, the least, the largest, or one that the model's config names: models look for such
    tokens, to find the end of a text, its padding or the place of a picture. Nor the mask at which the target is read.
    """
    row = ids[0].reshape(-1) if ids.dim() == 2 else ids[0].flatten(0, -2)[0]
    special = set(_named_integers(getattr(model, "config", None)))
    special |= {one.mask_token for one in (target if isinstance(target, list) else [target]) if isinstance(one, AtMask)}
    special |= {int(row.min()), int(row.max()), int(row[0]), int(row[-1])}
    return row, [i for i in range(1, len(row) - 1) if int(row[i]) not in special]


def _named_integers(config: Any, depth: int = 3) -> Iterator[int]:
    """The tokens that a config names, and the configs inside it: of a language model, of a tower for pictures."""
    for key, value in vars(config).items() if hasattr(config, "__dict__") else ():
        if isinstance(value, int) and key.endswith(("_id", "_index")):
            yield value
        elif key.endswith("config") and depth:
            yield from _named_integers(value, depth - 1)


def _proved_rows(
    model: nn.Module,
    inputs: Mapping[str, Any],
    target: Any,
    leaves: Sequence[Leaf],
    paths: Sequence[LeafPath | None],
) -> list[dict[int, Rows | None]]:
    """Per leaf the proved rows of its last state; where that fails, of all its states and its first calls."""
    own = [[count for count, others in (path.states if path else ()) if not others] for path in paths]
    last_rows = _probe_states(model, inputs, target, [states[-1:] for states in own])
    rest = []
    for leaf, path, states, last in zip(leaves, paths, own, last_rows, strict=True):
        first = range(1, FIRST_CALLS + 1) if leaf.place == "input" and path is not None else ()
        rest.append([] if any(rows is not None for rows in last.values()) else sorted({*states[:-1], *first}))
    more = _probe_states(model, inputs, target, rest)
    return [{**later, **last} for last, later in zip(last_rows, more, strict=True)]


@restoring
def _probe_states(
    model: nn.Module, inputs: Mapping[str, Any], target: Any, calls: list[list[int]]
) -> list[dict[int, Rows | None]]:
    """Per leaf the proved rows of the states after so many calls; the model runs no further than needed."""
    probe = Probe(calls, [{} for _ in calls])
    if any(calls):
        sources = Sources(inputs, probe=probe)
        given = sources.live_inputs(inputs)
        with suppress(ProbedError), Propagation(rulesets.gradient, [sources], sources.live):
            call(model, given, target)
    return probe.proved


def _leaf_place(leaf: Leaf, path: LeafPath | None, proved: Mapping[int, Rows | None]) -> LeafPlace:
    """Where to read the leaf: at the last state before units mix, if its rows are proved; else at the leaf itself.

    For floats (pixels, samples) an earlier state will do too: its rows are windows of the input.
    """
    integer = leaf.place == "word_embeddings"
    if path is None:
        return LeafPlace(leaf.part, leaf.place, integer, reached=False, entry=leaf.entry)
    all_rows = [rows for rows in proved.values() if rows is not None]
    features = next((axes for rows in reversed(all_rows) if (axes := rows.spanned)), ())
    readable = [count for count, others in path.states if not others and proved.get(count) is not None]
    last = readable[-1] if readable else None
    place: ReadingPlace = leaf.place
    if not path.states or path.states[-1][0] == last:
        place = "block"
    elif last is not None and not integer:
        place = "features"
    else:
        last = None
    return LeafPlace(
        leaf.part, place, integer, last, features=features, entry=leaf.entry, trace=path.names[: last or 0]
    )


def _same_place_per_part(leaf_places: list[LeafPlace]) -> list[LeafPlace]:
    """Read all leaves of one part alike: all at states, or all as they enter."""
    low = {one.part for one in leaf_places if one.reached and one.calls is None and one.place != "block"}
    return [_at_leaf(one) if one.part in low and one.reached else one for one in leaf_places]
