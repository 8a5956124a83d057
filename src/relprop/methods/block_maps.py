"""Attention maps of a pass, checked: one self-attention map a block, with what flowed back to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from relprop.engine.capture import CaptureOptions, HeadMask
from relprop.engine.captured_maps import AttentionMap, BlockInput, Fold
from relprop.engine.forward_passes import forward_maps
from relprop.engine.passes import Flow, propagate
from relprop.engine.sources import Source
from relprop.engine.units import UnitIndex
from relprop.errors import InputError, ModelError
from relprop.methods.unit_scores import Inputs, attribution, unit_index_of, without_padding
from relprop.ops import at_least_float32
from relprop.padding import real_rows
from relprop.rulebook import rulesets
from relprop.rulebook.rulesets import RuleSet
from relprop.types import Attribution

Variant = Literal["paper", "released"]
Transform = Callable[[Tensor], Tensor]


def _identity(matrix: Tensor) -> Tensor:
    return matrix


@dataclass(frozen=True)
class BlockMaps:
    """What was made of every block's map, and the read-out."""

    folded: tuple[Tensor, ...]
    readout: Tensor  # [batch, rows], sums to 1
    flow: Flow
    blocks: tuple[BlockInput, ...] = ()

    def attribution(self, method: str, scores: Tensor, inputs: Inputs, pairs: Tensor | None = None) -> Attribution:
        """Scores of the rows as an attribution; padding at 0."""
        (source,) = self.flow.sources
        found = unit_index_of(self.flow, source)
        parts = {source.part: without_padding(found.summed(_as_rows(scores, source, found)), source.part, inputs)}
        return attribution(self.flow, method, parts, pairs=pairs)

    def rows(self, inputs: Inputs, every: bool = False) -> Tensor:
        """[batch, rows, 1]: 1 for the rows that a mean or sum takes: those that are no padding, and those read out.

        A masked row that is read out feeds the target all the same. `every` takes all, as the released code does.
        """
        if every:
            return torch.ones_like(self.readout)[..., None]
        real = real_rows(inputs, *self.readout.shape).to(self.readout.device)
        return (real | (self.readout > 0)).to(self.readout)[..., None]

    def read(self, matrix: Tensor) -> Tensor:
        """The read-out row of a [batch, rows, columns] matrix; a weighted mean where several rows are read."""
        return torch.einsum("br,brc->bc", self.readout, matrix)

    def rolled_out(self, matrices: Sequence[Tensor], transform: Transform = _identity) -> Tensor:
        """The read-out row of the product of what is `made` of the blocks' matrices, last block leftmost."""
        row = self.readout[:, None]
        for matrix in reversed(matrices):
            row = row @ transform(matrix)
        return row[:, 0]

    def pair_flows(self, matrices: Sequence[Tensor], transform: Transform = _identity) -> Tensor:
        """[batch, rows, columns]: how much of the rolled-out row went from column to row, all blocks together."""
        total, row = torch.zeros_like(matrices[0]), self.readout
        for matrix in reversed(matrices):
            step = row[..., None] * transform(matrix)
            total, row = total + step, step.sum(1)
        return total


# A fold sees some query rows at a time, and what it makes of them is put together along the second to last dimension.


def weight_maps(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    method: str,
    fold: Callable[[Tensor], Tensor],
    *,
    last: bool = False,
) -> BlockMaps:
    """`fold(A_b)` of every block, from a forward pass: A_b = attention weights [batch, heads, queries, keys].

    On request of the `last` block alone.
    """

    def fold_map(one: AttentionMap) -> Tensor:
        return fold(_known_weights(one.weights))

    maps = _block_maps(forward_maps(model, inputs, target, CaptureOptions(fold=fold_map, last=last)), method, fold_map)
    if _reads_nothing(maps.readout).any():
        # The gradient of a saturated head is 0 everywhere. Under these rules it is not, and tells which rows are read.
        flow = propagate(
            model, inputs, target, rulesets.lrp_conservative, capture=CaptureOptions(fold=fold_map, last=last)
        )
        maps = replace(maps, readout=_block_maps(flow, method, fold_map).readout)
        _check_read(maps.readout, method)
    return maps


def gradient_maps(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    method: str,
    fold: Callable[[Tensor, Tensor], Tensor],
    *,
    blocks: bool = False,
    last: bool = False,
    everywhere: bool = False,
) -> BlockMaps:
    """`fold(A_b, G_b)` of every block: G_b = gradient of the target by A_b.

    On request with the blocks' inputs, or of the `last` block alone (the others' G_b is 0). `everywhere`: also where
    the model does not attend, as the released code takes it.
    """

    def fold_map(one: AttentionMap) -> Tensor:
        a = _known_weights(one.weights)
        return fold(a, _attended(a, one.gradient, everywhere))

    capture = CaptureOptions(fold=fold_map, blocks=blocks, last=last)
    flow = propagate(model, inputs, target, rulesets.gradient, capture=capture)
    return _with_gradient(_block_maps(flow, method, fold_map), method)


def relevance_maps(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    method: str,
    rules: RuleSet,
    fold: Callable[[Tensor], Tensor],
    *,
    last: bool = False,
) -> BlockMaps:
    """`fold(R_b)` of every block: R_b = relevance at A_b. On request of the `last` alone (the others' is 0)."""

    def fold_map(one: AttentionMap) -> Tensor:
        return fold(_attended(_known_weights(one.weights), one.relevance))

    maps = _block_maps(
        propagate(model, inputs, target, rules, capture=CaptureOptions(fold=fold_map, last=last)), method, fold_map
    )
    _check_read(maps.readout, method)
    return maps


def two_way_maps(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    method: str,
    rules: RuleSet,
    fold: Callable[[Tensor, Tensor], Tensor],
    heads: HeadMask | None = None,
) -> BlockMaps:
    """`fold(G_b, R_b)` of every block, from one forward pass."""

    def fold_map(one: AttentionMap) -> Tensor:
        a = _known_weights(one.weights)
        return fold(_attended(a, one.gradient), _attended(a, one.relevance))

    capture = CaptureOptions(heads, fold_map)
    flow = propagate(model, inputs, target, rules, capture=capture, two_way=True)
    return _with_gradient(_block_maps(flow, method, fold_map), method)


def _reads_nothing(readout: Tensor) -> Tensor:
    """[batch]: whether no row was seen to feed the target."""
    return ~(readout > 0).any(1)


def _check_read(readout: Tensor, method: str) -> None:
    for number in torch.nonzero(_reads_nothing(readout)).flatten().tolist():
        raise ModelError(
            f'nothing flows back from the target of example {number} to the last block, so that "{method}" has no row '
            "to read: its head is saturated, or the target does not depend on the block"
        )


def _with_gradient(maps: BlockMaps, method: str) -> BlockMaps:
    """The maps, unless an example's gradient is 0 throughout: it would weigh every token with 0."""
    last = maps.flow.captured.last if maps.flow.captured is not None else None
    gradient = None if last is None else last.gradient
    if gradient is not None:
        for number in torch.nonzero((gradient == 0).flatten(1).all(1)).flatten().tolist():
            raise ModelError(
                f"the gradient of the target of example {number} is 0 at the last block (its head is saturated), and "
                f'"{method}" weighs attention by gradients; use lrp_conservative instead'
            )
    _check_read(maps.readout, method)
    return maps


def _block_maps(flow: Flow, method: str, fold: Fold) -> BlockMaps:
    """One self-attention map a block, or an error that says what to use instead."""
    assert flow.captured is not None
    maps = flow.captured.maps
    if not maps:
        raise ModelError(f'"{method}" needs attention maps, and this model has none to see; use lrp_ah_ln instead')
    readout = flow.captured.readout()
    square = (*readout.shape, readout.shape[-1])  # [batch, rows, rows]
    fitting = [one for one in maps if len(one.shape) == 4 and (one.shape[0], *one.shape[2:]) == square]
    unlike = len(fitting) < len(maps) or len({one.block for one in maps}) < len(maps)
    if unlike or not flow.one_stream or len(flow.sources) != 1:
        raise ModelError(
            f'"{method}" needs one map of all tokens by all tokens a block; this model attends otherwise (windows, '
            "cross attention, or sequence before batch); use lrp_ah_ln instead"
        )
    if len(readout) != len(flow.chosen.value):
        raise ModelError(
            f'"{method}" needs one sequence per example; this model attends in {len(readout)} sequences for '
            f"{len(flow.chosen.value)} examples (several choices or windows each)"
        )
    (source,) = flow.sources
    if len(source.rows.low) != readout.numel():
        raise ModelError(
            f'"{method}" needs attention among the units of the input; this one attends among {readout.shape[1]} rows '
            f'that could not be shown to be those of "{source.part}"; use lrp_ah_ln instead'
        )
    kept = [one for one in maps if one.folded is not None or one.weights is not None]
    folded = tuple(fold(one) if one.folded is None else one.folded for one in kept)
    blocks = tuple(flow.captured.blocks[one.block] for one in maps) if flow.captured.blocks else ()
    return BlockMaps(folded, readout.to(folded[0]), flow, blocks)


def _as_rows(scores: Tensor, source: Source, found: UnitIndex) -> Tensor:
    """[batch, rows] in the order of the source's own rows."""
    order = torch.argsort(found.example, stable=True)  # example by example
    return torch.empty_like(scores.flatten()).scatter(0, order.to(scores.device), scores.flatten())


def _known_weights(weights: Tensor | None) -> Tensor:
    """The weights. A row that sees nothing (its mask hides every key) is NaN in some models: it attends to nothing."""
    assert weights is not None
    known = at_least_float32(weights)
    return known.masked_fill(known.isnan(), 0)


def _attended(weights: Tensor, arrived: Tensor | None, everywhere: bool = False) -> Tensor:
    """What arrived where the model attends: a place hidden from every head (weight 0) has no part in the output."""
    if arrived is None:
        return torch.zeros_like(weights)
    hidden = (weights == 0).all(-1, keepdim=True)  # rows that see nothing
    if not everywhere:
        hidden = hidden | (weights == 0).all(1, keepdim=True)
    return at_least_float32(arrived).masked_fill(hidden, 0)


def chain(matrices: Sequence[Tensor], transform: Transform = _identity) -> Tensor:
    """The product of what is `made` of the blocks' matrices, last block leftmost."""
    product = transform(matrices[0])
    for matrix in matrices[1:]:
        product = transform(matrix) @ product
    return product


def with_identity(matrix: Tensor) -> Tensor:
    """I + matrix: the residual connection."""
    return matrix + torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def row_normalised(matrix: Tensor) -> Tensor:
    """Rows that sum to 1; a row of zeros stays one."""
    total = matrix.sum(-1, keepdim=True)
    return matrix / torch.where(total == 0, 1, total)


def normalised_with_identity(matrix: Tensor) -> Tensor:
    """rownorm(I + matrix)."""
    return row_normalised(with_identity(matrix))


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
