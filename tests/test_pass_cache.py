"""Shared passes: a pass is made once for several methods, and never taken for another one."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from relprop.attribution import attribute
from relprop.engine import passes
from relprop.engine.pass_cache import pass_key, shared_passes
from relprop.rulebook import rulesets
from relprop.rulebook.rulesets import RuleSet


def bert(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=99, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, num_labels=3,
        initializer_range=0.3,
    )  # fmt: skip
    return BertForSequenceClassification(config).eval()


def ids(seed: int = 0) -> Tensor:
    return torch.randint(5, 99, (2, 7), generator=torch.Generator().manual_seed(seed))


def alone(model: Any, tokens: Tensor, target: Any = 1, method: str = "gradient_x_input") -> Tensor:
    return attribute(model, {"input_ids": tokens}, target, method).scores


def test_new_tensors_at_old_addresses_are_new() -> None:
    """Python gives an id again as soon as an object is gone."""
    model = bert()
    expected = [alone(model, ids(seed)) for seed in range(30)]
    with shared_passes():
        found = [alone(model, ids(seed)) for seed in range(30)]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_new_numbers_at_old_addresses_are_new() -> None:
    """Of a float input a pass keeps the numbers alone, so that its id is free at once."""
    model = torch.nn.Linear(5, 3)

    def scores(seed: int) -> Tensor:
        x = torch.randn(2, 5, generator=torch.Generator().manual_seed(seed))
        return attribute(model, x, 1, "gradient_x_input").scores

    expected = [scores(seed) for seed in range(30)]
    with shared_passes():
        found = [scores(seed) for seed in range(30)]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_new_models_at_old_addresses_are_new() -> None:
    expected = [alone(bert(seed), ids()) for seed in range(10)]
    with shared_passes():
        found = [alone(bert(seed), ids()) for seed in range(10)]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_an_input_that_was_written_to_is_new() -> None:
    model, tokens = bert(), ids()
    with shared_passes():
        before = alone(model, tokens)
        tokens.copy_(ids(1))
        written = alone(model, tokens)
        tokens.numpy()[0, 0] = 3  # counts in no version
        unseen = alone(model, tokens)
    assert not torch.equal(before, written)
    assert torch.equal(written, alone(model, ids(1)))
    assert torch.equal(unseen, alone(model, tokens))


@pytest.mark.parametrize("through_data", [False, True])
def test_a_model_that_was_changed_is_new(through_data: bool) -> None:
    model, tokens = bert(), ids()
    with shared_passes():
        before = alone(model, tokens)
        for parameter in model.classifier.parameters():
            if through_data:
                parameter.data.mul_(2)
            else:
                with torch.no_grad():
                    parameter.mul_(2)
        after = alone(model, tokens)
    assert torch.allclose(after, 2 * before, atol=1e-6)


def test_targets_are_compared_and_not_their_spelling() -> None:
    class Target:
        def __init__(self, column: int) -> None:
            self.column = column

        def __repr__(self) -> str:
            return "target"

        def __call__(self, outputs: Any) -> Tensor:
            return outputs.logits[:, self.column]

    model, tokens, given = bert(), ids(), [0, 1]
    own = Target(0)
    with shared_passes():
        by_object = [alone(model, tokens, Target(column)) for column in range(3)]
        before, own.column = alone(model, tokens, own), 2
        changed = alone(model, tokens, own)
        listed = alone(model, tokens, given)
        given[0] = 2
        relisted = alone(model, tokens, given)
        functions = [alone(model, tokens, lambda outputs, c=column: outputs.logits[:, c]) for column in range(3)]
    for column in range(3):
        assert torch.equal(by_object[column], alone(model, tokens, column))
        assert torch.equal(functions[column], alone(model, tokens, column))
    assert torch.equal(before, alone(model, tokens, 0))
    assert torch.equal(changed, alone(model, tokens, 2))
    assert torch.equal(listed, alone(model, tokens, [0, 1]))
    assert torch.equal(relisted, alone(model, tokens, [2, 1]))


def test_rule_sets_of_one_name_are_two() -> None:
    other = rulesets.lrp_ah | RuleSet("more", {})
    twin = RuleSet(rulesets.gradient.name, dict(other))
    model, inputs = bert(), {"input_ids": ids()}
    with shared_passes():
        found = [passes.propagate(model, inputs, 1, rules).relevance()[0] for rules in (rulesets.gradient, twin)]
    assert not torch.equal(*found)


def test_the_same_pass_is_made_once() -> None:
    """Also for equal copies of inputs and targets."""
    model = bert()
    with patch.object(passes, "_run_pass", wraps=passes._run_pass) as made, shared_passes():
        for _ in range(3):
            alone(model, ids(), [1, 2])
    assert made.call_count == 1


def test_sharing_ends_where_it_began() -> None:
    model, inputs = bert(), {"input_ids": ids()}

    def shared() -> bool:
        return pass_key(model, inputs, 1, rulesets.gradient, None) is not None

    with shared_passes():
        with shared_passes():
            assert shared()
        assert shared()
    assert not shared()


def test_objects_that_may_change_unseen_are_not_shared() -> None:
    with shared_passes():
        assert pass_key(bert(), {"input_ids": ids(), "past_key_values": object()}, 1, rulesets.gradient, None) is None
