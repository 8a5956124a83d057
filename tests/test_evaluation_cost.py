"""Perturbation evaluation asks what the ideal asks: each input once, sorted, in full batches. Time is a slow test."""

import pytest
import torch
from torch import nn

import cost
import evaluation
from relprop.metrics import faithfulness
from test_text_metrics import MASK, Bag, normal, texts

LENGTHS = (7, 1, 12, 3, 12, 20, 2)


def size(calls: list[evaluation.Batch]) -> tuple[int, int, int]:
    """Calls, rows, and tokens with padding."""
    ids = [call["input_ids"] for call in calls]
    return len(ids), sum(map(len, ids)), sum(one.numel() for one in ids)


def test_the_ideal_is_what_it_says() -> None:
    """Inputs that come twice once, without the padding that they came with, from short to long, in full batches."""
    ids = [torch.tensor([[5, 6, 7], [5, 0, 0]]), torch.tensor([[5, 0, 0, 0], [8, 9, 0, 0]]), torch.tensor([[4, 4]])]
    calls = [{"input_ids": one, "attention_mask": (one != 0).long()} for one in ids]
    found = evaluation.ideal(calls, batch_size=2)
    assert [batch["input_ids"].tolist() for batch in found] == [[[5, 0], [8, 9]], [[4, 4, 0], [5, 6, 7]]]
    assert [batch["attention_mask"].sum().item() for batch in found] == [3, 5]


@pytest.mark.parametrize("replacement", [MASK, None])
def test_evaluation_asks_what_the_ideal_asks(replacement: int | None) -> None:
    """The same calls, rows and padded tokens; labels cost one more row, which is asked first to check them."""
    model, tokens = Bag(), texts(LENGTHS, replacement=replacement)
    sets = [normal(*tokens.content.shape, seed=s) for s in range(3)]
    calls = evaluation.asked(model, lambda: faithfulness(model, tokens, sets, batch_size=8))
    assert size(calls) == size(evaluation.ideal(calls, batch_size=8))
    labelled = evaluation.asked(model, lambda: faithfulness(model, tokens, sets, [0] * 7, batch_size=8))
    assert size(labelled[:1]) == (1, 1, LENGTHS[0] + 2)
    assert size(labelled[1:]) == size(calls)


class Pair(nn.Module):
    """Two classes of nothing, and a count of the tokens read."""

    read = 0

    def forward(self, input_ids: torch.Tensor, **_: torch.Tensor) -> torch.Tensor:
        self.read += input_ids.numel()
        return torch.zeros(len(input_ids), 2)


@pytest.mark.parametrize("left_out", [False, True])
def test_the_benchmark_compares_like_with_like(monkeypatch: pytest.MonkeyPatch, left_out: bool) -> None:
    """Counted in tokens read rather than seconds: as much as the ideal, and ten methods less than ten times one."""
    model, tokens = Pair(), evaluation.tokens_of(evaluation.sentences(4), left_out=left_out)

    def duration(run: cost.Callable[[], None]) -> float:
        before = model.read
        run()
        return model.read - before

    monkeypatch.setattr(cost, "seconds", duration)
    ten = evaluation.random_scores(tokens, 10)
    inputs, ratio = evaluation.to_ideal(model, tokens, ten, rounds=1)
    one, _ = evaluation.to_ideal(model, tokens, ten[:1], rounds=1)
    assert ratio == 1
    assert one < inputs < 10 * one
    assert 1 < evaluation.to_one(model, tokens, ten, rounds=1) < 10
    assert evaluation.to_one(model, tokens, ten[:1] * 10, rounds=1) == 1


@pytest.mark.slow
@pytest.mark.parametrize("work", evaluation.WORKS, ids=lambda work: work.name)
def test_evaluation_takes_little_more_than_the_model(work: evaluation.Work) -> None:
    """At most 1.15 of the ideal's time; ten methods together less than ten times one."""
    model, texts = evaluation.build(work.name).requires_grad_(False), evaluation.sentences(work.texts)
    for left_out in (False, True):
        tokens = evaluation.tokens_of(texts, left_out=left_out)
        assert evaluation.to_ideal(model, tokens, evaluation.random_scores(tokens, 1), rounds=9)[1] <= evaluation.IDEAL
    tokens = evaluation.tokens_of(texts[: work.for_ten])
    assert evaluation.to_one(model, tokens, evaluation.random_scores(tokens, 10), rounds=3) < evaluation.TEN
