"""Several labels of one text, and models that give one number."""

from __future__ import annotations

import copy
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from relprop import Explainer, Explanation
from relprop.errors import InputError, TargetError
from tokenizers_for_tests import _strong, wordpiece

TEXT = "the gorgeous movie was dull"
LABELS = {0: "toxic", 1: "insult", 2: "threat"}
MODELS = Path(os.environ.get("RELPROP_REAL_MODELS", Path(__file__).parents[2] / "shared/models"))


@cache
def explainer(kind: str = "BertForSequenceClassification", **settings: Any) -> Explainer:
    """Made once: tests must leave it as it is."""
    tokenizer = wordpiece()
    config = getattr(hf, kind).config_class(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, pad_token_id=tokenizer.pad_token_id, **settings,
    )  # fmt: skip
    return Explainer(_strong(getattr(hf, kind), config), tokenizer)


def multi_label(kind: str = "BertForSequenceClassification") -> Explainer:
    one = explainer(kind, num_labels=3, problem_type="multi_label_classification")
    one.model.config.id2label = LABELS
    return one


def logits_of(one: Explainer, text: str) -> torch.Tensor:
    with torch.no_grad():
        return one.model(**one.tokenizer(text, return_tensors="pt")).logits[0].double()


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "ElectraForSequenceClassification"])
@pytest.mark.parametrize("method", ["lrp_conservative", "gradient_x_input", "rollout", "occlusion"])
def test_labels_of_one_text_are_steps(kind: str, method: str) -> None:
    one, logits = multi_label(kind), logits_of(multi_label(kind), TEXT)
    found = one(TEXT, target=["toxic", 2, ("insult", "threat")], method=method)
    assert [step.target for step in found.steps] == ["toxic", "threat", "insult - threat"]
    values = [logits[0], logits[2], logits[1] - logits[2]]
    assert [step.value for step in found.steps] == pytest.approx([value.item() for value in values], rel=1e-4, abs=1e-5)
    sure = logits.sigmoid()
    assert [step.probability for step in found.steps] == pytest.approx([sure[k].item() for k in (0, 2, 1)], rel=1e-4)
    assert found.target == "sum of 3 labels"
    assert (found.prediction, found.probability) == (LABELS[int(sure.argmax())], pytest.approx(sure.max().item()))
    for number, target in enumerate(["toxic", 2, ("insult", "threat")]):
        alone = one(TEXT, target=target, method=method)
        assert found.step(number).scores == pytest.approx(alone.scores, rel=1e-3, abs=1e-5)
        assert not alone.steps
    step = found.step(0)
    assert step.prediction == ("toxic" if sure[0] >= 0.5 else "not toxic")
    assert step.probability == pytest.approx(max(sure[0].item(), 1 - sure[0].item()), rel=1e-4)
    assert Explanation.from_json(found.to_json()) == found


def test_a_list_of_texts_has_one_target_or_list_each() -> None:
    several = multi_label()([TEXT, "a plot"], target=["toxic", ["insult", "threat"]], method="gradient_x_input")
    assert [len(one.steps) for one in several] == [0, 2]
    assert several[1].step(1).scores == pytest.approx(
        multi_label()("a plot", target="threat", method="gradient_x_input").scores, rel=1e-3, abs=1e-5
    )


def test_wrong_lists() -> None:
    with pytest.raises(TargetError, match='target "rude" is unknown'):
        multi_label()(TEXT, target=["toxic", "rude"])
    with pytest.raises(TargetError, match="is a list of labels"):
        multi_label()(TEXT, target=[])
    plain = explainer(num_labels=3)
    with pytest.raises(TargetError, match="2 targets for 1 texts"):
        plain(TEXT, target=[0, 1])
    with pytest.raises(TargetError, match='problem_type "multi_label_classification"'):
        plain([TEXT, TEXT], target=[[0, 1], 0])
    assert plain(TEXT, target=[1]).target == "LABEL_1"


def test_a_number_has_no_class_and_no_probability() -> None:
    one = explainer(num_labels=1)
    found = one(TEXT)
    assert found.value == pytest.approx(logits_of(one, TEXT)[0].item(), rel=1e-4)
    assert (found.target, found.prediction, found.probability) == ("the number", "", None)
    assert found.ledger is not None
    assert found.ledger.closes(1e-3)
    for target in (1, "LABEL_1", (0, 0), "good"):
        with pytest.raises(TargetError, match="the model gives one number, no classes: leave out target"):
            one(TEXT, target=target)
    assert one(TEXT, target=0).value == found.value
    named = Explainer(copy.deepcopy(one.model), one.tokenizer)
    named.model.config.id2label = {0: "stars"}
    assert named(TEXT).target == "stars"
    doubled = one(TEXT, target=lambda outputs: 2 * outputs.logits[:, 0])
    assert doubled.value == pytest.approx(2 * found.value, rel=1e-4)


@pytest.mark.parametrize("kind", ["BertForNextSentencePrediction", "MobileBertForNextSentencePrediction"])
def test_next_sentences(kind: str) -> None:
    one = explainer(kind)
    pair = ("a gorgeous movie", "the plot was dull")
    with torch.no_grad():
        logits = one.model(**one.tokenizer(*pair, return_tensors="pt")).logits[0].double()
    for target, value in (("follows", logits[0]), ("does not follow", logits[1]), (1, logits[1])):
        found = one(pair, target=target)
        assert found.value == pytest.approx(value.item(), rel=1e-4, abs=1e-5)
        assert found.target == ("follows" if target == "follows" else "does not follow")
    difference = one(pair, target=("follows", "does not follow"))
    assert difference.target == "follows - does not follow"
    assert difference.value == pytest.approx((logits[0] - logits[1]).item(), rel=1e-4, abs=1e-5)
    likelier = ("follows", "does not follow")[int(logits.argmax())]
    assert (one(pair).target, one(pair).prediction) == (likelier, likelier)
    assert one(pair).probability == pytest.approx(logits.softmax(-1).max().item(), rel=1e-4)
    with pytest.raises(InputError, match="give a pair of texts"):
        one("a movie")
    with pytest.raises(TargetError, match='target "next" is unknown'):
        one(pair, target="next")


@pytest.mark.slow
@pytest.mark.skipif(not (MODELS / "toxicity").is_dir(), reason="needs the toxicity model (RELPROP_REAL_MODELS)")
def test_a_real_model_read_as_multi_label() -> None:
    one = Explainer(str(MODELS / "toxicity"))
    one.model.config.problem_type = "multi_label_classification"
    found = one("you are a stupid idiot", target=["toxic", "not-toxic"], ledger=True)
    toxic, harmless = found.steps
    assert toxic.probability > 0.8 > 0.2 > harmless.probability
    assert {unit.text for unit, _ in found.step(0).top(2)} == {"stupid", "idiot"}
    assert all(step.ledger is not None and step.ledger.closes(1e-3) for step in found.steps)
