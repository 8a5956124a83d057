"""Turns what reached the sources into one score per unit of every part, in the part's order; padding scores 0."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.flow import Flow
from relprop.engine.leaves import batch_of, explained_parts
from relprop.engine.passes import propagate
from relprop.engine.prediction import predict
from relprop.engine.sources import At, Source
from relprop.engine.units import UnitIndex, unit_index
from relprop.errors import InputError, OneByOneError
from relprop.padding import real_rows
from relprop.rulebook.rulesets import RuleSet
from relprop.targets import ChosenTarget
from relprop.types import Attribution, Entry, Ledger

Inputs = Mapping[str, Any]
HIDDEN_SHARE = 1e-4  # of a part's relevance, at units that its mask calls padding: more is told
Parts = dict[str, Tensor]


def input_relevance(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    rules: RuleSet,
    method: str,
    *,
    at: At | None,
    checkpoint: bool,
    ledger: bool,
    block_share: float = 0.0,
) -> Attribution:
    """The sum over features of the relevance at each unit. A ledger needs one pass per example.

    `block_share`: that of the mean over the inputs of all blocks, as far as their rows are shown to be the units.
    """
    if ledger and batch_of(inputs) > 1 and len(predict(model, inputs, target).value) > 1:
        raise OneByOneError("a ledger is of one example: explain them one by one")
    flow = propagate(model, inputs, target, rules, at=at, checkpoint=checkpoint, ledger=ledger, block_share=block_share)
    rows = flow.rows() if flow.block_rows is None else flow.block_rows.rows
    parts = scores_of_rows(flow, rows, inputs)
    books = (ledger_of(flow, rows, parts),) if ledger else None
    return attribution(flow, method, parts, ledger=books, conserves=rules.conserves)


def attribution(flow: Flow, method: str, parts: Parts, chosen: ChosenTarget | None = None, **more: Any) -> Attribution:
    """The attribution of a pass with these scores; `chosen` replaces the target of a pass on changed inputs."""
    chosen = flow.chosen if chosen is None else chosen
    place: dict[str, str] = {}
    for source, own_place in zip(flow.sources, _places(flow), strict=True):
        first = place.setdefault(source.part, own_place)
        place[source.part] = first if own_place in first.split(" and ") else f"{first} and {own_place}"
    windows = {
        source.part: index.windows
        for source in flow.sources
        if (index := unit_index_of(flow, source)).windows is not None
    }
    lost = [
        f'nothing flows back to "{part}" under these rules, or only to units that the mask hides, though the output '
        "may depend on it"
        for part in _parts_without_score(flow, parts, compared=more.get("baseline") is not None)
    ]
    hidden = [
        f'units of "{part}" that the mask calls padding feed the output all the same: they score 0, and their share is '
        "left out"
        for part in dict.fromkeys(flow.hidden)
    ]
    if flow.double:
        parts = {name: scores.to(chosen.value.dtype) for name, scores in parts.items()}
        more = {name: one.to(chosen.value.dtype) if isinstance(one, Tensor) else one for name, one in more.items()}
    own = {"place": place, "windows": windows, "warnings": (*flow.warnings, *lost, *hidden)}
    return Attribution(parts, chosen.value, chosen.names, method, chosen.rows, **{**own, **more})


def _places(flow: Flow) -> list[str]:
    """Per source where it was read; at how many blocks, where it was to be read at every one."""
    if flow.block_rows is None:
        return [source.place for source in flow.sources]
    each = zip(flow.sources, flow.block_rows.states, flow.block_rows.unread, strict=True)
    return [_place_of(source.place, count, unread) for source, count, unread in each]


def _place_of(first: str, count: int, unread: int) -> str:
    """`unread`: blocks where rows could not be shown to be the units."""
    if count == 1:
        return first
    return f"{count} of {count + unread} blocks" if unread else f"{count} blocks"


def _parts_without_score(flow: Flow, parts: Parts, compared: bool) -> list[str]:
    """Parts whose scores are all 0.

    `compared`: scores are relative to a baseline; parts that something flowed back to may then score 0.
    """
    arrived = zip(flow.sources, flow.arrived, strict=False)
    reached = {source.part for source, flowed in arrived if compared and flowed.any()}
    scored = dict.fromkeys(source.part for source in flow.sources if flow.arrived)
    return [part for part in scored if part in parts and part not in reached and not parts[part].any()]


def unit_index_of(flow: Flow, source: Source) -> UnitIndex:
    """The example and unit of each row of a source."""
    shape = source.rows.shape
    examples = 1 if flow.several else len(flow.chosen.value)
    batch_axis = flow.axes.get(source.part, -1)
    axis = None if batch_axis == -1 else batch_axis
    owner = flow.row_owners.get(source.part)
    if axis is None and owner is None and examples > 1:
        raise InputError(
            f'"{source.part}" of shape {tuple(shape)} has no axis of {examples} examples: explain them one by one'
        )
    tokens = source.is_integer and source.rows.single
    return unit_index(source.rows, examples, axis, tokens or source.enters, () if tokens else source.features, owner)


def examples_lead(flow: Flow, source: Source) -> bool:
    """Whether the first axis of a source's values is that of the examples."""
    grid, count = source.rows.grid, 1 if flow.several else len(flow.chosen.value)
    example = unit_index_of(flow, source).example.view(grid)
    first = torch.arange(grid[0], device=example.device).view(-1, *(1,) * (len(grid) - 1))
    return count == 1 or (grid[0] == count and bool(((example == first) | (example < 0)).all()))


def unit_scores(
    flow: Flow, per_source: list[Tensor], inputs: Inputs, reduce: Callable[[Tensor], Tensor] | None = None
) -> Parts:
    """One score per unit of each part: features are reduced (by default summed), sources of one part added."""
    rows = []
    for source, values in zip(flow.sources, per_source, strict=True):
        each = values if flow.several else values[None]
        rows.append(torch.stack([(reduce or _sum)(source.rows.of(one)) for one in each]))
    return scores_of_rows(flow, [each if flow.several else each[0] for each in rows], inputs)


def scores_of_rows(flow: Flow, per_source: Sequence[Tensor], inputs: Inputs) -> Parts:
    """One score per unit of each part, from the scores of the rows of each source."""
    parts: Parts = {}
    for source, rows in zip(flow.sources, per_source, strict=True):
        index = unit_index_of(flow, source)
        scores = torch.cat([index.summed(one) for one in (rows if flow.several else rows[None])])
        parts[source.part] = parts[source.part] + scores if source.part in parts else scores
    real = {name: without_padding(scores, name, inputs) for name, scores in parts.items()}
    for name, scores in parts.items():
        if float((scores - real[name]).abs().sum()) > HIDDEN_SHARE * float(scores.abs().sum()):
            flow.hidden.append(name)
    return real


def without_padding(scores: Tensor, part: str, inputs: Inputs) -> Tensor:
    real = real_units(part, inputs, scores.shape[1]).to(scores.device)
    return torch.where(real if len(real) == len(scores) else real[:1], scores, 0)


# The padding masks, by the argument that they belong to; "attention_mask" belongs to the token ids, or the first part.
_TOKENS = ("input_ids", "decoder_input_ids")
_MASKS = {
    "decoder_input_ids": ("decoder_attention_mask",),
    "pixel_values": ("pixel_attention_mask",),
    "visual_feats": ("visual_attention_mask",),
    "visual_embeds": ("visual_attention_mask",),
}


def mask_of(part: str, inputs: Inputs) -> Tensor | None:
    """The mask of a part: which units are not padding. None if there is none."""
    parts = list(explained_parts(inputs))
    first = next((name for name in ("input_ids", "inputs_embeds") if name in parts), parts[0] if parts else None)
    names = (*_MASKS.get(part, ()), *(("attention_mask",) if part == first else ()))
    mask = next((inputs[name] for name in names if isinstance(inputs.get(name), Tensor)), None)
    return mask if isinstance(mask, Tensor) else None


def _sum(values: Tensor) -> Tensor:
    return values.sum(-1)


def ledger_of(flow: Flow, relevance: Sequence[Tensor], parts: Parts) -> Ledger:
    """The ledger of one example, one line per part. What reached rows that are not units is a constant."""
    assert flow.keeper is not None
    value = flow.chosen.value.item() if flow.carries == "gradient" else 1.0
    scored = {name: scores.double().sum().item() for name, scores in parts.items()}
    other = sum(part.double().sum().item() for part in relevance) - sum(scored.values())
    lines = [Entry("", name if len(scored) > 1 else "inputs", "input", amount) for name, amount in scored.items()]
    return flow.keeper.ledger(value, [*lines, Entry("", "rows of no input", "constant", other)] if other else lines)


def real_units(part: str, inputs: Inputs, units: int) -> Tensor:
    """[batch, units]: which units of a part are not padding."""
    mask, batch = mask_of(part, inputs), batch_of(inputs)
    if mask is not None and mask.shape == inputs[part].shape and mask.dim() > 2:  # several texts per example
        mask = mask.flatten(1)
    if mask is None or (mask.dim() == 2 and mask.shape[1] != units):
        return torch.ones(batch, units, dtype=torch.bool)
    return real_rows({"attention_mask": mask}, batch, units).cpu()


def content_generator(inputs: Inputs, seed: int | str) -> torch.Generator:
    """A random generator seeded by the real content of a single example and by `seed`."""
    digest = hashlib.sha256(str(seed).encode())
    names = list(explained_parts(inputs))
    for name in [name for name in names if name in _TOKENS] or names[:1]:
        digest.update(_real_content(name, inputs[name][0], inputs).double().numpy().tobytes())
    return torch.Generator().manual_seed(int.from_bytes(digest.digest()[:7], "big"))


def _real_content(name: str, content: Tensor, inputs: Inputs) -> Tensor:
    mask = mask_of(name, inputs)
    content = content.detach().cpu().contiguous()
    if mask is None or mask.dim() != 2 or mask.shape[1] < len(content):
        return content
    real = (mask[0] != 0).cpu()
    return content[real[len(real) - len(content) :]]  # a mask may start with units that the model adds
