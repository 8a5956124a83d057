"""How much relevance is left at each block on the way back: the collapse of relevance, [Ali22] Figure 2.

Relevance is kept in units of the logit, not as a share of it: texts whose logit is near 0 have huge shares, and their
mean says nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relprop.bench.kinds.batches import make_batches, text_reader
from relprop.bench.kinds.task_kind import CellJob, TaskKind
from relprop.bench.measurements import Measurements
from relprop.engine.capture import CaptureOptions
from relprop.engine.passes import propagate
from relprop.errors import InputError, ModelError
from relprop.rulebook import rulesets
from relprop.rulebook.rulesets import RuleSet

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


class RelevanceByBlock(TaskKind):
    def check(self, job: CellJob) -> None:
        for method in job.methods:
            if method.method not in _RULES or method.options:
                raise InputError(
                    f"relevance is followed from block to block for {', '.join(_RULES)}, without options; "
                    f'got "{method.label}"'
                )
        super().check(job)

    def measure(self, job: CellJob) -> Measurements:
        text_reader(job)  # raises for models of other inputs
        whole, batches = make_batches(job)
        for batch in batches:
            for method in job.methods:
                with whole.timed(method.label):
                    sums = by_block(job.explainer.model, batch.inputs, batch.labels, _RULES[method.method])
                whole.add_curve(method.label, CURVE, range(sums.shape[1]), sums.tolist())
        return whole


def by_block(model: nn.Module, inputs: dict[str, Tensor], target: list[int] | None, rules: RuleSet) -> Tensor:
    """[examples, blocks + 2]: sum R at the input of every block and at the output of the last; and the output y."""
    flow = propagate(model, inputs, target, rules, at="block", capture=CaptureOptions())
    captured = flow.captured
    assert captured is not None
    if captured.last is None or not captured.blocks:
        raise ModelError("the model has no blocks to follow relevance through")
    totals = [block.effect().flatten(1).sum(1) for block in (*captured.blocks, captured.last)]
    return torch.stack([*totals, flow.chosen.value.double()], 1)
