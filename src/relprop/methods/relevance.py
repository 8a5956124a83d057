"""Layer-wise relevance by detached gates: score = input x gradient under a rule set ([Ali22] and after)."""

from __future__ import annotations

from typing import Any

from torch import nn

from relprop.engine.sources import At
from relprop.methods.reading import Inputs, input_relevance
from relprop.registry import METHODS
from relprop.rules import rulesets
from relprop.types import Attribution

_ALI = "Ali et al. 2022, XAI for Transformers"


@METHODS.register(family="relevance", signed=True, gradients=True, citation=_ALI)
def lrp_ah(
    model: nn.Module, inputs: Inputs, target: Any, *,
    at: At | None = None, checkpoint: bool = False, ledger: bool = False,
) -> Attribution:  # fmt: skip
    """Attention weights constant in every head (AH-rule)."""
    return input_relevance(
        model, inputs, target, rulesets.lrp_ah, "lrp_ah", at=at, checkpoint=checkpoint, ledger=ledger
    )


@METHODS.register(family="relevance", signed=True, gradients=True, citation=_ALI)
def lrp_ln(
    model: nn.Module, inputs: Inputs, target: Any, *,
    at: At | None = None, checkpoint: bool = False, ledger: bool = False,
) -> Attribution:  # fmt: skip
    """1/sqrt(eps + Var) constant in every normalisation layer (LN-rule)."""
    return input_relevance(
        model, inputs, target, rulesets.lrp_ln, "lrp_ln", at=at, checkpoint=checkpoint, ledger=ledger
    )


@METHODS.register(family="relevance", signed=True, gradients=True, citation=_ALI)
def lrp_ah_ln(
    model: nn.Module, inputs: Inputs, target: Any, *,
    at: At | None = None, checkpoint: bool = False, ledger: bool = False,
) -> Attribution:  # fmt: skip
    """Attention weights and normalisation constant (AH- and LN-rule): the default."""
    return input_relevance(
        model, inputs, target, rulesets.lrp_ah_ln, "lrp_ah_ln", at=at, checkpoint=checkpoint, ledger=ledger
    )


@METHODS.register(family="relevance", signed=True, gradients=True, citation="relprop, after Achtibat et al. 2024")
def lrp_conservative(
    model: nn.Module, inputs: Inputs, target: Any, *,
    at: At | None = None, checkpoint: bool = False, ledger: bool = False,
) -> Attribution:  # fmt: skip
    """Every gate constant, activations as x * constant, products in equal shares: the ledger closes exactly."""
    return input_relevance(
        model,
        inputs,
        target,
        rulesets.lrp_conservative,
        "lrp_conservative",
        at=at,
        checkpoint=checkpoint,
        ledger=ledger,
    )


@METHODS.register(family="relevance", signed=True, gradients=True, citation="Achtibat et al. 2024, AttnLRP")
def attn_lrp(
    model: nn.Module, inputs: Inputs, target: Any, *,
    at: At | None = None, checkpoint: bool = False, ledger: bool = False,
) -> Attribution:  # fmt: skip
    """Softmax linearised, products in halves, norms and activations passing relevance on (AttnLRP)."""
    return input_relevance(
        model, inputs, target, rulesets.attn_lrp, "attn_lrp", at=at, checkpoint=checkpoint, ledger=ledger
    )
