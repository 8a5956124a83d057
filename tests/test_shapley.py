"""Shapley values: against all orders and sets by brute force, where they are exact, and what they leave alone."""

import itertools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models import tiny
from relprop.attribution import attribute
from relprop.errors import InputError, RelpropError

both = pytest.mark.parametrize("algorithm", ["permutation", "partition"])
Worth = Callable[[frozenset[int]], float]


def of_orders(worth: Worth, units: int, orders: list[tuple[int, ...]]) -> Tensor:
    """Mean gain of each unit over the given orders: the definition."""
    total = torch.zeros(units, dtype=torch.float64)
    for order in orders:
        for place, unit in enumerate(order):
            before = frozenset(order[:place])
            total[unit] += worth(before | {unit}) - worth(before)
    return total / len(orders)


def four_tokens() -> tuple[Any, dict[str, Tensor], Worth]:
    """A tiny BERT, a text of four tokens, and what each set of them is worth with the others padding."""
    model, inputs = tiny("BertForSequenceClassification")
    ids = inputs["input_ids"][:1, :4]
    known: dict[frozenset[int], float] = {}

    def worth(kept: frozenset[int]) -> float:
        if kept not in known:
            hidden = ids.clone()
            hidden[0, [i for i in range(4) if i not in kept]] = model.config.pad_token_id
            with torch.no_grad():
                known[kept] = model(input_ids=hidden).logits[0, 1].item()
        return known[kept]

    return model, {"input_ids": ids}, worth


def test_partition_is_the_owen_value() -> None:
    """Exact: the mean over all orders in which the neighbours (0, 1) and (2, 3) stay together."""
    model, inputs, worth = four_tokens()
    orders = [one for one in itertools.permutations(range(4)) if {one[0], one[1]} in ({0, 1}, {2, 3})]
    found = attribute(model, inputs, 1, "shapley", algorithm="partition", max_evals=100)
    assert (found.scores[0] - of_orders(worth, 4, orders)).abs().max() < 1e-10
    assert found.baseline is not None
    assert abs(found.baseline.item() - worth(frozenset())) < 1e-10


def test_permutations_come_near_the_shapley_value() -> None:
    """The mean over all 24 orders, within 1 % after 300 drawn ones."""
    model, inputs, worth = four_tokens()
    exact = of_orders(worth, 4, list(itertools.permutations(range(4))))
    found = attribute(model, inputs, 1, "shapley", max_evals=300 * 9).scores[0]
    assert (found - exact).abs().max() < 0.01 * exact.abs().max()
    weights = {n: math.factorial(n) * math.factorial(3 - n) / 24 for n in range(4)}  # the same, by sets
    others = [frozenset(s) for n in range(4) for s in itertools.combinations((1, 2, 3), n)]
    assert abs(sum(weights[len(s)] * (worth(s | {0}) - worth(s)) for s in others) - exact[0]) < 1e-10


class Pairs(nn.Module):
    """Each token's number, and the products of all pairs `strength` times."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.strength = nn.Embedding(20, 1).double(), strength

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.words(input_ids)[..., 0]
        pairs = (x.sum(1).square() - x.square().sum(1)) / 2
        return torch.stack([x.sum(1) + self.strength * pairs, x.sum(1)], 1)


@both
def test_an_additive_model_gets_its_terms(algorithm: str) -> None:
    """Every order says the same, so the least number of passes is enough."""
    model, ids = Pairs(0.0), torch.tensor([[3, 4, 5, 6, 7]])
    found = attribute(model, ids, 0, "shapley", algorithm=algorithm, max_evals=11 if algorithm == "permutation" else 99)
    assert (found.scores[0] - model.words(ids)[0, :, 0]).abs().max() < 1e-12


def test_pairs_are_shared_evenly_by_one_order_there_and_back() -> None:
    """x_i + x_i * (sum of the others) / 2."""
    model, ids = Pairs(1.0), torch.tensor([[3, 4, 5, 6, 7]])
    x = model.words(ids)[0, :, 0].detach()
    found = attribute(model, ids, 0, "shapley", max_evals=11).scores[0]
    assert (found - (x + x * (x.sum() - x) / 2)).abs().max() < 1e-12


@both
@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "T5ForSequenceClassification",
                                          "ViTForImageClassification"])  # fmt: skip
def test_complete_however_few_passes(architecture: str, algorithm: str) -> None:
    """The sum is value - value with everything hidden, also where the passes do not suffice to tell units apart."""
    model, inputs = tiny(architecture)
    few = 2 * 17 + 1 if architecture.startswith("ViT") else 15
    found = attribute(model, inputs, 1, "shapley", algorithm=algorithm, max_evals=few)
    assert found.baseline is not None
    assert (found.scores.sum(1) - (found.value - found.baseline)).abs().max() < 1e-6  # T5's norms are in float32


@both
def test_the_replacement_hides(algorithm: str) -> None:
    """A token that is the replacement earns nothing; the baseline is the text of replacements."""
    model, inputs = tiny("BertForSequenceClassification")
    ids = inputs["input_ids"][:1].clone()
    ids[0, 3] = 11
    found = attribute(model, {"input_ids": ids}, 1, "shapley", algorithm=algorithm, replacement=11, max_evals=60)
    assert found.scores[0, 3].abs() < 1e-12
    assert found.scores[0, [0, 1, 2, 4, 5, 6]].all()
    with torch.no_grad():
        expected = model(input_ids=torch.full_like(ids, 11)).logits[:, 1]
    assert found.baseline is not None
    assert (found.baseline - expected).abs().max() < 1e-12


@both
def test_a_single_unit_gets_everything(algorithm: str) -> None:
    model, ids = Pairs(1.0), torch.tensor([[3]])
    found = attribute(model, ids, 0, "shapley", algorithm=algorithm)
    assert found.scores.tolist() == found.value[:, None].tolist()


@both
def test_numpys_generator_is_left_alone(algorithm: str) -> None:
    """`shap` draws from it: it is put back, and what it held does not matter."""
    model, inputs = tiny("BertForSequenceClassification")
    found = []
    for seed in (1, 2):
        np.random.seed(seed)
        before = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
        found.append(attribute(model, inputs, 1, "shapley", algorithm=algorithm, max_evals=30).scores)
        assert np.random.get_state()[1].tolist() == before  # type: ignore[index, union-attr]
    assert torch.equal(*found)


@pytest.mark.parametrize("size", [1, 7])
def test_the_size_of_internal_batches_does_not_steer_the_tree(size: int) -> None:
    """Which groups are divided when passes run out depends on nothing but the text."""
    model, inputs = tiny("BertForSequenceClassification")
    options = {"algorithm": "partition", "max_evals": 14}
    plain = attribute(model, inputs, 1, "shapley", **options).scores
    assert (
        attribute(model, inputs, 1, "shapley", **options, internal_batch_size=size).scores - plain
    ).abs().max() < 1e-10


def test_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few passes, an unknown algorithm, and a missing package, each with what to do."""
    model, inputs = tiny("BertForSequenceClassification")
    with pytest.raises(InputError, match="max_evals=14 is too few: one order of 7 units takes 15"):
        attribute(model, inputs, 1, "shapley", max_evals=14)
    with pytest.raises(InputError, match='algorithm is "permutation" or "partition", got "kernel"'):
        attribute(model, inputs, 1, "shapley", algorithm="kernel")
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(RelpropError, match=r'needs the shap package: pip install "relprop\[shap\]"'):
        attribute(model, inputs, 1, "shapley")
