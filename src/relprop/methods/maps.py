"""Attention maps of a pass, checked: one self-attention map a block, with what flowed back to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from relprop.engine.capture import Block, HeadMask
from relprop.engine.run import Flow, propagate, wide
from relprop.errors import InputError, ModelError
from relprop.methods.reading import Inputs
from relprop.rulebook import rulesets
from relprop.rulebook.rulesets import RuleSet
from relprop.types import Attribution

Variant = Literal["paper", "released"]


@dataclass(frozen=True)
class Maps:
    """Per block A_b [batch, heads, queries, keys], the gradient G_b or relevance R_b there, and the read-out."""

    weights: tuple[Tensor, ...]
    arrived: tuple[Tensor, ...]
    blocks: tuple[Block, ...]
    readout: Tensor  # [batch, rows], sums to 1
    flow: Flow

    def attribution(self, method: str, scores: Tensor, inputs: Inputs) -> Attribution:
        """Scores of the rows as an attribution; padding at 0."""
        mask = inputs.get("attention_mask")
        if isinstance(mask, Tensor) and mask.shape == scores.shape:
            scores = torch.where(mask != 0, scores, 0)
        chosen = self.flow.chosen
        return Attribution(scores, chosen.value, chosen.names, method, chosen.rows)

    def read(self, matrix: Tensor) -> Tensor:
        """The read-out row of a [batch, rows, columns] matrix; a weighted mean where several rows are read."""
        return torch.einsum("br,brc->bc", self.readout, matrix)


def read_maps(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    method: str,
    rules: RuleSet = rulesets.gradient,
    heads: HeadMask | None = None,
) -> Maps:
    """Run the model and keep its attention maps."""
    flow = propagate(model, inputs, target, rules, capture=heads or True)
    assert flow.seen is not None
    maps = flow.seen.maps
    if not maps:
        raise ModelError(f'"{method}" needs attention maps, and this model has none to see; use lrp_ah_ln instead')
    readout = flow.seen.readout()
    square = (*readout.shape, readout.shape[-1])  # [batch, rows, rows]
    fitting = [
        one for one in maps if one.weights.dim() == 4 and (one.weights.shape[0], *one.weights.shape[2:]) == square
    ]
    if len(fitting) < len(maps) or len({one.block for one in maps}) < len(maps):
        raise ModelError(
            f'"{method}" needs one map of all tokens by all tokens a block; this model attends otherwise (windows, '
            "cross attention, or sequence before batch); use lrp_ah_ln instead"
        )
    weights = tuple(wide(one.weights) for one in maps)
    arrived = tuple(
        torch.zeros_like(a) if m.arrived is None else _seen(a, m.arrived) for a, m in zip(weights, maps, strict=True)
    )
    blocks = tuple(flow.seen.blocks[one.block] for one in maps)
    return Maps(weights, arrived, blocks, readout.to(weights[0]), flow)


def _seen(weights: Tensor, arrived: Tensor) -> Tensor:
    """What arrived where the model attends: a masked place (weight 0) has no part in the output."""
    return torch.where(weights == 0, 0, wide(arrived))


def chain(matrices: Sequence[Tensor]) -> Tensor:
    """The product of the blocks' matrices, last block leftmost."""
    product = matrices[0]
    for matrix in matrices[1:]:
        product = matrix @ product
    return product


def with_identity(matrix: Tensor) -> Tensor:
    """I + matrix: the residual connection."""
    return matrix + torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def row_normalised(matrix: Tensor) -> Tensor:
    return matrix / matrix.sum(-1, keepdim=True)


def mean_heads(tensor: Tensor) -> Tensor:
    """E_h, the mean over heads."""
    return tensor.mean(1)


def from_block(items: Sequence[Tensor], start_block: int) -> Sequence[Tensor]:
    """Blocks from `start_block` on."""
    if not 0 <= start_block < len(items):
        raise InputError(f"start_block {start_block} is out of range: the model has blocks 0 to {len(items) - 1}")
    return items[start_block:]


def check_variant(variant: str) -> None:
    if variant not in ("paper", "released"):
        raise InputError(f'variant is "paper" or "released", got "{variant}"')


def without_readout(scores: Tensor, readout: Tensor, fill: Tensor | float = 0.0) -> Tensor:
    """The released code overwrites the read-out token's own score."""
    own = torch.zeros_like(scores, dtype=torch.bool).scatter(1, readout.argmax(1, keepdim=True), True)
    return torch.where(own, fill, scores)
