"""Similarity of two texts, token by token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import nn

from relprop.engine.leaves import batch_of
from relprop.errors import InputError, OneByOneError
from relprop.methods.examples import select_examples
from relprop.methods.unit_scores import Inputs, input_relevance
from relprop.registry import METHODS
from relprop.rulebook.rulesets import ruleset
from relprop.similarity import LATE, EmbeddingNumber, SimilarTo
from relprop.types import Attribution

TOGETHER = 32  # numbers of the embedding that flow back at once, each through a copy of the text
Rules = Literal["lrp_conservative", "lrp_carried", "lrp_ah_ln", "attn_lrp", "gradient"]


@METHODS.register(
    family="similarity",
    signed=True,
    gradients=True,
    additive=True,
    passes=lambda units, options: 768,  # one per number of the embedding, which only the model knows: most have fewer
    citation="Vasileiou and Eberle 2024, Explaining Text Similarity in Transformer Models",
)
def bilrp(model: nn.Module, inputs: Inputs, target: object, *, rules: Rules = "lrp_conservative") -> Attribution:
    """Which pairs of tokens make two texts alike: R_jj' = sum over m of R_j(phi_m) R_j'(phi_m), over all numbers m.

    `target` is a `relprop.similarity.SimilarTo`; `pairs` [batch, units, numbers] holds R_j(phi_m), the share of each
    unit in each number of the embedding, and the scores are their first-order form, sum over m of R_j(phi_m) times the
    other text's number. An explainer multiplies the `pairs` of both texts. One way back per number of the embedding.
    """
    if batch_of(inputs) > 1:
        raise OneByOneError("every number of an embedding flows back by itself: explain texts one by one")
    similar = target[0] if isinstance(target, list) and len(target) == 1 else target
    if not isinstance(similar, SimilarTo) or similar.kind in LATE:
        raise InputError(
            '"bilrp" explains how similar two texts are by cosine or dot: give an encoder of texts a pair of texts, '
            "or take another method"
        )
    whole = input_relevance(model, inputs, similar, ruleset(rules), "bilrp", **_PLAIN)
    shares = []
    for first in range(0, len(similar.other), TOGETHER):
        numbers = tuple(range(first, min(first + TOGETHER, len(similar.other))))
        copies = select_examples(inputs, torch.zeros(len(numbers), dtype=torch.long), 1)
        found = input_relevance(model, copies, EmbeddingNumber(numbers), ruleset(rules), "bilrp", **_PLAIN)
        shares.append(found.scores)
    return replace(whole, pairs=torch.cat(shares).T.unsqueeze(0))


_PLAIN: dict[str, Any] = {"at": None, "checkpoint": False, "ledger": False}
