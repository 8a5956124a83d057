"""Methods that read attention maps: as they are, rolled out, or weighted by their gradients."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from relprop.errors import InputError
from relprop.methods.maps import (
    Variant,
    chain,
    check_variant,
    from_block,
    mean_heads,
    read_maps,
    row_normalised,
    with_identity,
    without_readout,
)
from relprop.methods.reading import Inputs
from relprop.registry import METHODS
from relprop.types import Attribution


@METHODS.register(family="attention", signed=False, gradients=False, maps=True, citation="A-Last, RawAtt")
def attention_last(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    readout: Literal["row", "all"] = "row",
    variant: Variant = "paper",
) -> Attribution:
    """Mean attention of the last block, read-out row. `readout="all"` sums all rows, as [Ali22]'s code does."""
    check_variant(variant)
    if readout not in ("row", "all"):
        raise InputError(f'readout is "row" or "all", got "{readout}"')
    maps = read_maps(model, inputs, target, "attention_last")
    last = mean_heads(maps.weights[-1])
    if readout == "all":
        return maps.attribution("attention_last", (last * _real_rows(inputs, last)).sum(1), inputs)
    scores = maps.read(last)
    scores = without_readout(scores, maps.readout) if variant == "released" else scores
    return maps.attribution("attention_last", scores, inputs)


def _real_rows(inputs: Inputs, matrix: Tensor) -> Tensor:
    mask = inputs.get("attention_mask")
    fits = isinstance(mask, Tensor) and mask.shape == matrix.shape[:2]
    return (mask != 0).to(matrix)[..., None] if fits else torch.ones_like(matrix[..., :1])  # type: ignore[union-attr]


@METHODS.register(family="attention", signed=False, gradients=False, maps=True, citation="Abnar and Zuidema 2020")
def rollout(
    model: nn.Module, inputs: Inputs, target: Any, *, start_block: int = 0, variant: Variant = "paper"
) -> Attribution:
    """Product over blocks of rownorm(I + E_h A_b), read-out row."""
    check_variant(variant)
    maps = read_maps(model, inputs, target, "rollout")
    matrices = [row_normalised(with_identity(mean_heads(weights))) for weights in maps.weights]
    scores = maps.read(chain(from_block(matrices, start_block)))
    scores = without_readout(scores, maps.readout) if variant == "released" else scores
    return maps.attribution("rollout", scores, inputs)


@METHODS.register(family="attention", signed=False, gradients=True, maps=True, citation="Chefer et al. 2021 (GAE)")
def gae(model: nn.Module, inputs: Inputs, target: Any) -> Attribution:
    """R = I; for every block R += E_h (G_b * A_b)+ R; read-out row."""
    maps = read_maps(model, inputs, target, "gae")
    cams = [mean_heads((a * g).clamp_min(0)) for a, g in zip(maps.weights, maps.arrived, strict=True)]
    return maps.attribution("gae", maps.read(chain([with_identity(cam) for cam in cams])), inputs)


@METHODS.register(
    family="attention", signed=False, gradients=True, maps=True, citation="CAM baseline of Song et al. 2024"
)
def cam(model: nn.Module, inputs: Inputs, target: Any) -> Attribution:
    """Last block: positive part of the gradient's mean over heads and rows, per column."""
    maps = read_maps(model, inputs, target, "cam")
    gradient = mean_heads(maps.arrived[-1])
    rows = _real_rows(inputs, gradient)
    return maps.attribution("cam", ((gradient * rows).sum(1) / rows.sum(1)).clamp_min(0), inputs)


@METHODS.register(
    family="attention", signed=False, gradients=True, maps=True, citation="Grad-CAM, as in Chefer et al. 2021"
)
def grad_cam(model: nn.Module, inputs: Inputs, target: Any, *, variant: Variant = "paper") -> Attribution:
    """Last block: head weight = mean of G_B[h]; (sum_h w_h A_B[h])+, read-out row. `released` scales it to [0, 1]."""
    check_variant(variant)
    maps = read_maps(model, inputs, target, "grad_cam")
    a, g = maps.weights[-1], maps.arrived[-1]
    rows = _real_rows(inputs, mean_heads(g))[:, None]
    weight = (g * rows * rows.transpose(2, 3)).sum((2, 3), keepdim=True) / rows.sum((2, 3), keepdim=True) ** 2
    matrix = (weight * a).sum(1).clamp_min(0)
    if variant == "paper":
        return maps.attribution("grad_cam", maps.read(matrix), inputs)
    low, high = matrix.amin((1, 2), keepdim=True), matrix.amax((1, 2), keepdim=True)
    scaled = torch.where(high > low, (matrix - low) / (high - low).clamp_min(1e-38), 0)
    return maps.attribution("grad_cam", without_readout(maps.read(scaled), maps.readout), inputs)


@METHODS.register(family="attention", signed=False, gradients=True, maps=True, citation="Barkan et al. 2021")
def grad_sam(model: nn.Module, inputs: Inputs, target: Any) -> Attribution:
    """Mean over blocks, heads and query rows of A_b * (G_b)+, per column (key)."""
    maps = read_maps(model, inputs, target, "grad_sam")
    per_block = [mean_heads(a * g.clamp_min(0)) for a, g in zip(maps.weights, maps.arrived, strict=True)]
    matrix = torch.stack(per_block).mean(0)
    rows = _real_rows(inputs, matrix)
    return maps.attribution("grad_sam", (matrix * rows).sum(1) / rows.sum(1), inputs)


@METHODS.register(family="attention", signed=True, gradients=True, maps=True, citation="Qiang et al. 2022, AttCAT")
def attcat(model: nn.Module, inputs: Inputs, target: Any) -> Attribution:
    """Sum over blocks of (h_b . dy/dh_b) times the mean attention that each token receives in the block."""
    maps = read_maps(model, inputs, target, "attcat")
    scores = torch.zeros_like(maps.readout)
    for block, weights in zip(maps.blocks, maps.weights, strict=True):
        received = mean_heads(weights)
        rows = _real_rows(inputs, received)
        if block.arrived is not None:
            effect = (block.input.detach() * block.arrived).sum(-1).to(scores)
            scores += effect * (received * rows).sum(1) / rows.sum(1)
    return maps.attribution("attcat", scores, inputs)
