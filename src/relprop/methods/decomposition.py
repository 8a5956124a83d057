"""Methods that follow the vectors that tokens give to each other: in the attention of every block, or all the way."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from relprop.engine.decompose import AttentionSubBlock, decompose
from relprop.engine.unit_vectors import unit_vectors
from relprop.errors import InputError, ModelError
from relprop.methods.block_maps import Variant, check_variant, weight_maps
from relprop.methods.unit_scores import Inputs, attribution, scores_of_rows
from relprop.ops import at_least_float32
from relprop.registry import METHODS
from relprop.rulebook import rulesets
from relprop.rulebook.relevance_flow import safe_divide
from relprop.types import Attribution

Measure = Literal["l1", "l2", "norm"]
MEASURES = ("l1", "l2", "norm")
STABILISER = {"paper": 0.0, "released": 1e-6}


@METHODS.register(
    family="decomposition",
    signed=False,
    gradients=False,
    maps=True,
    passes=lambda units, options: units,  # the vectors that each token gives, in every block
    citation="Ferrando et al. 2022, ALTI",
)
def alti(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    measure: Measure = "l1",
    pairs: bool = False,
    variant: Variant = "paper",
) -> Attribution:
    """Product over blocks of each token's share in the attention's output, read-out row.

    [ALTI] Ferrando et al. 2022. T_ij: what token j gives to token i through attention and residual connection, with
    the norm after it linearised; feed-forward layers are left out. `measure`: "l1" (as in the paper) and "l2" take
    c_ij = (|y_i| - |T_ij - y_i|)+ in that norm; "norm" takes the length |T_ij| of Kobayashi et al. 2021. Rows are
    scaled to sum 1. `pairs` also returns how much went from unit to unit. `variant="released"` adds 1e-6 to each
    difference, as torch's own distance does.
    """
    check_variant(variant)
    if measure not in MEASURES:
        raise InputError(f'measure is "l1", "l2" or "norm", got "{measure}"')
    maps = weight_maps(model, inputs, target, "alti", lambda a: a.new_zeros(a.shape[2], 0))  # for the read-out
    try:
        layers = decompose(
            model, inputs, lambda sub_block: contributions(sub_block, measure, STABILISER[variant]), target
        )
        if len(layers) != len(maps.folded):
            raise ModelError(f"the attention of {len(maps.folded) - len(layers)} blocks could not be decomposed")
    except ModelError as reason:
        raise ModelError(
            f'"alti" needs attention that is added to the residual stream, block by block: {reason}; '
            "use rollout or lrp_ah_ln instead"
        ) from None
    return maps.attribution("alti", maps.rolled_out(layers), inputs, maps.pair_flows(layers) if pairs else None)


def contributions(sub_block: AttentionSubBlock, measure: Measure, stabiliser: float = 0.0) -> Tensor:
    """[batch, rows, tokens]: the contribution c_ij of each token to the output of each row, rows sum to 1."""
    y = at_least_float32(sub_block.output.detach())
    columns = [_contribution(t, y.reshape(t.shape), measure, stabiliser) for t in sub_block.vectors()]
    return row_shares(torch.stack(columns, -1))


def _contribution(t: Tensor, y: Tensor, measure: Measure, stabiliser: float) -> Tensor:
    """c_ij for one token j; exactly 0 where T_ij = 0 (no attention)."""
    p = 1 if measure == "l1" else 2
    return _length(t, 2) if measure == "norm" else (_length(y, p) - _length(t - y + stabiliser, p)).clamp_min(0)


def _length(x: Tensor, p: int) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x, p, dim=-1)
    return length


def row_shares(c: Tensor) -> Tensor:
    """Rows scaled to sum 1. A row without contributions (its output is all bias) gets 1 at its own token."""
    total = c.sum(-1, keepdim=True)
    return torch.where(total > 0, c / torch.where(total > 0, total, 1), torch.eye(c.shape[-1]).to(c))


@METHODS.register(
    family="decomposition",
    signed=True,
    gradients=True,
    complete=True,
    additive=True,
    passes=lambda units, options: 3 * units,  # every unit's vector through the model
    citation="Modarressi et al. 2023, DecompX",
)
def decompx(model: nn.Module, inputs: Inputs, target: Any, *, biases: bool = True) -> Attribution:
    """Each unit's vector is carried through all layers, every bias shared among the vectors; ends at the target.

    [DecompX] Eq. 5: a bias b goes to unit k by |b . z_k| / sum_k |b . z_k|, z_k the unit's vector before it; Eq. 10:
    activations f(z) as z * const(f(z) / z). Scores sum to the explained number. `biases=False` leaves biases out,
    which gives the scores of `lrp_conservative`. Short inputs: time and memory grow with units times units.
    """
    rules = rulesets.lrp_conservative.with_maps()
    flow, rows = unit_vectors(model, inputs, target, rules, bias_shares if biases else no_shares)
    parts = scores_of_rows(flow, rows, inputs)
    # The baseline is what rows of no unit give, such as a class token or the decoder's start; else 0, up to rounding.
    every, scored = torch.cat(rows), torch.cat([one.flatten() for one in parts.values()])
    other = every.sum() - scored.sum()
    baseline = torch.where(other.abs() <= 1e-6 * every.abs().sum(), 0, other)[None]
    return attribution(flow, "decompx", parts, conserves=True, baseline=baseline)


def bias_shares(vectors: Tensor, bias: Tensor) -> Tensor:
    """[DecompX] Eq. 5: the share of each unit in the bias of a row (last dimension), by its vector there."""
    if not bias.any():
        return torch.zeros_like(vectors)
    sizes = (vectors * bias).sum(-1, keepdim=True).abs() if bias.dim() else (vectors * bias).abs()
    return bias * torch.where(sizes.sum(0) > 0, safe_divide(sizes, sizes.sum(0)), 1 / len(vectors))


def no_shares(vectors: Tensor, bias: Tensor) -> Tensor:
    return torch.zeros_like(vectors)
