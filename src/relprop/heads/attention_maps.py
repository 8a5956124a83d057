"""The attention maps of a model, for batches of sentences of equal length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.capture import Capture, CaptureOptions
from relprop.engine.captured_maps import AttentionMap
from relprop.engine.model_call import call, device_of, evaluating
from relprop.engine.placement import reading_plan
from relprop.engine.propagation import Propagation
from relprop.engine.restoring import restoring
from relprop.engine.wrappers import arguments_of
from relprop.errors import ModelError
from relprop.heads.alignment import AlignedSentence
from relprop.model_config import config_value
from relprop.rulebook import rulesets

_MOST_WEIGHTS = 2**19  # of one head in a batch: sentences x tokens x tokens


@restoring
def attention_maps(model: nn.Module, inputs: Mapping[str, Any]) -> list[Tensor]:
    """One map [batch, heads, queries, keys] per block, in the order of the forward pass."""
    rules = rulesets.gradient.with_maps()
    batch, length = inputs["input_ids"].shape
    plan = reading_plan(model, inputs, None)
    if not plan.one_stream:
        raise ModelError(
            "heads are identified by attention among the tokens of one text; this model also attends to other inputs"
        )
    capture = Capture(model, plan.blocks, batch, CaptureOptions(), rules, live=False)
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model), Propagation(rules, [capture]):
        call(model, inputs)
    return _map_per_block(capture.captured.maps, batch, length)


def _map_per_block(maps: Sequence[AttentionMap], batch: int, length: int) -> list[Tensor]:
    """One map of all tokens by all tokens per block, all with equally many heads, as a mask [blocks, heads] needs."""
    weights = [one.weights for one in maps if one.weights is not None]
    if not weights:
        raise ModelError("heads are identified by their attention maps, and this model has none")
    for one, tensor in zip(maps, weights, strict=True):
        shape = tuple(tensor.shape)
        if len(shape) != 4 or (shape[0], *shape[2:]) != (batch, length, length):
            raise ModelError(
                f"heads are identified by maps of all tokens by all tokens; block {one.block} has another (windows, "
                f"another sequence, or sequence before batch): its shape is {shape}, and the text has {length} tokens"
            )
    for one, before in pairwise(maps):
        if one.block == before.block:
            raise ModelError(f"heads are identified by one attention map per block; block {one.block} has more")
    if len(counts := {tensor.shape[1] for tensor in weights}) > 1:
        raise ModelError(f"the blocks have different numbers of heads ({sorted(counts)}): no mask of one shape fits")
    return weights


def equal_length_batches(model: nn.Module, rows: Sequence[AlignedSentence]) -> list[list[int]]:
    """Indices of sentences of equal length, so that none needs padding; one by one for models without a pad token."""
    alone = config_value(model, "pad_token_id") is None  # such classifiers refuse batches
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    batches = []
    for length, group in groupby(order, key=lambda i: len(rows[i])):
        members = list(group)
        step = 1 if alone else max(1, min(32, _MOST_WEIGHTS // length**2))
        batches += [members[k : k + step] for k in range(0, len(members), step)]
    return batches


def batch_inputs(model: nn.Module, rows: Sequence[AlignedSentence]) -> dict[str, Tensor]:
    """The model's inputs for sentences of equal length: those of the tokenizer's outputs that its forward takes."""
    taken = {"input_ids", "attention_mask", *arguments_of(model)}
    device = device_of(model)
    names = [name for name in rows[0].ids if name in taken]
    return {name: torch.tensor([row.ids[name] for row in rows], device=device) for name in names}
