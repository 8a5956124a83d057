"""Random small Transformers, spelled in many ways, have the scores of their plain twin and their own outputs."""

from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, example, given, seed, settings
from torch import Tensor, nn

from model_fuzz import Spec, model, specs
from relprop.engine.passes import propagate
from relprop.engine.propagation import Propagation
from relprop.engine.sources import At
from relprop.errors import UnruledOpError
from relprop.methods.unit_scores import unit_scores
from relprop.rulebook.rulesets import RULESETS, RuleSet, ruleset

INPUTS = {"input_ids": torch.tensor([[4, 9, 2, 7], [1, 3, 19, 0]])}


def runs(count: int) -> settings:
    """The same examples every time: a difference found once is found again."""
    quiet = list(HealthCheck)
    return settings(max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=quiet)


def check_scores(spec: Spec) -> None:
    """Under every rule set; where a rule is defined on a fused operation alone, it may be refused."""
    spelled = model(spec)
    for name, rules in RULESETS.items():
        for at in ("word_embeddings", None):
            expected, place = plain_scores(spec.plain(), name, at)
            try:
                found, own = scores(spelled, rules, at)
            except UnruledOpError:
                assert rules.carries == "relevance" or hides_logits(rules, spec), (name, spec)
                continue
            assert own == place, (name, str(spec))
            apart = float((found - expected).abs().max() / expected.abs().max())
            assert apart < (1e-9 if rules.carries == "gradient" else 1e-6), (name, at, apart, str(spec))


def hides_logits(rules: RuleSet, spec: Spec) -> bool:
    """Whether relevance should go to the logits of a softmax, and the model writes it out in several calls."""
    return rules.name in ("lrp_softmax", "gim") and spec.softmax not in ("plain", "method", "out", "softmin")


def scores(one: nn.Module, rules: RuleSet, at: At | None) -> tuple[Tensor, str]:
    """Of every token, read where they are looked up or at the first block; and that place."""
    flow = propagate(one, INPUTS, 1, rules, at=at)
    return unit_scores(flow, flow.relevance(), INPUTS)["input_ids"], flow.sources[0].place


@cache
def plain_scores(spec: Spec, rules: str, at: At | None) -> tuple[Tensor, str]:
    """Those of a model in its plain spelling, which many others share."""
    return scores(model(spec), RULESETS[rules], at)


def check_outputs(spec: Spec) -> None:
    """To the bit, in every precision."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        one = model(spec, dtype)
        with torch.no_grad():
            expected = one(**INPUTS)
        x = one.table.weight.detach().clone().requires_grad_()
        for name, rules in RULESETS.items():
            if hides_logits(rules, spec):
                continue
            with Propagation(rules):
                found = torch.func.functional_call(one, {"table.weight": x * 1}, kwargs=INPUTS)
            assert found.requires_grad
            assert torch.equal(found.detach(), expected), (name, dtype, str(spec))


@runs(16)
@given(specs())
@example(Spec())
def test_scores_do_not_depend_on_the_spelling(spec: Spec) -> None:
    check_scores(spec)


@runs(10)
@given(specs())
def test_outputs_are_the_models_own(spec: Spec) -> None:
    check_outputs(spec)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_two_thousand_models(part: int) -> None:
    """In eight parts of 250, which can run side by side (`-n 2`) or one at a time."""

    @seed(part)
    @runs(250)
    @given(specs())
    def models(spec: Spec) -> None:
        check_scores(spec)
        check_outputs(spec)

    models()


def test_the_fuzzer_would_see_a_difference() -> None:
    """A twin that computes something else is found out."""
    spec = Spec(activation_kind="silu", activation="sigmoid")
    check_scores(spec)
    found, other = (scores(model(one), ruleset("lrp_ah_ln"), "word_embeddings")[0] for one in (spec, Spec()))
    assert (found - other).abs().max() > 1e-3 * other.abs().max()
