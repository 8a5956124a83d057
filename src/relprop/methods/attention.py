"""Methods that read attention maps: as they are, rolled out, or weighted by their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from relprop.errors import InputError
from relprop.methods.block_maps import (
    BlockMaps,
    Transform,
    Variant,
    chain,
    check_variant,
    from_block,
    gradient_maps,
    mean_heads,
    normalised_with_identity,
    weight_maps,
    with_identity,
    without_readout,
)
from relprop.methods.unit_scores import Inputs
from relprop.registry import METHODS
from relprop.types import Attribution

Readout = Literal["row", "all"]


@METHODS.register(family="attention", signed=False, gradients=False, maps=True, citation="A-Last, RawAtt")
def attention_last(
    model: nn.Module, inputs: Inputs, target: Any, *, readout: Readout = "row", variant: Variant = "paper"
) -> Attribution:
    """Mean attention of the last block, read-out row.

    E_h A_B, the A-Last baseline of [Ali22] and RawAtt of [Song24]. `readout="all"` sums all rows, as the code of
    [Ali22] does. `variant="released"` sets the read-out token's own score to 0.
    """
    check_variant(variant)
    maps = weight_maps(model, inputs, target, "attention_last", mean_heads, last=True)
    scores = _read(maps, maps.folded[-1:], inputs, readout, variant)
    scores = without_readout(scores, maps.readout) if variant == "released" and readout == "row" else scores
    return maps.attribution("attention_last", scores, inputs)


def _read(
    maps: BlockMaps,
    matrices: Sequence[Tensor],
    inputs: Inputs,
    readout: Readout,
    variant: Variant,
    transform: Transform = lambda matrix: matrix,
) -> Tensor:
    """The read-out row of the product of the transformed matrices, or the sum of all rows."""
    if readout not in ("row", "all"):
        raise InputError(f'readout is "row" or "all", got "{readout}"')
    if readout == "row":
        return maps.rolled_out(matrices, transform)
    product = chain(matrices, transform)
    return (product * maps.rows(inputs, every=variant == "released")).sum(1)


@METHODS.register(family="attention", signed=False, gradients=False, maps=True, citation="Abnar and Zuidema 2020")
def rollout(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    start_block: int = 0,
    readout: Readout = "row",
    pairs: bool = False,
    variant: Variant = "paper",
) -> Attribution:
    """Product over blocks of rownorm(I + E_h A_b), read-out row.

    [Abnar20] attention rollout; [Chefer21] Eq. 15 is the same up to the factor 2^B. `readout="all"` sums all rows, as
    the code of [Ali22] does. `pairs` also returns how much went from unit to unit. `variant="released"` sets the
    read-out token's own score to 0.
    """
    check_variant(variant)
    maps = weight_maps(model, inputs, target, "rollout", mean_heads)
    matrices = from_block(maps.folded, start_block)
    scores = _read(maps, matrices, inputs, readout, variant, normalised_with_identity)
    scores = without_readout(scores, maps.readout) if variant == "released" and readout == "row" else scores
    between = maps.pair_flows(matrices, normalised_with_identity) if pairs else None
    return maps.attribution("rollout", scores, inputs, between)


@METHODS.register(family="attention", signed=False, gradients=True, maps=True, citation="Chefer et al. 2021 (GAE)")
def gae(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    readout: Readout = "row",
    pairs: bool = False,
    variant: Variant = "paper",
) -> Attribution:
    """R = I; for every block R += E_h (G_b * A_b)+ R; read-out row.

    [GAE] Chefer et al., ICCV 2021. `pairs` also returns how much went from unit to unit. `variant="released"` is the
    GAE of the scripts of [Ali22]: for IMDB the read-out token's own score is 0 and the others are scaled to [0, 1]; for
    SST-2 (`readout="all"`) rows are normalised and all rows summed, without the read-out token's own entry.
    """
    check_variant(variant)
    maps = gradient_maps(model, inputs, target, "gae", lambda a, g: mean_heads((a * g).clamp_min_(0)))
    between = maps.pair_flows(maps.folded, with_identity) if pairs else None
    if variant == "paper":
        return maps.attribution(
            "gae", _read(maps, maps.folded, inputs, readout, variant, with_identity), inputs, between
        )
    if readout == "all":
        product = chain(maps.folded, normalised_with_identity)
        product = product - torch.diag_embed(torch.diagonal(product, dim1=1, dim2=2) * _own(maps))
        return maps.attribution("gae", _read(maps, [product], inputs, readout, variant), inputs, between)
    scores = without_readout(_read(maps, maps.folded, inputs, readout, variant, with_identity), maps.readout)
    scores = _scaled(scores, torch.ones_like(scores, dtype=torch.bool))
    return maps.attribution("gae", scores, inputs, between)


def _own(maps: BlockMaps) -> Tensor:
    """[batch, rows]: 1 at the read-out token."""
    return torch.zeros_like(maps.readout).scatter(1, maps.readout.argmax(1, keepdim=True), 1)


def _scaled(values: Tensor, real: Tensor) -> Tensor:
    """Scaled to [0, 1] per example, over the real entries; all 0 where these are equal."""
    dims = tuple(range(1, values.dim()))
    low = torch.where(real, values, torch.inf).amin(dims, keepdim=True)
    high = torch.where(real, values, -torch.inf).amax(dims, keepdim=True)
    return torch.where(real & (high > low), (values - low) / (high - low), 0)


@METHODS.register(
    family="attention", signed=False, gradients=True, maps=True, citation="CAM baseline of Song et al. 2024"
)
def cam(model: nn.Module, inputs: Inputs, target: Any, *, variant: Variant = "paper") -> Attribution:
    """Last block: positive part of the gradient's mean over heads and rows, per column.

    (mean over heads and rows of G_B)+, the CAM baseline of [Song24]. `variant="released"` also counts the rows of
    padding, and sets the read-out token's own score to 0.
    """
    check_variant(variant)
    released = variant == "released"
    maps = gradient_maps(model, inputs, target, "cam", lambda _, g: mean_heads(g), last=True, everywhere=released)
    gradient, rows = maps.folded[-1], maps.rows(inputs, every=released)
    scores = ((gradient * rows).sum(1) / rows.sum(1)).clamp_min(0)
    scores = without_readout(scores, maps.readout) if released else scores
    return maps.attribution("cam", scores, inputs)


@METHODS.register(
    family="attention", signed=False, gradients=True, maps=True, citation="Grad-CAM, as in Chefer et al. 2021"
)
def grad_cam(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    weigh_by: Literal["map", "row"] = "map",
    variant: Variant = "paper",
) -> Attribution:
    """Last block: head weight = mean of G_B[h]; (sum_h w_h A_B[h])+, read-out row.

    The Grad-CAM baseline of [Chefer21] and [Song24]. `weigh_by="row"` takes the mean over the read-out row alone,
    without its own token, as [Chefer21] does for ViT. `variant="released"` also counts padding, scales the map to
    [0, 1] and sets the read-out token's own score to 0.
    """
    check_variant(variant)
    if weigh_by not in ("map", "row"):
        raise InputError(f'weigh_by is "map" or "row", got "{weigh_by}"')
    released = variant == "released"
    maps = gradient_maps(
        model, inputs, target, "grad_cam", lambda a, g: torch.cat([a, g], -1), last=True, everywhere=released
    )
    a, g = maps.folded[-1].chunk(2, -1)
    rows = maps.rows(inputs, every=released)
    if weigh_by == "map":
        real = rows * rows.transpose(1, 2)
    else:  # a map of one row
        real = rows.transpose(1, 2) * (1 - _own(maps))[:, None]
        a, g = (torch.einsum("br,bhrc->bhc", maps.readout, tensor)[:, :, None] for tensor in (a, g))
    weight = torch.einsum("bhrc,brc->bh", g, real) / real.sum((1, 2)).clamp_min(1)[:, None]
    matrix = torch.einsum("bh,bhrc->brc", weight, a).clamp_min(0)
    matrix = _scaled(matrix, real != 0) if released else matrix
    scores = matrix[:, 0] if weigh_by == "row" else maps.read(matrix)
    scores = without_readout(scores, maps.readout) if released else scores
    return maps.attribution("grad_cam", scores, inputs)


@METHODS.register(family="attention", signed=False, gradients=True, maps=True, citation="Barkan et al. 2021")
def grad_sam(
    model: nn.Module, inputs: Inputs, target: Any, *, mean_over: Literal["queries", "keys"] = "queries"
) -> Attribution:
    """Mean over blocks, heads and query rows of A_b * (G_b)+, per key (no code was released that says which axis).

    Barkan et al. 2021, Grad-SAM. `mean_over="keys"` takes the mean over the keys of each query row.
    """
    if mean_over not in ("queries", "keys"):
        raise InputError(f'mean_over is "queries" or "keys", got "{mean_over}"')
    maps = gradient_maps(model, inputs, target, "grad_sam", lambda a, g: mean_heads(a * g.clamp_min(0)))
    matrix = sum(maps.folded[1:], maps.folded[0]) / len(maps.folded)
    rows = maps.rows(inputs)
    summed = (matrix * rows).sum(1) if mean_over == "queries" else matrix.sum(2)  # nothing is at keys of padding
    return maps.attribution("grad_sam", summed / rows.sum(1), inputs)


@METHODS.register(
    family="attention", signed=True, gradients=True, maps=True, additive=True, citation="Qiang et al. 2022, AttCAT"
)
def attcat(model: nn.Module, inputs: Inputs, target: Any, *, variant: Variant = "paper") -> Attribution:
    """Sum over blocks of (h_b . dy/dh_b) times the mean attention that each token receives in the block.

    [AttCAT] Qiang et al. 2022: sum_b (h_b . dy/dh_b) * mean over heads and rows of A_b[:, :, j], h_b = block b's input.
    `variant="released"` also counts the attention that tokens receive from padding.
    """
    check_variant(variant)
    maps = gradient_maps(model, inputs, target, "attcat", lambda a, _: mean_heads(a), blocks=True)
    scores, rows = torch.zeros_like(maps.readout), maps.rows(inputs, every=variant == "released")
    for block, received in zip(maps.blocks, maps.folded, strict=True):
        scores += block.effect().to(scores) * (received * rows).sum(1) / rows.sum(1)
    return maps.attribution("attcat", scores, inputs)
