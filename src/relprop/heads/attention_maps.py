"""Where a model's heads look: its attention maps, sentence by sentence."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.capture import Capture, CaptureOptions
from relprop.engine.captured_maps import AttentionMap
from relprop.engine.model_call import call, device_of, evaluating
from relprop.engine.placement import reading_plan
from relprop.engine.propagation import Propagation
from relprop.errors import ModelError
from relprop.heads.alignment import Aligned
from relprop.rulebook import rulesets

_MOST_WEIGHTS = 2**19  # of one head's maps of a batch: sentences times tokens times tokens


def attention_maps(model: nn.Module, inputs: Mapping[str, Any]) -> list[Tensor]:
    """One map [batch, heads, queries, keys] a block, in the order of the forward pass."""
    rules = rulesets.gradient.with_maps()
    batch, length = inputs["input_ids"].shape
    plan = reading_plan(model, inputs, None)
    if not plan.one_stream:
        raise ModelError("heads are told by attention among the tokens of one text; this model also attends otherwise")
    capture = Capture(model, plan.blocks, batch, CaptureOptions(), rules, live=False)
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model), Propagation(rules, [capture]):
        call(model, inputs)
    return _checked(capture.captured.maps, batch, length)


def _checked(maps: Sequence[AttentionMap], batch: int, length: int) -> list[Tensor]:
    """One map of all tokens by all tokens a block, each of as many heads: only so is a head a place in a mask."""
    weights = [one.weights for one in maps if one.weights is not None]
    if not weights:
        raise ModelError("heads are told by their attention maps, and this model has none to see")
    for one, tensor in zip(maps, weights, strict=True):
        shape = tuple(tensor.shape)
        if len(shape) != 4 or (shape[0], *shape[2:]) != (batch, length, length):
            raise ModelError(
                f"heads are told by maps of all tokens by all tokens; block {one.block} attends otherwise (windows, "
                f"another sequence, or sequence before batch): its map is {shape}, and the text has {length} tokens"
            )
    for one, before in pairwise(maps):
        if one.block == before.block:
            raise ModelError(f"heads are told by one attention map a block; block {one.block} has more")
    if len(counts := {tensor.shape[1] for tensor in weights}) > 1:
        raise ModelError(f"the blocks have different numbers of heads ({sorted(counts)}): no mask of one shape fits")
    return weights


def batches(model: nn.Module, rows: Sequence[Aligned]) -> list[list[int]]:
    """Sentences of equal length together, so that none needs padding; one by one where the model knows no padding."""
    alone = getattr(getattr(model, "config", None), "pad_token_id", None) is None  # such classifiers refuse batches
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    found = []
    for length, group in groupby(order, key=lambda i: len(rows[i])):
        members = list(group)
        step = 1 if alone else max(1, min(32, _MOST_WEIGHTS // length**2))
        found += [members[k : k + step] for k in range(0, len(members), step)]
    return found


def inputs_of(model: nn.Module, rows: Sequence[Aligned]) -> dict[str, Tensor]:
    """A batch of equally long rows, with what of theirs the model takes."""
    taken = {"input_ids", "attention_mask", *inspect.signature(model.forward).parameters}
    device = device_of(model)
    names = [name for name in rows[0].ids if name in taken]
    return {name: torch.tensor([row.ids[name] for row in rows], device=device) for name in names}


def tracked(found: list[list[int]], progress: bool | None) -> Iterator[list[int]]:
    """The batches; on long work at a terminal, with a progress bar."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    shown = progress if progress is not None else len(found) >= 8 and console.is_terminal
    if not shown:
        return iter(found)
    return iter(track(found, description="attending", console=console, transient=console.is_terminal))
