"""The attention maps of a pass, folded to one matrix per block, and the read-out; raises where a model has others."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from relprop.engine.capture import CaptureOptions, HeadMask
from relprop.engine.captured_maps import AttentionMap, BlockInput, Fold
from relprop.engine.flow import Flow
from relprop.engine.forward_passes import forward_maps, map_order
from relprop.engine.map_order import MapOrder
from relprop.engine.passes import propagate
from relprop.engine.survey import call_signature
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
    """One folded self-attention map per block, and the read-out."""

    folded: tuple[Tensor, ...]
    readout: Tensor  # [batch, rows], sums to 1
    flow: Flow
    blocks: tuple[BlockInput, ...] = ()

    def attribution(self, method: str, scores: Tensor, inputs: Inputs, pairs: Tensor | None = None) -> Attribution:
        """The attribution with these scores of the rows; padding scores 0."""
        (source,) = self.flow.sources
        index = unit_index_of(self.flow, source)
        parts = {source.part: without_padding(index.summed(_in_row_order(scores, index)), source.part, inputs)}
        return attribution(self.flow, method, parts, pairs=pairs)

    def rows(self, inputs: Inputs, every: bool = False) -> Tensor:
        """[batch, rows, 1]: 1 for the rows that a mean or sum takes: real rows, and read-out rows even if masked.

        `every` takes all rows, as the released code does.
        """
        if every:
            return torch.ones_like(self.readout)[..., None]
        real = real_rows(inputs, *self.readout.shape).to(self.readout.device)
        return (real | (self.readout > 0)).to(self.readout)[..., None]

    def read(self, matrix: Tensor) -> Tensor:
        """The read-out row of a [batch, rows, columns] matrix; a weighted mean where several rows are read."""
        return torch.einsum("br,brc->bc", self.readout, matrix)

    def rolled_out(self, matrices: Sequence[Tensor], transform: Transform = _identity) -> Tensor:
        """The read-out row of the product of the transformed matrices, last block leftmost ([Chefer21] Eq. 14)."""
        row = self.readout[:, None]
        for matrix in reversed(matrices):
            row = row @ transform(matrix)
        return row[:, 0]

    def pair_flows(self, matrices: Sequence[Tensor], transform: Transform = _identity) -> Tensor:
        """[batch, rows, columns]: how much of the rolled-out row went from column to row, summed over blocks."""
        total, row = torch.zeros_like(matrices[0]), self.readout
        for matrix in reversed(matrices):
            step = row[..., None] * transform(matrix)
            total, row = total + step, step.sum(1)
        return total


# `fold` gets some query rows at a time; its results are joined along the second to last dimension.


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

    `last`: of the last block only.
    """

    def fold_map(one: AttentionMap) -> Tensor:
        return fold(_weights(one.weights))

    capture = CaptureOptions(fold=fold_map, last=last)
    maps = _ordered(_block_maps(forward_maps(model, inputs, target, capture), method, fold_map), model, inputs, target)
    if _reads_nothing(maps.readout).any():
        # The gradient of a saturated head is 0 everywhere; under these rules it is not, and shows the read-out rows.
        flow = propagate(model, inputs, target, rulesets.lrp_conservative, capture=capture)
        maps = replace(maps, readout=_block_maps(flow, method, fold_map).readout)
        _check_readout(maps.readout, method)
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

    `blocks` keeps the blocks' inputs too. `last`: of the last block only (G_b of the others is 0). `everywhere`: G_b
    also where the model does not attend, as in the released code.
    """

    def fold_map(one: AttentionMap) -> Tensor:
        a = _weights(one.weights)
        return fold(a, _attended(a, one.gradient, everywhere))

    capture = CaptureOptions(fold=fold_map, blocks=blocks, last=last)
    flow = propagate(model, inputs, target, rulesets.gradient, capture=capture)
    return _checked_gradient(_ordered(_block_maps(flow, method, fold_map), model, inputs, target), method)


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
    """`fold(R_b)` of every block: R_b = relevance at A_b. `last`: of the last block only (R_b of the others is 0).

    A model in float32 is run in float64.
    """

    def fold_map(one: AttentionMap) -> Tensor:
        return fold(_attended(_weights(one.weights), one.relevance))

    flow = propagate(model, inputs, target, rules, capture=CaptureOptions(fold=fold_map, last=last), double=True)
    maps = _ordered(_block_maps(flow, method, fold_map), model, inputs, target)
    _check_readout(maps.readout, method)
    return maps


def two_way_maps(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    method: str,
    rules: RuleSet,
    fold: Callable[[Tensor, Tensor], Tensor],
    heads: HeadMask | None = None,
    *,
    double: bool = False,
) -> BlockMaps:
    """`fold(G_b, R_b)` of every block, from one forward pass. `double`: a model in float32 is run in float64."""

    def fold_map(one: AttentionMap) -> Tensor:
        a = _weights(one.weights)
        return fold(_attended(a, one.gradient), _attended(a, one.relevance))

    capture = CaptureOptions(heads, fold_map)
    flow = propagate(model, inputs, target, rules, capture=capture, two_way=True, double=double)
    return _checked_gradient(_ordered(_block_maps(flow, method, fold_map), model, inputs, target), method)


_orders: weakref.WeakKeyDictionary[nn.Module, dict[Hashable, MapOrder]] = weakref.WeakKeyDictionary()


def _ordered(maps: BlockMaps, model: nn.Module, inputs: Inputs, target: Any) -> BlockMaps:
    """The maps, if their rows and columns are in the order of the units; tested once per model and call.

    Where it cannot be shown (a convolution in the block mixes rows), the result says so.
    """
    rows = maps.readout.shape[1]
    key = (call_signature(inputs, target), len(maps.readout) > 1, rows.bit_length())
    known = _orders.setdefault(model, {})
    if key not in known:
        known[key] = map_order(model, inputs, target)
    if known[key].differs:
        raise ModelError(
            "this model's attention maps have their rows or columns in another order than its tokens, which methods on "
            "maps cannot read; use lrp_ah_ln instead"
        )
    told = []
    if known[key].unproved:
        told.append("rows and columns of the attention maps could not be shown to be the units: other calls mix them")
    if maps.flow.captured is not None and maps.flow.captured.changed:
        told.append("attention weights are scaled or masked after their softmax: the maps are taken as they are used")
    return replace(maps, flow=replace(maps.flow, warnings=(*maps.flow.warnings, *told))) if told else maps


def _reads_nothing(readout: Tensor) -> Tensor:
    """[batch]: whether no row feeds the target."""
    return ~(readout > 0).any(1)


def _check_readout(readout: Tensor, method: str) -> None:
    for number in torch.nonzero(_reads_nothing(readout)).flatten().tolist():
        raise ModelError(
            f'nothing flows back from the target of example {number} to the last block, so that "{method}" has no row '
            "to read: its head is saturated, or the target does not depend on the block"
        )


def _checked_gradient(maps: BlockMaps, method: str) -> BlockMaps:
    """The maps. Raises if the gradient of an example is 0 everywhere: all scores would be 0."""
    last = maps.flow.captured.last if maps.flow.captured is not None else None
    gradient = None if last is None else last.gradient
    if gradient is not None:
        for number in torch.nonzero((gradient == 0).flatten(1).all(1)).flatten().tolist():
            raise ModelError(
                f"the gradient of the target of example {number} is 0 at the last block (its head is saturated), and "
                f'"{method}" weighs attention by gradients; use lrp_conservative instead'
            )
    _check_readout(maps.readout, method)
    return maps


def _block_maps(flow: Flow, method: str, fold: Fold) -> BlockMaps:
    """One self-attention map per block; raises with what to use instead where the model attends differently."""
    assert flow.captured is not None
    maps = flow.captured.maps
    if not maps:
        raise ModelError(
            f'"{method}" needs attention maps, and none could be read in this model; use lrp_ah_ln instead'
        )
    readout = flow.captured.readout()
    square = (*readout.shape, readout.shape[-1])  # [batch, rows, rows]
    fitting = [one for one in maps if len(one.shape) == 4 and (one.shape[0], *one.shape[2:]) == square]
    unlike = len(fitting) < len(maps) or len({one.block for one in maps}) < len(maps)
    if unlike or not flow.one_stream or len(flow.sources) != 1:
        raise ModelError(
            f'"{method}" needs one map of all tokens by all tokens per block; this model attends differently (windows, '
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


def _in_row_order(scores: Tensor, index: UnitIndex) -> Tensor:
    """Scores [batch, rows] flattened, in the order of the source's own rows."""
    order = torch.argsort(index.example, stable=True)  # example by example
    return torch.empty_like(scores.flatten()).scatter(0, order.to(scores.device), scores.flatten())


def _weights(weights: Tensor | None) -> Tensor:
    """The weights; rows whose mask hides every key, which are NaN in some models, become 0."""
    assert weights is not None
    a = at_least_float32(weights)
    return a.masked_fill(a.isnan(), 0)


def _attended(weights: Tensor, arrived: Tensor | None, everywhere: bool = False) -> Tensor:
    """What arrived, set to 0 where no head attends: such entries do not affect the output."""
    if arrived is None:
        return torch.zeros_like(weights)
    hidden = (weights == 0).all(-1, keepdim=True)  # rows whose mask hides every key
    if not everywhere:
        hidden = hidden | (weights == 0).all(1, keepdim=True)
    return at_least_float32(arrived).masked_fill(hidden, 0)


def chain(matrices: Sequence[Tensor], transform: Transform = _identity) -> Tensor:
    """The product of the transformed matrices, last block leftmost ([Chefer21] Eq. 14)."""
    product = transform(matrices[0])
    for matrix in matrices[1:]:
        product = transform(matrix) @ product
    return product


def with_identity(matrix: Tensor) -> Tensor:
    """I + matrix, where I stands for the residual connection ([Chefer21] Eq. 13)."""
    return matrix + torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def row_normalised(matrix: Tensor) -> Tensor:
    """Rows scaled to sum 1; rows of zeros stay zero."""
    total = matrix.sum(-1, keepdim=True)
    return matrix / torch.where(total == 0, 1, total)


def normalised_with_identity(matrix: Tensor) -> Tensor:
    """rownorm(I + matrix), as in [Abnar20]."""
    return row_normalised(with_identity(matrix))


def mean_heads(tensor: Tensor) -> Tensor:
    """E_h, the mean over heads."""
    return tensor.mean(1)


def from_block(items: Sequence[Tensor], start_block: int) -> Sequence[Tensor]:
    """The matrices of the blocks from `start_block` on."""
    if not 0 <= start_block < len(items):
        raise InputError(f"start_block {start_block} is out of range: the model has blocks 0 to {len(items) - 1}")
    return items[start_block:]


def check_variant(variant: str) -> None:
    if variant not in ("paper", "released"):
        raise InputError(f'variant is "paper" or "released", got "{variant}"')


def without_readout(scores: Tensor, readout: Tensor, fill: Tensor | float = 0.0) -> Tensor:
    """The scores with the read-out token's own score overwritten, as in the released code."""
    own = torch.zeros_like(scores, dtype=torch.bool).scatter(1, readout.argmax(1, keepdim=True), True)
    return torch.where(own, fill, scores)
