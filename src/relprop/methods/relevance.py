"""Layer-wise relevance propagation: with constant gates ([Ali22], [AttnLRP]), and by the rules of [Chefer21]."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from relprop.engine.capture import CaptureOptions, HeadMask
from relprop.engine.passes import propagate
from relprop.engine.sources import At
from relprop.errors import InputError, OneByOneError
from relprop.methods.block_maps import (
    BlockMaps,
    Variant,
    check_variant,
    from_block,
    mean_heads,
    normalised_with_identity,
    relevance_maps,
    two_way_maps,
    with_identity,
    without_readout,
)
from relprop.methods.unit_scores import (
    Inputs,
    attribution,
    examples_lead,
    input_relevance,
    unit_scores,
)
from relprop.registry import METHODS
from relprop.rulebook import rulesets
from relprop.rulebook.gamma import GAMMA
from relprop.rulebook.pixels import down_to_pixels
from relprop.rulebook.rulesets import RuleSet
from relprop.types import Attribution

Mask = str | Tensor | NDArray[Any] | None

_ALI = "Ali et al. 2022, XAI for Transformers"


def _method(rules: RuleSet, summary: str, citation: str) -> Callable[..., Attribution]:
    """Registers the method of a rule set, under the rule set's name: sum_d x_d * dy/dx_d under these rules."""

    def method(
        model: nn.Module,
        inputs: Inputs,
        target: Any,
        *,
        at: At | None = None,
        checkpoint: bool = False,
        ledger: bool = False,
    ) -> Attribution:
        return input_relevance(model, inputs, target, rules, rules.name, at=at, checkpoint=checkpoint, ledger=ledger)

    method.__name__, method.__doc__ = rules.name, summary
    return METHODS.register(
        family="relevance", signed=True, gradients=True, additive=True, several=True, citation=citation
    )(method)


lrp_ah = _method(rulesets.lrp_ah, "Attention weights constant in every head (AH-rule).", _ALI)
lrp_ln = _method(rulesets.lrp_ln, "1/sqrt(eps + Var) constant in every normalisation layer (LN-rule).", _ALI)
lrp_ah_ln = _method(rulesets.lrp_ah_ln, "Attention weights and 1/std constant (AH- and LN-rule).", _ALI)
lrp_conservative = _method(
    rulesets.lrp_conservative,
    "Every gate constant, activations as x * constant, products in equal shares: the ledger closes. A default.",
    "relprop, after Achtibat et al. 2024",
)
lrp_carried = _method(
    rulesets.lrp_carried,
    "`lrp_conservative`, but what a LayerNorm's bias would take goes to the input that it normalises.",
    "relprop",
)
lrp_softmax = _method(
    rulesets.lrp_softmax,
    "`lrp_conservative`, but a softmax passes its relevance on to queries and keys; the ledger closes.",
    "relprop, after Achtibat et al. 2024",
)
attn_lrp = _method(
    rulesets.attn_lrp,
    "Softmax linearised, products in equal shares, norms and activations passing relevance on.",
    "Achtibat et al. 2024, AttnLRP",
)
gim = _method(
    rulesets.gim,
    "Input x gradient with 1/std constant, products in equal shares, and the softmax's gradient at temperature 2.",
    "Edin et al. 2025, GIM",
)


@METHODS.register(
    family="relevance",
    signed=True,
    gradients=True,
    additive=True,
    several=True,
    citation="Montavon et al. 2019, as in Achtibat et al. 2024",
)
def lrp_gamma(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    gamma: float = GAMMA,
    at: At | None = None,
    checkpoint: bool = False,
    ledger: bool = False,
) -> Attribution:
    """`lrp_conservative` with the gamma rule: in layers, products with the output's own sign weigh 1 + gamma.

    In linear layers and convolutions z = xW, relevance is shared in proportion to x_j w_j, and to (1 + gamma) x_j w_j
    where this product has the sign of z; biases keep their own share. gamma = 0 is `lrp_conservative`.
    """
    if not 0 <= gamma < math.inf:
        raise InputError(f"gamma is a number of at least 0, got {gamma}")
    rules = rulesets.gamma_rules(float(gamma))
    return input_relevance(model, inputs, target, rules, "lrp_gamma", at=at, checkpoint=checkpoint, ledger=ledger)


@METHODS.register(
    family="relevance",
    signed=True,
    gradients=True,
    additive=True,
    several=True,
    citation="Mehri et al. 2025, LibraGrad (FullGrad+), as a mean",
)
def lrp_full(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    rules: str = "lrp_carried",
    at: At | None = None,
    checkpoint: bool = False,
    ledger: bool = False,
) -> Attribution:
    """Mean over blocks of input x gradient at every block's input, under conservative rules. The default of pictures.

    s_j = (1/B) sum_b sum_d h_b,jd * dy/dh_b,jd with h_b the input of block b, from one backward pass. `rules` names a
    rule set whose backward pass carries the gradient. Only block inputs whose rows are shown to be the units count,
    and the attribution's `place` says how many; those of a decoder hold the encoder's units too after its first block.
    Biases are averaged likewise: the ledger closes. `at` names one place to be read in place of every block.
    """
    chosen, share = _gradient_rules(rules), 1.0 if at is None else 0.0
    return input_relevance(
        model, inputs, target, chosen, "lrp_full", at=at, checkpoint=checkpoint, ledger=ledger, block_share=share
    )


@METHODS.register(family="relevance", signed=True, gradients=True, additive=True, several=True, citation="relprop")
def lrp_blend(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    rules: str = "lrp_carried",
    at: At | None = None,
    checkpoint: bool = False,
    ledger: bool = False,
) -> Attribution:
    """Half as read at the first block's input, half as by `lrp_full`: one pass. The default of classes of texts.

    s_j = (R_1,j + 1/B sum_b R_b,j) / 2 with R_b,j = sum_d h_b,jd * dy/dh_b,jd. Lower blocks tell words of long texts
    apart, the mean over blocks is steadier and nearer to the output. `rules` and `at` as in `lrp_full`; the ledger
    closes.
    """
    chosen, share = _gradient_rules(rules), 0.5 if at is None else 0.0
    return input_relevance(
        model, inputs, target, chosen, "lrp_blend", at=at, checkpoint=checkpoint, ledger=ledger, block_share=share
    )


def _gradient_rules(name: str) -> RuleSet:
    rules = rulesets.ruleset(name)
    if rules.carries != "gradient":
        fitting = ", ".join(known for known, one in rulesets.RULESETS.items() if one.carries == "gradient")
        raise InputError(f'rules="{name}" carries relevance, which blocks cannot share; take one of {fitting}')
    return rules


_CHEFER = "Chefer et al. 2021, Beyond Attention Visualization"


def _relevance_rules(variant: Variant) -> RuleSet:
    check_variant(variant)
    return rulesets.zplus_released if variant == "released" else rulesets.zplus_rules


@METHODS.register(
    family="relevance", signed=True, gradients=True, several=True, citation="Bach et al. 2015, as in Chefer et al. 2021"
)
def lrp(
    model: nn.Module, inputs: Inputs, target: Any, *, at: At | None = None, variant: Variant = "paper"
) -> Attribution:
    """z+ rule through every layer to the first block's input, from a relevance of 1 at the target.

    [Bach15] as in [Chefer21] Eq. 4. `at="input"` continues to the pixels, by the z^B rule; positions and the class
    token keep their shares. `variant="released"`: x+W+ and x-W- each share all of R, sums are not normalised, and the
    read-out token's own score is 0.
    """
    rules = _relevance_rules(variant)
    rules = down_to_pixels(rules) if at == "input" else rules
    released = variant == "released" and at != "input"  # pixels have no read-out token
    capture = CaptureOptions() if released else None
    flow = propagate(model, inputs, target, rules, at=at, capture=capture, double=True)
    if not all(examples_lead(flow, source) for source in flow.sources):
        raise OneByOneError(
            "the rules normalise per index of the first dimension, which is not the batch in this model"
        )
    parts = unit_scores(flow, flow.relevance(), inputs)
    if released and flow.captured is not None:
        readout = flow.captured.readout()
        parts = {name: without_readout(scores, readout) for name, scores in parts.items()}
    return attribution(flow, "lrp", parts)


@METHODS.register(family="relevance", signed=False, gradients=True, maps=True, citation="Voita et al. 2019")
def partial_lrp(model: nn.Module, inputs: Inputs, target: Any, *, variant: Variant = "paper") -> Attribution:
    """`lrp` down to the last block's attention map only: E_h (R_B)+, read-out row. `released`: as in `lrp`.

    [Voita19].
    """
    rules = _relevance_rules(variant)
    maps = relevance_maps(model, inputs, target, "partial_lrp", rules, _cam, last=True)
    scores = maps.read(maps.folded[-1])
    scores = without_readout(scores, maps.readout) if variant == "released" else scores
    return maps.attribution("partial_lrp", scores, inputs)


@METHODS.register(family="relevance", signed=False, gradients=True, maps=True, two_way=True, citation=_CHEFER)
def transformer_attribution(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    start_block: int = 0,
    only_block: int | None = None,
    ablate: Literal["gradient"] | None = None,
    pairs: bool = False,
    variant: Variant = "paper",
) -> Attribution:
    """Product over blocks of I + E_h (G_b * R_b)+, read-out row.

    [Chefer21] Eq. 13-14. Ablations of the paper: `ablate="gradient"` leaves G_b out, `only_block` takes one block alone
    (0 = the first, -1 = the last). `pairs` also returns how much went from unit to unit. `variant="released"`
    normalises rows and sets the read-out token's score to the smallest.
    """
    if ablate not in (None, "gradient"):
        raise InputError(f'ablate is None or "gradient", got "{ablate}"')
    rules = _chefer_rules(variant)
    if ablate:
        maps = relevance_maps(model, inputs, target, "transformer_attribution", rules, _cam)
    else:
        maps = two_way_maps(
            model, inputs, target, "transformer_attribution", rules, lambda g, r: _cam(g * r),
            double=variant == "released",
        )  # fmt: skip
    if only_block is not None:
        blocks = len(maps.folded)
        if not -blocks <= only_block < blocks:
            raise InputError(f"only_block {only_block} is out of range: the model has blocks 0 to {blocks - 1}")
        between = maps.pair_flows([maps.folded[only_block]]) if pairs else None
        return maps.attribution("transformer_attribution", maps.read(maps.folded[only_block]), inputs, between)
    scores, between = _rolled_out(maps, start_block, variant, pairs)
    if variant == "released":
        scores = without_readout(scores, maps.readout, scores.amin(1, keepdim=True))
    return maps.attribution("transformer_attribution", scores, inputs, between)


def _chefer_rules(variant: Variant) -> RuleSet:
    check_variant(variant)
    return rulesets.zplus_stabilised if variant == "released" else rulesets.zplus_rules


def _cam(products: Tensor) -> Tensor:
    """E_h (G_b * R_b)+, [Chefer21] Eq. 13 without the identity."""
    return mean_heads(products.clamp_min(0))


def _rolled_out(maps: BlockMaps, start_block: int, variant: Variant, pairs: bool) -> tuple[Tensor, Tensor | None]:
    transform = normalised_with_identity if variant == "released" else with_identity
    matrices = from_block(maps.folded, start_block)
    return maps.rolled_out(matrices, transform), maps.pair_flows(matrices, transform) if pairs else None


@METHODS.register(
    family="relevance", signed=False, gradients=True, maps=True, two_way=True, citation="Song et al. 2024, Mask-LRP"
)
def mask_lrp(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    mask: Mask = None,
    corrupt: float = 0.0,
    seed: int = 0,
    start_block: int = 0,
    pairs: bool = False,
    variant: Variant = "paper",
) -> Attribution:
    """`transformer_attribution` with relevance flowing through some heads only, the syntactic and positional ones.

    [Song24] Eq. 7-11. `mask`: "both", "syntactic", "positional" or "random" of the heads known for this model (its
    heads.json), or an array [blocks, heads]; None takes both kinds if they are known, else every head. `corrupt` adds
    this share of the other heads. Relevance that enters a block's heads is masked, then rescaled to its old sum.
    `pairs` also returns how much went from unit to unit. `variant="released"` masks what leaves the heads, does not
    rescale, keeps the maps' relevance from before the mask and not halved, and sets the read-out token's score to 0.
    """
    released = variant == "released"
    chosen = _head_mask(model, mask, corrupt, seed)
    heads = None if chosen is None else HeadMask(chosen, late=released)
    # The released code does not halve R_b if there is a mask, even one of ones; without a mask it does.
    doubled = 1.0 if chosen is None or not released else 2.0
    rules = _chefer_rules(variant)
    maps = two_way_maps(
        model, inputs, target, "mask_lrp", rules, lambda g, r: _cam(doubled * g * r), heads, double=released
    )
    scores, between = _rolled_out(maps, start_block, variant, pairs)
    scores = without_readout(scores, maps.readout) if released else scores
    return maps.attribution("mask_lrp", scores, inputs, between)


def _head_mask(model: nn.Module, mask: Mask, corrupt: float, seed: int) -> Tensor | None:
    """The head mask [blocks, heads]; None for every head."""
    from relprop.heads import corrupted, heads_of, known_heads

    if isinstance(mask, str):
        return torch.as_tensor(heads_of(model).mask(mask, corrupt=corrupt, seed=seed))
    if mask is None:
        known = known_heads(model)
        mask = known.both if known is not None and known.both.any() else None
    if mask is None and corrupt:
        raise InputError("corrupt needs a mask: without one every head is let through")
    if mask is None or not corrupt:
        return None if mask is None else torch.as_tensor(mask)
    return torch.as_tensor(corrupted(np.asarray(mask) != 0, corrupt, seed))
