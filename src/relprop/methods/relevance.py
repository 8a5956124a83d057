"""Layer-wise relevance by detached gates: score = input x gradient under a rule set ([Ali22] and after)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from relprop.engine.sources import At
from relprop.methods.reading import Inputs, input_relevance
from relprop.registry import METHODS
from relprop.rulebook import rulesets
from relprop.rulebook.rulesets import RuleSet
from relprop.types import Attribution

_ALI = "Ali et al. 2022, XAI for Transformers"


def _method(rules: RuleSet, summary: str, citation: str) -> Callable[..., Attribution]:
    """The method of a rule set, under the rule set's name."""

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
    return METHODS.register(family="relevance", signed=True, gradients=True, citation=citation)(method)


lrp_ah = _method(rulesets.lrp_ah, "Attention weights constant in every head (AH-rule).", _ALI)
lrp_ln = _method(rulesets.lrp_ln, "1/sqrt(eps + Var) constant in every normalisation layer (LN-rule).", _ALI)
lrp_ah_ln = _method(rulesets.lrp_ah_ln, "Attention weights and 1/std constant (AH- and LN-rule): the default.", _ALI)
lrp_conservative = _method(
    rulesets.lrp_conservative,
    "Every gate constant, activations as x * constant, products in equal shares: the ledger closes exactly.",
    "relprop, after Achtibat et al. 2024",
)
attn_lrp = _method(
    rulesets.attn_lrp,
    "Softmax linearised, products in equal shares, norms and activations passing relevance on.",
    "Achtibat et al. 2024, AttnLRP",
)
