"""F-Fidelity against its formula: by hand, by all subsets of units, and through a suite with a fine-tuned judge."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import relprop
from relprop.bench.recipes import Recipe, hide_tokens, train_model
from relprop.errors import InputError, RelpropError
from relprop.metrics import FFidelity, Tokens, f_fidelity, merged
from test_bench_kinds import embedded, suite, worked
from test_bench_recipes import DATA, RECIPE, start
from tokenizers_for_tests import wordpiece

__all__ = ["start"]  # the fixture
HIDDEN = 0
TEXTS = ["a gorgeous witty movie", "dull and lifeless", "not a good film at all"]


class Both(nn.Module):
    """Says class 1 where tokens 7 and 8 are both there."""

    def forward(self, input_ids: Tensor) -> Tensor:
        there = (input_ids == 7).any(1) & (input_ids == 8).any(1)
        return torch.stack([torch.full_like(there, 0.5, dtype=torch.float32), there.float()], 1)


def test_by_hand() -> None:
    """Five units, beta n = 0.5: p is 0.5 and 0.125 with one relevant unit, 1/6 and 1/4 with three."""
    tokens = Tokens({"input_ids": torch.tensor([[7, 8, 3, 4, 5]])}, torch.ones(1, 5), HIDDEN)
    best = [[5.0, 4, 3, 2, 1]]
    (found,) = f_fidelity(Both(), tokens, [best], [1], fractions=(0.2, 0.6), draws=4000)
    assert found.plus[0] == pytest.approx([0.5, 1 - (5 / 6) ** 2], abs=0.03)
    assert found.minus[0] == pytest.approx([0.125, 0], abs=0.03)
    (worst,) = f_fidelity(Both(), tokens, [-np.array(best)], [1], fractions=(0.2, 0.6), draws=4000)
    assert worst.plus[0] == pytest.approx([0, 0], abs=1e-12)
    assert worst.minus[0] == pytest.approx([1 - 0.875**2, 1 - 0.75**2], abs=0.03)
    (capped,) = f_fidelity(Both(), tokens, [best], [1], fractions=(0.2,), draws=4000, alpha=0.25)
    assert capped.plus[0] == pytest.approx([0.25], abs=0.03)
    (wrong,) = f_fidelity(Both(), tokens, [best], [0], fractions=(0.2,), draws=4000)
    assert wrong.plus[0] == pytest.approx([-0.5], abs=0.03)  # hiding makes a wrong answer right
    assert found.summary() == {"f_fidelity_plus": found.plus.mean(), "f_fidelity_minus": found.minus.mean()}


def exact(scores: Tensor, content: Tensor, inputs: dict[str, Tensor], label: int, s: int, rates: Any) -> Any:
    """Both expectations over all subsets of units that may be hidden, the model asked for each."""
    alpha, beta = rates
    model, mask = embedded().model, embedded().tokenizer.mask_token_id
    units = [i for i in scores.argsort(descending=True, stable=True).tolist() if content[i]]

    def right(hidden: list[int]) -> float:
        ids = inputs["input_ids"].clone()
        ids[0, hidden] = mask
        with torch.no_grad():
            return float(model(**{**inputs, "input_ids": ids}).logits.argmax() == label)

    results = []
    for among in (units[:s], units[s:]):
        p = min(alpha, beta * len(units) / len(among))
        expected = 0.0
        for chosen in product([False, True], repeat=len(among)):
            weight = np.prod([p if one else 1 - p for one in chosen])
            expected += weight * right([unit for unit, one in zip(among, chosen, strict=True) if one])
        results.append(right([]) - expected)
    return results


def hidden_texts(texts: list[str]) -> tuple[Tokens, Tensor]:
    reader = embedded().reader
    rows = [reader.read(text) for text in texts]
    tokens = reader.hidden(rows, reader.inputs(rows), "mask")
    return tokens, torch.randn(tokens.content.shape, generator=torch.Generator().manual_seed(len(texts)))


def test_means_of_draws_are_expectations_over_all_subsets() -> None:
    """With four standard errors of room, on a real model."""
    rates, draws = (0.6, 0.3), 2000
    for text, fraction in zip(TEXTS, (0.5, 0.34, 0.25), strict=True):
        tokens, scores = hidden_texts([text])
        (found,) = f_fidelity(
            embedded().model, tokens, [scores], [1], alpha=rates[0], beta=rates[1], draws=draws, fractions=(fraction,)
        )
        count = int(tokens.hideable.sum())
        inputs = {name: values for name, values in tokens.inputs.items() if isinstance(values, Tensor)}
        wanted = exact(scores[0], tokens.hideable[0], inputs, 1, int(np.ceil(fraction * count - 1e-9)), rates)
        assert [found.plus[0, 0], found.minus[0, 0]] == pytest.approx(wanted, abs=4 * 0.5 / draws**0.5), text


def test_draws_depend_on_seed_and_text_alone() -> None:
    model = embedded().model
    tokens, scores = hidden_texts(TEXTS)
    (whole,) = f_fidelity(model, tokens, [scores], draws=5)
    parts = []
    for i, text in enumerate(TEXTS):
        alone, _ = hidden_texts([text])
        parts += f_fidelity(model, alone, [scores[i : i + 1, : alone.content.shape[1]]], draws=5)
    joined: FFidelity = merged(parts)
    assert (joined.plus == whole.plus).all()
    assert (joined.minus == whole.minus).all()
    first, second = f_fidelity(model, tokens, [scores, scores], draws=5)
    assert (first.plus == second.plus).all()
    (other,) = f_fidelity(model, tokens, [scores], draws=5, seed=1)
    assert (other.plus != whole.plus).any() or (other.minus != whole.minus).any()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alpha": 0.0}, "alpha and beta are in"),
        ({"beta": 1.5}, "alpha and beta are in"),
        ({"draws": 0}, "draws 1 or more"),
        ({"fractions": (0.5, 1.0)}, "fractions lie between 0 and 1"),
        ({"labels": [7]}, "labels run from 7 to 7"),
    ],
)
def test_mistakes(given: dict[str, Any], message: str) -> None:
    tokens, scores = hidden_texts(TEXTS[:1])
    with pytest.raises(InputError, match=message):
        f_fidelity(embedded().model, tokens, [scores], **given)


# The fine-tuned model


def test_training_hides_content_at_random() -> None:
    tokenizer = wordpiece()
    ids = torch.tensor(tokenizer(["good bad very film"] * 500)["input_ids"])
    torch.manual_seed(0)
    hidden = hide_tokens(tokenizer, ids, 0.25, "unk")
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    assert (hidden[special] == ids[special]).all()
    changed = hidden != ids
    assert (hidden[changed] == tokenizer.unk_token_id).all()
    assert changed[~special].float().mean().item() == pytest.approx(0.25, abs=0.04)


def judged(begin: str, hide: float, **more: Any) -> Any:
    """A suite whose model and judge are trained on the spot."""
    recipe = {"start": begin, "data": "reviews", "epochs": 6, "rate": 3e-3, "batch_size": 8, "max_length": 16}
    tables = {
        "metrics": ["aopc", "f_fidelity_plus", "f_fidelity_minus"],
        "methods": ["random", "lrp_conservative"],
        "sample": 6,
        "data": {"reviews": {"title": "", "text": "text", "label": "label", "classes": list(DATA.classes)}
                 | {"files": dict(DATA.files)}},
        "recipe": {
            "own": recipe,
            "judge": {**recipe, "start": "recipe:own", "epochs": 1, "hide": hide, "replacement": "unk"},
        },
    }  # fmt: skip
    task = {"model": "recipe:own", "data": "reviews", "explain": "label", "replacement": "unk"}
    return suite(tables, **{**task, "options": {"judge": "recipe:judge", "draws": 10}, **more})


def test_a_suite_asks_the_judge(start: str, tmp_path: Path) -> None:
    found = worked(judged(start, 0.2), tmp_path)
    own = {**vars(RECIPE), "name": "own", "start": start, "data": "reviews"}
    first, _ = train_model(Recipe(**own), DATA, tmp_path, start)
    judge = Recipe(**{**own, "name": "judge", "start": "recipe:own", "epochs": 1, "hide": 0.2, "replacement": "unk"})
    folder, facts = train_model(judge, DATA, tmp_path, str(first))
    assert (facts["hide"], facts["replacement"]) == (0.2, "unk")
    explained, asked = relprop.Explainer(str(first)), relprop.Explainer(str(folder))
    examples = DATA.examples("test", tmp_path)
    for k, place in enumerate(found.examples):
        rows = [explained.reader.read(examples[place].text)]
        tokens = explained.reader.hidden(rows, explained.reader.inputs(rows), "unk")
        label = examples[place].label
        scores = relprop.attribute(explained.model, dict(tokens.inputs), label, "lrp_conservative").scores
        (wanted,) = f_fidelity(asked.model, tokens, [scores], [label], beta=0.2, draws=10)
        assert found.scores["lrp_conservative"]["f_fidelity_plus"][k] == pytest.approx(wanted.plus.mean())
        assert found.scores["lrp_conservative"]["f_fidelity_minus"][k] == pytest.approx(wanted.minus.mean())
        assert found.curves["lrp_conservative"]["f_fidelity_plus"].values[k] == pytest.approx(wanted.plus[0])
    for hide, more, message in (
        (0.0, {}, "fine-tuned with tokens hidden at random"),
        (0.2, {"replacement": "mask"}, 'the judge learned from "unk" in place of hidden tokens'),
        (0.2, {"metrics": ["aopc"]}, "need a judge, and only they"),
        (0.2, {"options": {}}, "need a judge, and only they"),
        (0.2, {"options": {"juge": "recipe:judge"}}, 'option of faithfulness "juge" is unknown'),
        (0.2, {"model": "sentiment"}, "another vocabulary or other classes"),
    ):
        with pytest.raises(RelpropError, match=message):
            worked(judged(start, hide, **more), tmp_path)
