"""Metrics on texts: the released code's arrays, slow oracles, what must not matter, what it costs, and mistakes."""

import json
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import linregress, spearmanr
from torch import Tensor, nn
from transformers import BertForSequenceClassification, GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel

from golden_cases import Case, arrays
from relprop.attribution import attribute
from relprop.errors import InputError, ModelError, UnknownNameError
from relprop.metrics import (
    FAITHFULNESS,
    METRICS,
    Curve,
    Hidden,
    Tokens,
    aopc,
    au_mse,
    auac,
    class_sensitivity,
    comprehensiveness,
    conservation,
    faithfulness,
    log_odds,
    merged,
    model_randomisation,
    plan,
    precision_at_k,
    sufficiency,
    token_f1,
    token_logits,
    word_scores,
)

GOLDEN = Path(__file__).parent / "golden"
CLS, SEP, MASK = 2, 3, 1  # of the models made here; 0 is padding
ALL = {"auac": auac, "au_mse": au_mse, "aopc": aopc, "log_odds": log_odds,
       "comprehensiveness": comprehensiveness, "sufficiency": sufficiency}  # fmt: skip


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Bag(nn.Module):
    """Exactly linear: logits of two classes are s and -s, s the sum of what the tokens are worth. The mask is worth 0.

    Keeps what it is asked.
    """

    def __init__(self, words: int = 500, seed: int = 0) -> None:
        super().__init__()
        worth = normal(words, 1, seed=seed)
        worth[:4] = 0
        self.worth = nn.Embedding.from_pretrained(worth)
        self.head = nn.Linear(1, 2, bias=False).double()
        self.head.weight.data = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
        self.asked: list[Tensor] = []

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        self.asked.append(input_ids * attention_mask)
        return self.head((self.worth(input_ids) * attention_mask[..., None]).sum(1))

    def rows(self) -> list[tuple[int, ...]]:
        """All inputs that were asked, without padding."""
        return [tuple(row[row != 0].tolist()) for batch in self.asked for row in batch]

    def contributions(self, tokens: Tokens) -> Tensor:
        """To the predicted class, token by token."""
        shares = self.worth(tokens.inputs["input_ids"])[..., 0] * tokens.real
        return shares * shares.sum(1, keepdim=True).sign()


def texts(
    lengths: Sequence[int], *, left: bool = False, replacement: int | None = MASK, seed: int = 1, words: int = 500
) -> Tokens:
    """[CLS] words [SEP], padded."""
    generator = torch.Generator().manual_seed(seed)
    rows = [[CLS, *torch.randint(4, words, (n,), generator=generator).tolist(), SEP] for n in lengths]
    width = max(map(len, rows))
    blank = [[0] * (width - len(row)) for row in rows]
    ids = torch.tensor([b + row if left else row + b for row, b in zip(rows, blank, strict=True)])
    return Tokens({"input_ids": ids, "attention_mask": (ids != 0).long()}, ids > 3, replacement)


LENGTHS = (7, 1, 12, 3, 12, 20, 2)


# The released code's arrays


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return arrays("metrics/text.npz")


@pytest.fixture(scope="module")
def sentences(golden: dict[str, Any]) -> Tokens:
    rows = [torch.tensor(golden[f"aopc/sentence{i}_ids"]) for i in range(4)]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return Tokens({"input_ids": ids, "attention_mask": mask}, ids > 102, 0)


def padded(golden: dict[str, Any], method: str, width: int) -> np.ndarray[Any, Any]:
    rows = [golden[f"aopc/{method}/expl_s{i}"] for i in range(3)]
    return np.stack([*(np.pad(row, (0, width - len(row))) for row in rows), np.zeros(width)])


@pytest.mark.parametrize("method", ["MGAE", "AttCAT", "generate_rollout", "generate_attn_last_layer"])
def test_aopc_and_log_odds_are_the_released_codes(golden: dict[str, Any], sentences: Tokens, method: str) -> None:
    """All four sentences in one batch; the last has fewer than 20 tokens, and the code leaves it out."""
    model = BertForSequenceClassification.from_pretrained(GOLDEN / "bert")
    scores, labels = padded(golden, method, sentences.content.shape[1]), golden["aopc/labels"]
    for metric, name in ((aopc, "aopc"), (log_odds, "logodds")):
        curve = metric(model, sentences, scores, labels, variant="released")
        for i in range(3):
            assert curve.values[i] == pytest.approx(golden[f"aopc/{method}/{name}_s{i}"], abs=2e-6)
        assert np.isnan(curve.values[3]).all()
        assert curve.curve() == pytest.approx(golden[f"aopc/{method}/{name}"], abs=2e-6)
        assert curve.summary() == {curve.name: pytest.approx(golden[f"aopc/{method}/{name}"].mean(), abs=2e-6)}


def test_aopc_hides_what_the_released_code_hides(golden: dict[str, Any], sentences: Tokens) -> None:
    scores = torch.tensor(golden["aopc/MGAE/expl_s0"])
    released = plan("aopc", variant="released")
    ids = torch.tensor(golden["aopc/sentence0_ids"])
    hidden = list(released.hidden(scores, ids > 102))
    assert [ids.masked_fill(one, 0).tolist() for one in hidden] == golden["aopc/replaced_s0_MGAE"].tolist()


@pytest.mark.parametrize("companions", [0, 2])
def test_auac_and_au_mse_are_the_released_codes(companions: int) -> None:
    """The golden scores are those of LRP (AH+LN) for class 1. Special tokens are hidden too, by [UNK].

    Shorter companions in the batch change nothing.
    """
    golden, model = arrays("ali_bert/golden.npz"), Case("ali_bert", "sdpa", 1).model
    ids = torch.tensor(golden["a/input_ids"]).repeat(1 + companions, 1)
    mask = torch.ones_like(ids)
    mask[1:, -4:] = ids[1:, -4:] = 0
    tokens = Tokens({"input_ids": ids, "attention_mask": mask}, mask.bool() & (ids > 102), 100)
    scores = torch.tensor(golden["a/f64/t1/lrp_ah_ln_std"]).repeat(len(ids), 1)
    labels = [1] * len(ids)
    show = auac(model, tokens, scores, labels, variant="released")
    assert show.values[0] == pytest.approx(golden["a/flip_generate/evidence"], abs=2e-6)
    prune = au_mse(model, tokens, scores, labels, variant="released")
    assert prune.values[0] == pytest.approx(golden["a/flip_pruning/mse"], abs=2e-6)
    hidden = list(plan("auac", variant="released").hidden(scores[0], tokens.content[0]))
    inputs = [ids[0].masked_fill(one, 100).tolist() for one in hidden]
    assert inputs == golden["a/flip_generate/inputs"][:, 0].tolist()


def test_the_released_code_rounds_up_what_is_whole() -> None:
    """np.ceil(np.linspace(0, 1, 11) * 10) is 4 at 0.3: the released variant repeats it, ours is 3."""

    def counts(tokens: int, fractions: Any, variant: Any) -> list[int]:
        content = torch.ones(tokens, dtype=torch.bool)
        return plan("au_mse", fractions, variant).hidden(normal(tokens), content).sum(1).tolist()

    released = np.ceil(np.linspace(0, 1, 11) * 10).astype(int).tolist()
    assert counts(10, None, "paper") == list(range(11)) != released
    assert counts(10, None, "released") == released
    assert (counts(100, [0.07], "paper"), counts(100, [0.07], "released")) == ([7], [8])


def test_precision_at_20_is_the_released_codes(golden: dict[str, Any]) -> None:
    """Both readings, named for what they are."""
    first, last = golden["p20/start_end"]
    answer = np.zeros((1, 60), dtype=bool)
    answer[0, first : last + 1] = True
    result = precision_at_k(golden["p20/attribution"][None], answer)
    assert (result.hits[0], result.answer[0]) == (golden["p20/count"], golden["p20/perfect"])
    assert result.summary() == {"precision_at_k": 3 / 20, "pooled_recall_at_k": 3 / 5}


def test_token_f1_is_erasers() -> None:
    """Predictions as scores of 1; the benchmark's own counts of words, so that k takes them all."""
    case = json.loads((GOLDEN / "metrics" / "eraser.json").read_text())
    counts = []
    for document in ("d1", "d2", "d3"):
        words = {kind: np.zeros(25) for kind in ("truth", "pred")}
        for kind, marks in words.items():
            for name, start, end in case[kind]:
                marks[start:end] += name == document
        predicted = int((words["pred"] > 0).sum())
        counts.append(token_f1([words["pred"] > 0], [words["truth"] > 0], ks=[predicted]))
    released = case["token_prf"]["instance_macro"]
    for name, key in (("precision", "p"), ("recall", "r"), ("f1", "f1")):
        assert np.mean([getattr(one, name) for one in counts]) == pytest.approx(released[key])


# Slow oracles


def slow(name: str, model: Any, ids: list[int], content: list[bool], scores: list[float], label: int) -> list[float]:
    """One text and one fraction at a time, by the words of the definition."""

    def ask(hidden: list[int]) -> Tensor:
        row = torch.tensor([[MASK if i in hidden else one for i, one in enumerate(ids)]])
        with torch.no_grad():
            out = model(input_ids=row, attention_mask=torch.ones_like(row))
        return getattr(out, "logits", out)[0].double()

    own = [i for i in range(len(ids)) if content[i]]
    best = sorted(own, key=lambda i: (-scores[i], i))
    smallest = sorted(own, key=lambda i: (abs(scores[i]), i))
    p0 = ask([]).softmax(-1)[label].item()
    values = []
    for percent in {"auac": range(0, 101, 10), "au_mse": range(0, 101, 10), "aopc": range(10, 91, 10),
                    "log_odds": range(10, 91, 10)}.get(name, (1, 5, 10, 20, 50)):  # fmt: skip
        count = -(-percent * len(own) // 100)
        if name == "au_mse":
            values.append((ask(smallest[:count]) - ask([])).square().sum().item())
            continue
        p = ask(best[count:] if name in ("auac", "sufficiency") else best[:count]).softmax(-1)[label].item()
        values.append({"auac": p, "log_odds": math.log(p / p0)}.get(name, p0 - p))
    return values


@pytest.fixture(scope="module")
def bert() -> Any:
    return Case("bert", "sdpa", 0).model


@pytest.mark.parametrize("name", FAITHFULNESS)
@pytest.mark.parametrize("labelled", [True, False])
def test_by_hand(bert: Any, name: str, labelled: bool) -> None:
    """Texts of many lengths in one batch, with tied scores; without labels, the predicted class is read."""
    tokens = texts(LENGTHS, words=200)
    scores = normal(*tokens.content.shape).mul(2).round()
    with torch.no_grad():
        predicted = bert(**tokens.inputs).logits.argmax(-1).tolist()
    labels = [1, 0, 0, 1, 0, 1, 1] if labelled else predicted
    curve = ALL[name](bert, tokens, scores, labels if labelled else None, batch_size=5)
    assert curve.labels.tolist() == labels
    for i, n in enumerate(LENGTHS):
        row = [values[i, : n + 2].tolist() for values in (tokens.inputs["input_ids"], tokens.content, scores)]
        expected = slow(name, bert, *row, labels[i])
        assert curve.values[i] == pytest.approx(expected, abs=1e-12)
        area = sum((a + b) / 20 for a, b in pairwise(expected))
        assert curve.scores()[i] == pytest.approx(area if name in ("auac", "au_mse") else np.mean(expected))
    assert curve.summary() == {name: pytest.approx(curve.scores().mean())}


def test_fractions_of_ones_own(bert: Any) -> None:
    tokens = texts(LENGTHS, words=200)
    scores = normal(*tokens.content.shape)
    whole, part = auac(bert, tokens, scores), auac(bert, tokens, scores, fractions=[0.2, 0.5, 1])
    assert part.fractions == (0.2, 0.5, 1.0)
    assert np.allclose(part.values, whole.values[:, [2, 5, 10]], atol=1e-12)
    assert np.allclose(part.area(), 0.3 * part.values[:, :2].mean(1) + 0.5 * part.values[:, 1:].mean(1))
    own = faithfulness(bert, tokens, [scores], metrics=[plan("auac", [0.2, 0.5, 1]), "aopc"])[0]
    assert np.allclose(own["auac"].values, part.values, atol=1e-12)
    assert np.allclose(own["aopc"].values, aopc(bert, tokens, scores).values, atol=1e-12)


# What must be true


def test_true_contributions_are_best() -> None:
    """On a linear model no other order can do better, at any fraction of any text; random ones lie in the middle.

    Squared change is smallest on average only: what is pruned early may cancel.
    """
    model, tokens = Bag(), texts([25] * 40)
    true = model.contributions(tokens)
    upside_down = dict.fromkeys(FAITHFULNESS, -true) | {"au_mse": 1 / (true.abs() + 1e-9)}
    shuffled = [
        true[:, [0, *(1 + torch.randperm(25, generator=torch.Generator().manual_seed(s))), 26]] for s in range(5)
    ]
    best, *others = faithfulness(model, tokens, [true, *shuffled])
    for name in FAITHFULNESS:
        sign = 1 if METRICS[name].better == "higher" else -1
        worst = ALL[name](model, tokens, upside_down[name])
        for other in others:
            values = [sign * one.summary()[name] for one in (worst, other[name], best[name])]
            assert values == sorted(values)
            assert values[0] < values[1] < values[2]
            if name != "au_mse":
                assert (sign * (best[name].values - other[name].values) >= -1e-12).all()
                assert (sign * (worst.values - other[name].values) <= 1e-12).all()


@pytest.mark.parametrize("name", FAITHFULNESS)
def test_only_the_order_matters(bert: Any, name: str) -> None:
    tokens = texts(LENGTHS, words=200)
    scores = normal(*tokens.content.shape)
    changed = scores.pow(3) * 7 if name == "au_mse" else scores.mul(3).exp() - 2
    nonsense = torch.where(tokens.real, changed, torch.nan)  # padding's scores are not looked at
    assert np.allclose(ALL[name](bert, tokens, scores).values, ALL[name](bert, tokens, nonsense).values, atol=1e-12)


@pytest.mark.parametrize(("variant", "replacement"), [("paper", MASK), ("paper", None), ("released", MASK)])
@pytest.mark.parametrize("left", [False, True])
def test_one_by_one_is_the_same(replacement: int | None, left: bool, variant: Any) -> None:
    """Padding and company change nothing, on either side, replaced or left out, where the model reads positions."""
    torch.manual_seed(0)
    config = GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=60, n_positions=40, num_labels=3, pad_token_id=0)
    model = GPT2ForSequenceClassification(config).double()
    tokens = texts(LENGTHS, left=left, replacement=replacement, words=60)
    scores = normal(*tokens.content.shape)
    whole = faithfulness(model, tokens, [scores], variant=variant, batch_size=64)[0]
    for i in range(len(tokens)):
        real = tokens.real[i]
        one = Tokens(
            {k: v[i : i + 1, real] for k, v in tokens.inputs.items()}, tokens.content[i : i + 1, real], replacement
        )
        alone = faithfulness(model, one, [scores[i : i + 1, real]], variant=variant, batch_size=1)[0]
        for name in FAITHFULNESS:
            assert np.allclose(whole[name].values[i], alone[name].values[0], atol=1e-12, equal_nan=True)


def test_padding_on_the_left_is_taken_away() -> None:
    """A model that reads the last row, or counts positions from the first, must not see padding on another side."""
    model, tokens = Bag(), texts(LENGTHS, left=True)
    auac(model, tokens, normal(*tokens.content.shape), batch_size=64)
    assert all((batch != 0).all() for batch in model.asked)
    assert len(model.asked) == len(set(LENGTHS))


def test_tokens_left_out_are_gone() -> None:
    """The text closes up, with its token types, and is padded as it came; without a mask, lengths go separately."""
    seen: list[dict[str, Tensor]] = []

    class Reader(nn.Module):
        def forward(self, input_ids: Tensor, **more: Tensor) -> Tensor:
            seen.append({"input_ids": input_ids, **more})
            return torch.zeros(len(input_ids), 2)

    ids = torch.tensor([[2, 10, 11, 12, 3], [2, 20, 3, 9, 9]])
    mask, types = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]), torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]])
    tokens = Tokens({"input_ids": ids, "attention_mask": mask, "token_type_ids": types, "use": 7}, ids > 9, None)
    ask = [Hidden(0, torch.tensor([0, 1, 0, 0, 0]).bool()), Hidden(1, torch.tensor([0, 1, 0, 0, 0]).bool())]
    token_logits(Reader(), tokens, ask)
    (batch,) = seen
    assert batch.pop("use") == 7
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [[2, 3, 9, 9], [2, 11, 12, 3]],
        "attention_mask": [[1, 1, 0, 0], [1, 1, 1, 1]],
        "token_type_ids": [[0, 0, 0, 0], [0, 1, 1, 1]],
    }
    seen.clear()
    bare = Tokens({"input_ids": ids[:, :3]}, ids[:, :3] > 9, None)
    token_logits(Reader(), bare, [Hidden(0, torch.tensor([0, 1, 0]).bool()), Hidden(1, torch.zeros(3).bool())])
    assert [batch["input_ids"].tolist() for batch in seen] == [[[2, 11]], [[2, 20, 3]]]


# What it costs


@pytest.mark.parametrize(("replacement", "lengths"), [(MASK, [7, 14, 32]), (None, [2])])
def test_nothing_is_asked_twice(replacement: int | None, lengths: list[int]) -> None:
    """Every row is a new input: across fractions, metrics, sets of scores, and texts that become the same."""
    model, tokens = Bag(), texts([12, 12, 5, 12, 30], replacement=replacement)
    tokens.inputs["input_ids"][3] = tokens.inputs["input_ids"][0]  # the same text again
    sets = [normal(*tokens.content.shape, seed=s) for s in range(3)]
    faithfulness(model, tokens, sets, batch_size=16)
    assert len(model.rows()) == len(set(model.rows()))
    hidden = [row for row in model.rows() if set(row) <= {CLS, SEP, MASK}]
    assert sorted(map(len, hidden)) == lengths  # all hidden: one of each length, or none but the special tokens


def test_ten_methods_share_what_they_can() -> None:
    """Together: each text whole once and hidden once; 10 methods cost less than 10 times one."""
    tokens = texts([20] * 6)
    sets = [normal(*tokens.content.shape, seed=s) for s in range(10)]
    alone, together = Bag(), Bag()
    for scores in sets:
        auac(alone, tokens, scores)
    faithfulness(together, tokens, sets, metrics=["auac"])
    assert len(alone.rows()) == 10 * (6 * (9 + 1) + 1)
    assert len(together.rows()) <= 10 * 6 * 9 + 6 + 1
    six = Bag()
    faithfulness(six, tokens, sets[:1])
    # AUAC and sufficiency show the same at 10, 20, 50 %; AOPC, LOdds and comprehensiveness hide the same there.
    assert len(six.rows()) <= 6 * (1 + 9 + 9 + 9 + 2 + 2) + 1


def test_batches_are_full_and_sorted_by_length() -> None:
    model, tokens = Bag(), texts(LENGTHS)
    faithfulness(model, tokens, [normal(*tokens.content.shape)], batch_size=8)
    assert {len(batch) for batch in model.asked[:-1]} == {8}
    widths = [batch.shape[1] for batch in model.asked]
    assert widths == sorted(widths)
    for batch, following in pairwise(model.asked):
        assert (batch != 0).sum(1).max() == batch.shape[1]  # no wider than its longest text
        assert (batch != 0).sum(1).max() <= (following != 0).sum(1).min()


def test_the_model_is_left_as_it_was(bert: Any) -> None:
    before = {name: value.clone() for name, value in bert.state_dict().items()}
    tokens = texts([5, 3], words=200)
    bert.train()
    try:
        first = auac(bert, tokens, tokens.content.double())
        assert all(module.training for module in bert.modules())
    finally:
        bert.eval()
    assert np.array_equal(first.values, auac(bert, tokens, tokens.content.double()).values)
    assert all(torch.equal(value, before[name]) for name, value in bert.state_dict().items())
    assert not any(parameter.grad is not None for parameter in bert.parameters())


# Edges


def test_one_token() -> None:
    """It is there or not: any fraction but 0 is the whole text."""
    model, tokens = Bag(), texts([1])
    worth = model.worth.weight[tokens.inputs["input_ids"][0, 1], 0].abs().item()
    p0 = 1 / (1 + math.exp(-2 * worth))
    result = faithfulness(model, tokens, [np.zeros((1, 3))])[0]
    assert result["auac"].values[0] == pytest.approx([0.5] + [p0] * 10)
    assert result["au_mse"].values[0, 0] == 0
    assert np.ptp(result["au_mse"].values[0, 1:]) == 0 < result["au_mse"].values[0, 1]
    assert result["aopc"].values[0] == pytest.approx([p0 - 0.5] * 9)
    assert result["log_odds"].values[0] == pytest.approx([math.log(0.5 / p0)] * 9)
    assert result["comprehensiveness"].values[0] == pytest.approx([p0 - 0.5] * 5)
    assert result["sufficiency"].values[0] == pytest.approx([0] * 5)
    assert len(set(model.rows())) == len(model.rows()) == 2


def test_ties_go_in_the_order_of_the_text() -> None:
    """Except in the released AUAC, which starts from the end."""
    equal, content = torch.zeros(6), torch.tensor([0, 1, 1, 1, 1, 0]).bool()

    def hidden(name: str, variant: Any) -> list[list[int]]:
        masks = plan(name, [0.5], variant).hidden(equal, content)
        return [mask.nonzero().flatten().tolist() for mask in masks]

    assert hidden("auac", "paper") == [[3, 4]]
    assert hidden("au_mse", "paper") == hidden("aopc", "paper") == hidden("comprehensiveness", "released") == [[1, 2]]
    assert hidden("auac", "released") == hidden("au_mse", "released") == [[0, 1, 2]]
    assert hidden("aopc", "released") == [[1, 2, 3]]  # half of all six tokens, none of them special


def test_tiny_probabilities_have_a_log() -> None:
    """Also where p is 0 in floating point: log(pk / p0) of a class that the model all but excludes."""
    model, tokens = Bag(), texts([10])
    model.head.weight.data *= 1000
    true = model.contributions(tokens)
    right = log_odds(model, tokens, true, fractions=[1.0])
    assert right.values[0, 0] == pytest.approx(math.log(0.5))
    wrong = log_odds(model, tokens, true, 1 - right.labels, fractions=[1.0])
    assert wrong.values[0, 0] == pytest.approx(2000 * true.sum().item() + math.log(0.5))


def test_classes_that_do_not_exclude_each_other(bert: Any) -> None:
    tokens = texts([6, 4], words=200)
    scores = normal(*tokens.content.shape)
    bert.config.problem_type = "multi_label_classification"
    try:
        curve = auac(bert, tokens, scores, [1, 0])
    finally:
        bert.config.problem_type = None
    with torch.no_grad():
        logits = bert(**tokens.inputs).logits
    assert curve.values[:, -1] == pytest.approx(logits.sigmoid()[[0, 1], [1, 0]].numpy())


def test_results_merge_and_resample(bert: Any) -> None:
    tokens = texts(LENGTHS, words=200)
    scores = normal(*tokens.content.shape)
    whole = faithfulness(bert, tokens, [scores])[0]

    def part(rows: slice) -> dict[str, Curve]:
        some = Tokens({k: v[rows] for k, v in tokens.inputs.items()}, tokens.content[rows], MASK)
        return faithfulness(bert, some, [scores[rows]])[0]

    a, b = part(slice(0, 3)), part(slice(3, None))
    for name in FAITHFULNESS:
        joined = merged([a[name], b[name]])
        assert np.allclose(joined.values, whole[name].values, atol=1e-12)
        assert joined.labels.tolist() == whole[name].labels.tolist()
        assert joined.scores().shape == (len(LENGTHS),)
    with pytest.raises(InputError, match="differ in name"):
        merged([a["auac"], a["au_mse"]])


# Mistakes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": torch.full((2, 6), torch.nan)}, "scores of example 0 are not all finite"),
        ({"scores": torch.zeros(2, 5)}, r"one per token, \[2, 6\], got \[2, 5\]"),
        ({"labels": [0, 2]}, "labels run from 0 to 2, the model has classes 0 to 1"),
        ({"labels": [0, -1]}, "labels run from -1 to 0"),
        ({"labels": [0]}, "labels are 2 class indices"),
        ({"labels": [0.5, 1.0]}, "labels are 2 class indices, got float"),
        ({"fractions": [0, 0.5, 0.5]}, "fractions rise from 0 to 1"),
        ({"fractions": [0, 1.5]}, "fractions rise from 0 to 1"),
        ({"variant": "author"}, 'variant is "paper" or "released"'),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ],
)
def test_mistakes(change: dict[str, Any], message: str) -> None:
    """All are said before the model is asked for more than the texts as they are."""
    model = Bag()
    arguments: dict[str, Any] = {"tokens": texts([4, 2]), "scores": torch.zeros(2, 6)} | change
    with pytest.raises(InputError, match=message):
        auac(model, **arguments)
    assert len(model.rows()) <= 2


@pytest.mark.parametrize(
    ("inputs", "content", "message"),
    [
        ({}, torch.ones(1, 3), "need input_ids"),
        (
            {"input_ids": torch.ones(1, 3)},
            torch.ones(1, 2),
            r"content is a tensor like input_ids, \[1, 3\], got \[1, 2\]",
        ),
        ({"input_ids": torch.ones(1, 3)}, [[1, 1, 1]], "content is a tensor .* got list"),
        (
            {"input_ids": torch.ones(1, 3), "attention_mask": torch.ones(1, 1, 3, 3)},
            torch.ones(1, 3),
            "attention_mask is",
        ),
        ({"input_ids": torch.ones(1, 3)}, torch.zeros(1, 3), "text 0 has no token that may be hidden"),
        (
            {"input_ids": torch.ones(1, 3), "attention_mask": torch.tensor([[0, 0, 1]])},
            torch.tensor([[1, 1, 0]]),
            "text 0 has no token that may be hidden",
        ),
        ({"input_ids": torch.ones(1, 3), "attention_mask": torch.tensor([[1, 0, 1]])}, torch.ones(1, 3), "has gaps"),
    ],
)
def test_mistakes_in_texts(inputs: dict[str, Tensor], content: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Tokens(inputs, content, MASK)


def test_more_mistakes() -> None:
    tokens, scores = texts([4, 2]), torch.zeros(2, 6)
    with pytest.raises(UnknownNameError, match='metric "auca" is unknown; did you mean "auac"'):
        faithfulness(Bag(), tokens, [scores], metrics=["auca"])
    with pytest.raises(InputError, match="each once"):
        faithfulness(Bag(), tokens, [scores], metrics=["auac", plan("auac", [0, 1])])
    bare = {"input_ids": torch.tensor([[7, 8], [9, 0]]), "attention_mask": torch.tensor([[1, 1], [1, 0]])}
    with pytest.raises(InputError, match="nothing is left of text 0: give a token as replacement"):
        aopc(Bag(), Tokens(bare, torch.ones(2, 2), None), torch.zeros(2, 2))
    single = Bag()
    single.head = nn.Linear(1, 1).double()
    assert au_mse(single, tokens, scores).values.shape == (2, 11)
    with pytest.raises(InputError, match="a model of two classes or more"):
        auac(single, tokens, scores)
    broken = Bag()
    broken.head.weight.data *= torch.nan
    with pytest.raises(ModelError, match="not a finite number"):
        auac(broken, tokens, scores)


# Agreement with people


def test_token_f1_by_hand() -> None:
    """Ties to the first word, fewer words than k, marks behind the end of the scores, nothing marked."""
    result = token_f1([[3, 1, 3, 2], [1.0, 2.0], [5]], [[0, 1, 1, 0, 1], [1, 0], [0]], ks=[1, 2, 3])
    assert result.hits.tolist() == [[0, 1, 1], [0, 1, 1], [0, 0, 0]]
    assert result.taken.tolist() == [[1, 2, 3], [1, 2, 2], [1, 1, 1]]
    assert result.marked.tolist() == [3, 1, 0]
    for i, k in np.ndindex(3, 3):
        hits, taken, marked = result.hits[i, k], result.taken[i, k], result.marked[i]
        p, r = hits / taken, hits / marked if marked else 0
        assert result.precision[i, k] == pytest.approx(p)
        assert result.recall[i, k] == pytest.approx(r)
        assert result.f1[i, k] == pytest.approx(2 * p * r / (p + r) if hits else 0)
    assert result.curve() == pytest.approx(result.f1.mean(0))
    assert token_f1([[1.0]], [[1]]).ks == (10, 20, 30, 40, 50, 60, 70, 80)
    assert merged([token_f1([[1.0]], [[1]]), token_f1([[2.0]], [[0]])]).summary() == {"token_f1": 0.5}


def test_words_have_their_best_tokens_score() -> None:
    words = [[-1, 0, 0, 1, 3, -1], [-1, 0, 1, 1, -1, -1]]
    scores = np.array([[9, -2, -1, 4, 0, 9], [9, 1, 2, 3, 9, 9.0]])
    first, second = word_scores(torch.tensor(scores), words)
    assert first.tolist() == [-1, 4, -math.inf, 0]
    assert second.tolist() == [1, 3]
    assert token_f1([first], [[1, 1, 1, 1]], ks=[4]).taken.tolist() == [[3]]  # a word that has no token is never taken


def test_precision_at_k_by_hand() -> None:
    scores, answers = [[5, 4, 3, 9], [1, 1, 1, 0]], [[1, 0, 1, 0], [0, 1, 1, 0]]
    assert precision_at_k(scores, answers, k=2).hits.tolist() == [1, 1]
    result = precision_at_k(scores, answers, k=3, where=[[1, 1, 0, 1], [0, 1, 1, 0]])
    assert (result.hits.tolist(), result.taken.tolist(), result.answer.tolist()) == ([1, 2], [3, 2], [1, 2])
    assert result.summary() == pytest.approx({"precision_at_k": (1 / 3 + 1) / 2, "pooled_recall_at_k": 1})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: token_f1([[1.0]], [[1]], ks=[0]), "ks are numbers of words"),
        (lambda: token_f1([[1.0]], []), "scores of 1 documents, rationales of 0"),
        (lambda: token_f1([[1.0, 2.0]], [[1]]), "document 0: one score and one mark"),
        (lambda: token_f1([[1.0]], [[3]]), "document 0: one score and one mark"),
        (lambda: token_f1([[1.0], [math.nan]], [[1], [1]]), "scores of document 1 are not all finite"),
        (lambda: word_scores(np.zeros((1, 3)), np.zeros((1, 2))), r"got \[1, 3\] and \[1, 2\]"),
        (lambda: precision_at_k([[1.0, 2.0]], [[0, 0]]), "example 0 has no token of an answer"),
        (lambda: precision_at_k([[1.0, 2.0]], [[0, 1]], k=0), "k must be at least 1"),
        (lambda: precision_at_k([[1.0, 2.0]], [[1]]), r"\[examples, tokens\]"),
        (lambda: precision_at_k([[1.0, math.inf]], [[0, 1]]), "scores of example 0 are not all finite"),
        (lambda: conservation([[1.0, 2.0]], [1.0, 2.0]), r"one value each, got \[1, 2\] and \[2\]"),
        (lambda: class_sensitivity([[1.0, 2.0]], [[2.0, 1.0]], [[1]]), "mask of the scores that count"),
    ],
)
def test_mistakes_without_a_model(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


# Conservation, class sensitivity, model randomisation


CONSERVED = ("correlation", "gap", "wrong_sign", "median_miss")


def test_conservation_by_hand() -> None:
    scores, values = normal(9, 5), normal(9, seed=3)
    result = conservation(scores, values)
    line = linregress(values, scores.sum(1))
    assert result.correlation == pytest.approx(line.rvalue)
    assert result.line == pytest.approx((line.slope, line.intercept))
    assert result.gap == pytest.approx((scores.sum(1) - values).abs().mean() / values.abs().mean())
    assert result.wrong_sign == pytest.approx(((scores.sum(1) < 0) != (values < 0)).float().mean())
    assert result.median_miss == pytest.approx(np.median((scores.sum(1) / values - 1).abs()))
    assert np.isnan(conservation(scores, values * 0).median_miss)
    perfect = conservation(scores, scores.sum(1))
    assert perfect.summary() == pytest.approx(
        {f"conservation_{name}": float(name == "correlation") for name in CONSERVED}
    )
    assert perfect.line == pytest.approx((1, 0))
    parts = merged([conservation(scores[:4], values[:4]), conservation(scores[4:], values[4:])])
    assert parts.summary() == pytest.approx(result.summary())
    alone = conservation(scores[:1], values[:1])
    assert np.isnan([alone.correlation, *alone.line]).all()


def test_padding_is_no_agreement_between_classes() -> None:
    a, b = normal(3, 8), normal(3, 8, seed=1)
    where = torch.arange(8) < torch.tensor([[8], [5], [3]])
    result = class_sensitivity(a * where, b * where, where)
    for i in range(3):
        assert result.spearman[i] == pytest.approx(spearmanr(a[i][where[i]], b[i][where[i]]).statistic)
    assert class_sensitivity(a * where, b * where).pearson[2] != pytest.approx(result.pearson[2])


def test_randomisation_leaves_the_model_alone_and_goes_from_the_top(bert: Any) -> None:
    """The scores' copies differ from the model in all layers down to each, and nowhere below."""
    tokens, before = texts([6, 4], words=200), {k: v.clone() for k, v in bert.state_dict().items()}
    state = torch.get_rng_state()
    changed: list[set[str]] = []

    def explain(model: nn.Module) -> Tensor:
        now = model.state_dict()
        changed.append({name for name in now if not torch.equal(now[name], before[name])})
        return attribute(model, tokens.inputs, 1, "gradient_x_input").scores

    result = model_randomisation(bert, explain, where=tokens.real)
    places = ["classifier", "bert.encoder.layer.2", "bert.encoder.layer.1", "bert.encoder.layer.0", "bert.embeddings"]
    assert result.layers == ("head", *places[1:4], "embeddings")
    for done, names in enumerate(changed):
        reached = [any(name.startswith(place) for name in names) for place in places]
        assert reached == [True] * done + [False] * (5 - done)
    assert "bert.pooler.dense.weight" in changed[1]
    assert changed[5] >= {name for name, p in bert.named_parameters() if p.std() > 0}
    assert all(torch.equal(value, before[name]) for name, value in bert.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert result.spearman.shape == result.spearman_absolute.shape == (2, 5)


def test_randomisation_tells_what_depends_on_the_weights(bert: Any) -> None:
    """Scores that only read the input survive all of it; those of the model do not. The seed repeats."""
    tokens = texts([20] * 8, words=200)
    same = model_randomisation(bert, lambda model: tokens.inputs["input_ids"].double())
    assert same.spearman == pytest.approx(1)
    assert same.spearman_absolute == pytest.approx(1)

    def explain(model: nn.Module) -> Tensor:
        return attribute(model, tokens.inputs, 1, "lrp_ah_ln").scores

    first, again, other = (model_randomisation(bert, explain, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.spearman, again.spearman)
    assert not np.array_equal(first.spearman, other.spearman)
    assert abs(first.summary()["randomised_spearman"]) < 0.3
    only = model_randomisation(bert, explain, layers=["classifier"])
    assert only.layers == ("classifier",)
    assert only.spearman.shape == (8, 1)


def test_randomisation_by_hand(bert: Any) -> None:
    """Rank correlations of the scores, and of their absolute values, where the mask says."""
    given = iter([normal(3, 6, seed=s) for s in range(3)])
    true, first, second = (normal(3, 6, seed=s) for s in range(3))
    where = torch.arange(6) < torch.tensor([[6], [4], [5]])
    result = model_randomisation(bert, lambda model: next(given), layers=["classifier", "bert.pooler"], where=where)
    for column, other in enumerate((first, second)):
        for i in range(3):
            a, b = true[i][where[i]], other[i][where[i]]
            assert result.spearman[i, column] == pytest.approx(spearmanr(a, b).statistic)
            assert result.spearman_absolute[i, column] == pytest.approx(spearmanr(a.abs(), b.abs()).statistic)
    assert result.summary() == pytest.approx({
        "randomised_spearman": result.spearman[:, 1].mean(),
        "randomised_spearman_absolute": result.spearman_absolute[:, 1].mean(),
    })  # fmt: skip


def test_randomised_weights_keep_their_size(bert: Any) -> None:
    kept: list[dict[str, Tensor]] = []
    model_randomisation(bert, lambda model: kept.append(dict(model.named_parameters())) or torch.eye(3))
    for name, new in kept[-1].items():
        old = bert.get_parameter(name)
        if old.numel() > 500:
            assert new.mean().item() == pytest.approx(old.mean().item(), abs=0.2 * old.std().item())
            assert new.std().item() == pytest.approx(old.std().item(), rel=0.2)
            assert abs(np.corrcoef(old.detach().flatten(), new.detach().flatten())[0, 1]) < 0.2


def test_layers_to_randomise() -> None:
    """A weight that serves twice goes with the lower place; a model without blocks goes child by child."""
    tied = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=2, n_head=2, vocab_size=20, n_positions=8))
    states: list[Tensor] = []
    result = model_randomisation(
        tied, lambda model: states.append(model.transformer.wte.weight.detach().clone()) or torch.eye(3)
    )
    assert result.layers == ("head", "transformer.h.1", "transformer.h.0", "embeddings")
    assert [torch.equal(one, states[0]) for one in states] == [True] * 4 + [False]
    assert model_randomisation(Bag(), lambda model: torch.eye(3)).layers == ("head", "worth")
    for layers, message in ((["nowhere"], 'no layer "nowhere" with weights'), ([], "no layer to randomise")):
        with pytest.raises(InputError, match=message):
            model_randomisation(Bag(), lambda model: torch.eye(3), layers=layers)


def test_every_number_is_better_the_way_the_table_says() -> None:
    """Right scores beat wrong ones on each metric, in the declared direction."""
    model, tokens = Bag(), texts([25] * 20)
    true = model.contributions(tokens)
    values, marked = true.sum(1), true > true.quantile(0.8, dim=1, keepdim=True)
    results = []
    for scores in (true, -true.sign() / (true.abs() + 1e-9)):
        parts: list[Any] = list(faithfulness(model, tokens, [scores])[0].values())
        parts += [token_f1(list(scores), list(marked)), precision_at_k(scores, marked), conservation(scores, values)]
        results.append({name: value for part in parts for name, value in part.summary().items()})
    right, wrong = results
    for name, value in right.items():
        assert (value > wrong[name]) == (METRICS[name].better == "higher"), name
    bert = Case("bert", "sdpa", 0).model
    good = model_randomisation(
        bert, lambda m: attribute(m, {"input_ids": texts([20], words=200).inputs["input_ids"]}, 1).scores
    )
    bad = model_randomisation(bert, lambda m: normal(1, 22))
    for name, value in good.summary().items():
        assert METRICS[name].better == "lower"
        assert value < bad.summary()[name]
