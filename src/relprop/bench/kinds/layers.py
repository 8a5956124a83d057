"""How much of the output is left on its way back through the blocks: the collapse of relevance, [Ali22] figure 2.

Relevance is kept in units of the logit, not as a share of it: of texts whose logit is near 0 the shares are huge, and
their mean says nothing.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from relprop.bench.kinds.batches import batched, texts_of
from relprop.bench.kinds.faithfulness import examples
from relprop.bench.kinds.kind import Job
from relprop.bench.measured import Measured
from relprop.engine.capture import CaptureOptions
from relprop.engine.passes import propagate
from relprop.errors import InputError, ModelError
from relprop.rulebook import rulesets
from relprop.rulebook.rulesets import RuleSet

__all__ = ["check", "examples", "measure"]

CURVE = "relevance_by_block"
_LRP = (
    rulesets.lrp_ah,
    rulesets.lrp_ln,
    rulesets.lrp_ah_ln,
    rulesets.lrp_conservative,
    rulesets.lrp_carried,
    rulesets.attn_lrp,
)
_RULES = {"gradient_x_input": rulesets.gradient, **{rules.name: rules for rules in _LRP}}


def check(job: Job) -> None:
    """One example through everything."""
    for method in job.methods:
        if method.method not in _RULES or method.options:
            raise InputError(
                f"relevance is followed from block to block for {', '.join(_RULES)}, without options; "
                f'got "{method.label}"'
            )
    measure(job)


def measure(job: Job) -> Measured:
    whole, batches = batched(job, texts_of(job))
    for batch in batches:
        for method in job.methods:
            start = time.perf_counter()
            kept = by_block(batch.domain.model, batch.inputs, batch.labels, _RULES[method.method])
            whole.took(method.label, time.perf_counter() - start)
            whole.add_curve(method.label, CURVE, range(kept.shape[1]), kept.tolist())
    return whole


def by_block(model: Any, inputs: dict[str, Tensor], target: Any, rules: RuleSet) -> Tensor:
    """[examples, blocks + 2]: sum R at the input of every block and at the last one's output; and y, what it was."""
    flow = propagate(model, inputs, target, rules, at="block", capture=CaptureOptions())
    captured = flow.captured
    assert captured is not None
    if captured.last is None or not captured.blocks:
        raise ModelError("the model has no blocks to follow relevance through")
    totals = [block.effect().flatten(1).sum(1) for block in (*captured.blocks, captured.last)]
    return torch.stack([*totals, flow.chosen.value.double()], 1)
