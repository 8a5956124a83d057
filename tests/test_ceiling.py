"""The best scores that there are: by search, against all orders, and against what is known of linear models."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from golden_cases import Case
from relprop.errors import InputError, UnknownNameError
from relprop.metrics import (
    FAITHFULNESS,
    METRICS,
    Curve,
    HidingPlan,
    Tokens,
    auac,
    ceiling,
    faithfulness,
    greedy_scores,
    plan,
)
from test_text_metrics import MASK, Bag, normal, texts

SHORT = (5, 1, 3, 4, 2)  # content tokens; of 5, at most 10 sets have one size


@pytest.fixture(scope="module")
def bert() -> Any:
    return Case("bert", "sdpa", 0).model


def sign(metric: str | HidingPlan) -> int:
    name = metric if isinstance(metric, str) else metric.name
    return 1 if METRICS[name].better == "higher" else -1


def best_of_all(
    model: Any, tokens: Tokens, metric: str | HidingPlan, ordered: int, labels: Any = None, negated: bool = False
) -> Any:
    """Every order of `ordered` tokens as scores: a text of fewer gets every order of its own among them.

    `negated`: the best of the metric's negative.
    """
    sets = []
    takes_part = tokens.hideable if isinstance(metric, str) else tokens.real
    for order in permutations(range(1, ordered + 1)):
        scores = torch.zeros(tokens.content.shape, dtype=torch.float64)
        for row, own in zip(scores, takes_part, strict=True):
            row[own] = torch.tensor(order[: int(own.sum())], dtype=torch.float64)
        sets.append(scores)
    curves = faithfulness(model, tokens, sets, labels, metrics=[metric], batch_size=256)
    every = np.stack([next(iter(one.values())).scores() for one in curves])
    if negated:
        return (-sign(metric) * every).max(0)
    return sign(metric) * (sign(metric) * every).max(0)


# Against all orders


@pytest.mark.parametrize("replacement", [MASK, None])
@pytest.mark.parametrize("metric", FAITHFULNESS)
def test_a_wide_beam_finds_the_best_of_all_orders(bert: Any, metric: str, replacement: int | None) -> None:
    tokens = texts(SHORT, words=200, replacement=replacement)
    curve = ceiling(bert, tokens, metric=metric, beam=10)
    assert curve.scores() == pytest.approx(best_of_all(bert, tokens, metric, 5), abs=1e-12)


@pytest.mark.parametrize("metric", ["auac", "au_mse"])
def test_labels_and_fractions_of_ones_own(bert: Any, metric: str) -> None:
    """Fractions at which several tokens come at once, and that do not weigh the same."""
    some, labels = texts((4, 1, 3), words=200), [0, 1, 1]
    tokens, own = Tokens(some.inputs, some.real, MASK), plan(metric, [0.3, 0.4, 1.0])  # special tokens count as content
    found = ceiling(bert, tokens, labels, metric=own, beam=20)
    assert found.scores() == pytest.approx(best_of_all(bert, tokens, own, 6, labels), abs=1e-12)


@pytest.mark.parametrize("metric", ["auac", "au_mse"])
def test_the_released_variant_has_a_ceiling_of_its_own(bert: Any, metric: str) -> None:
    """There, special tokens take part."""
    tokens, released = texts((3, 1, 2), words=200), plan(metric, variant="released")
    found = ceiling(bert, tokens, metric=released, beam=10)
    assert found.scores() == pytest.approx(best_of_all(bert, tokens, released, 5), abs=1e-12)
    assert abs(found.scores() - ceiling(bert, tokens, metric=metric, beam=10).scores()).max() > 1e-6


# Longer texts


@pytest.mark.parametrize("metric", ["auac", "au_mse"])
def test_other_scores_stay_below(bert: Any, metric: str) -> None:
    """Not guaranteed for a narrow beam, but a search that lost to chance would be of no use."""
    tokens = texts((14, 9, 12), words=200)
    sets = [normal(*tokens.content.shape, seed=s) for s in range(60)]
    others = [one[metric].scores() for one in faithfulness(bert, tokens, sets, metrics=[metric], batch_size=128)]
    values = [
        sign(metric) * ceiling(bert, tokens, metric=metric, beam=beam, batch_size=128).scores() for beam in (1, 6)
    ]
    assert (values[0] > sign(metric) * np.stack(others)).all()
    assert values[1].sum() >= values[0].sum() - 1e-12


def test_on_a_linear_model_one_set_of_each_size_is_enough() -> None:
    """The order of the contributions is best, and is found."""
    model, tokens = Bag(), texts((12, 3, 20))
    true = model.contributions(tokens)
    scores = torch.from_numpy(greedy_scores(model, tokens, beam=1))
    for i, own in enumerate(tokens.hideable):
        assert true[i, own][scores[i, own].argsort()].tolist() == true[i, own].sort().values.tolist()
        assert (scores[i, ~own] == 0).all()
        assert (scores[i, own] > 0).all()
    assert ceiling(model, tokens, beam=1).values == pytest.approx(auac(model, tokens, true).values)


def test_pruning_cancels() -> None:
    """AU-MSE: words that are worth 3, -3 and 1 hide in pairs that leave the output as it was, whatever their size."""
    model = Bag()
    model.worth.weight.data[4:7, 0] = torch.tensor([3.0, -3.0, 1.0], dtype=torch.float64)
    ids = torch.tensor([[2, 4, 5, 6, 3]])
    tokens = Tokens({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, ids > 3, MASK)
    thirds = plan("au_mse", [0, 2 / 3, 1])
    curve = ceiling(model, tokens, metric=thirds, beam=3)
    assert curve.values[0] == pytest.approx([0, 0, 2])
    assert abs(greedy_scores(model, tokens, metric=thirds, beam=3)[0]).argmax() == 3  # the 1 goes last


@pytest.mark.parametrize("left", [False, True])
def test_one_by_one_is_the_same(bert: Any, left: bool) -> None:
    tokens = texts((6, 2, 9), words=200, left=left)
    together = greedy_scores(bert, tokens, metric="au_mse", beam=2)
    for i, real in enumerate(tokens.real):
        one = Tokens({k: v[i : i + 1, real] for k, v in tokens.inputs.items()}, tokens.content[i : i + 1, real], MASK)
        alone = greedy_scores(bert, one, metric="au_mse", beam=2)
        assert alone[0].tolist() == together[i, real.numpy()].tolist()
        assert not together[i, ~real.numpy()].any()


# What it costs


def test_nothing_is_asked_twice() -> None:
    """The ways up and down share what they meet, and a beam that is wide enough asks for each set once."""
    model, tokens = Bag(), texts([6])
    greedy_scores(model, tokens, beam=20)
    assert len(model.rows()) == len(set(model.rows())) == 2**6
    narrow = Bag()
    greedy_scores(narrow, texts([16]), beam=2)
    assert len(narrow.rows()) == len(set(narrow.rows())) <= 2 * 16 * 17


def test_all_texts_step_together() -> None:
    model = Bag()
    greedy_scores(model, texts((5, 5, 5, 3)), beam=1, batch_size=64)
    assert len(model.asked) <= 1 + 2 * 5


# Mistakes


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"longest": 3}, InputError, "text 1 has 4 tokens to put in order, the search takes up to longest=3"),
        ({"beam": 0}, InputError, "beam must be at least 1, got 0"),
        ({"metric": "auc"}, UnknownNameError, '"auc" is unknown'),
        ({"labels": [0, 2]}, InputError, "labels run from 0 to 2"),
    ],
)
def test_mistakes(change: dict[str, Any], error: type[Exception], message: str) -> None:
    """All are said before the model is asked for more than the texts as they are."""
    model = Bag()
    arguments: dict[str, Any] = {"tokens": texts([3, 4])} | change
    with pytest.raises(error, match=message):
        ceiling(model, **arguments)
    assert len(model.rows()) <= 2


def test_it_is_a_curve_like_any_other(bert: Any) -> None:
    tokens = texts(SHORT, words=200)
    curve = ceiling(bert, tokens, [1] * 5, metric="au_mse")
    assert isinstance(curve, Curve)
    assert (curve.name, curve.values.shape, curve.labels.tolist()) == ("au_mse", (5, 11), [1] * 5)
    assert (curve.values[:, 0] == 0).all()
