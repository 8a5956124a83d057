"""`check`: does relprop explain a model exactly? Its operations, its outputs under the rules, and its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from relprop.engine.flow import Flow
from relprop.engine.forward_passes import forward_flow
from relprop.engine.leaves import batch_of
from relprop.engine.passes import propagate
from relprop.engine.prediction import predict
from relprop.engine.wrappers import check_model
from relprop.methods.examples import single_example
from relprop.methods.unit_scores import Inputs, attribution, ledger_of, unit_scores
from relprop.rulebook.rulesets import RuleSet, ruleset
from relprop.rulebook.treatments import ByWeights, Expand
from relprop.types import Ledger

TOLERANCE = 1e-4  # of the ledger, in float64
_COARSE = {torch.float32: 1e-3, torch.bfloat16: 3e-2, torch.float16: 1e-2}


@dataclass(frozen=True)
class OpUse:
    """An operation: its number of live calls, its rule, and how much relevance it took without explanation."""

    name: str
    calls: int
    treatment: str
    unexplained: float


@dataclass(frozen=True)
class Report:
    """The outcome of a check."""

    rules: str
    change: float  # largest change of the explained number, relative to the logits
    ops: tuple[OpUse, ...]
    ledger: Ledger
    tolerance: float
    place: Mapping[str, str] = field(default_factory=dict)  # default place of each part
    warnings: tuple[str, ...] = ()  # what the numbers do not cover

    @property
    def unchanged(self) -> bool:
        return self.change <= self.tolerance

    @property
    def closes(self) -> bool:
        return self.ledger.closes(self.tolerance)

    @property
    def fault(self) -> str:
        """The largest unexplained entry."""
        worst = self.ledger.largest("unexplained", 1)[0]
        return f"{worst.op} in {worst.module or 'the model'} ({worst.value:+.3g})"

    @property
    def verdict(self) -> str:
        return "; but ".join([self._verdict, *self.warnings])

    @property
    def _verdict(self) -> str:
        if not self.unchanged:
            return f"the rules change the model's output by {self.change:.1e}: do not trust explanations of this model"
        if self.closes:
            return f"the ledger closes: all but {self.ledger.gap:.1e} of what moved is accounted for"
        return f"the ledger does not close ({self.ledger.gap:.1e} of what moved is unexplained): {self.fault}"


def check(model: nn.Module, inputs: Inputs, target: object = None, rules: str | RuleSet = "lrp_conservative") -> Report:
    """Explain one example with its ledger, and compare the output with the plain model's."""
    model = check_model(model)
    used = ruleset(rules)
    if batch_of(inputs) > 1:
        inputs = single_example(inputs, 0)
    plain = predict(model, inputs, target)
    # Read at the leaves, so that position embeddings get entries of their own.
    flow = propagate(model, inputs, plain.exact[0], used, at="leaf", ledger=True)
    relevance = flow.relevance()
    parts = unit_scores(flow, relevance, inputs)
    ledger = ledger_of(flow, relevance, parts)
    scale = plain.value.abs().max() if plain.rows is None else plain.rows.abs().max()
    change = ((flow.chosen.value - plain.value).abs().max() / scale.clamp_min(1e-30)).item()
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    warnings = attribution(flow, used.name, parts).warnings
    default = forward_flow(model, inputs, plain.exact[0])
    place = {source.part: source.place for source in default.sources}
    ops, tolerance = _ops(flow, used), _COARSE.get(dtype, TOLERANCE)
    return Report(used.name, change, ops, ledger, tolerance, place, warnings)


def _ops(flow: Flow, rules: RuleSet) -> tuple[OpUse, ...]:
    assert flow.keeper is not None
    uses = [
        OpUse(name, calls, _treatment(name, rules), unexplained)
        for name, (calls, unexplained) in flow.keeper.op_totals().items()
    ]
    return tuple(sorted(uses, key=lambda use: (-round(abs(use.unexplained), 4), -use.calls)))


def _treatment(name: str, rules: RuleSet) -> str:
    rule = rules.get(name)
    if rule is None:
        return "linear or plain gradient" if rules.carries == "gradient" else "no rule"
    if isinstance(rule, Expand):
        return f"expanded: {rule.function.__name__}"
    rule = rule.rule if isinstance(rule, ByWeights) else rule
    return f"rule: {getattr(rule, 'func', rule).__name__.lstrip('_')}"
