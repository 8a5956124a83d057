"""Masked language models: which mask is read, and every form of the target."""

from __future__ import annotations

import json
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from typer.testing import CliRunner

import relprop.methods  # noqa: F401  (fills the registry)
from models import tiny
from relprop import Explainer, Explanation
from relprop.cli.app import app
from relprop.errors import InputError, TargetError
from relprop.registry import METHODS
from relprop.serve.body import ExplainRequest
from relprop.serve.models import ServedModel
from tokenizers_for_tests import _strong, roberta_style, saved, wordpiece

ONE, TWO = "the movie was [MASK]", "the [MASK] was [MASK] and witty"
ARCHITECTURES = ("BertForMaskedLM", "DistilBertForMaskedLM", "ModernBertForMaskedLM", "DebertaV2ForMaskedLM")
MODELS = Path(os.environ.get("RELPROP_REAL_MODELS", Path(__file__).parents[2] / "shared/models"))


def small(tokenizer: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": tokenizer.pad_token_id,
    }  # fmt: skip


@cache
def explainer() -> Explainer:
    """Made once: tests must leave it as it is."""
    tokenizer = wordpiece()
    return Explainer(_strong(hf.BertForMaskedLM, hf.BertConfig(**small(tokenizer))), tokenizer)


def at_masks(one: Explainer, text: str) -> torch.Tensor:
    """Logits [masks, vocabulary]."""
    given = one.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        return one.model(**given).logits[given["input_ids"] == one.tokenizer.mask_token_id].double()


def token(word: str) -> int:
    return int(explainer().tokenizer.convert_tokens_to_ids(word))


def test_several_masks_have_a_step_each() -> None:
    one, logits = explainer(), at_masks(explainer(), TWO)
    found = one(TWO)
    best = logits.argmax(1).tolist()
    names = [repr(one.tokenizer.decode([index])) for index in best]
    assert [step.tokens for step in found.steps] == [(index,) for index in best]
    assert [step.target for step in found.steps] == [f"{name} at [MASK] {k}" for k, name in enumerate(names)]
    assert [step.value for step in found.steps] == pytest.approx(logits.max(1).values.tolist(), rel=1e-5)
    assert [step.probability for step in found.steps] == pytest.approx(logits.softmax(1).max(1).values.tolist())
    assert (found.target, found.prediction) == ("sum of 2 masks", ", ".join(names))
    assert found.value == pytest.approx(sum(step.value for step in found.steps))
    for number in range(2):
        alone = one(TWO, target=(number, None))
        assert found.step(number).scores == pytest.approx(alone.scores, rel=1e-4, abs=1e-6)
        assert found.step(number).target == alone.target
        assert (found.step(number).prediction, alone.prediction) == (names[number], names[number])
        second = logits[number].topk(2).indices[1]
        assert found.steps[number].runner_up == repr(one.tokenizer.decode([int(second)]))
    assert Explanation.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("target", "expected"),
    [("good", [("good", None)] * 2), (("good", "bad"), [("good", "bad")] * 2), ((1, "good"), ("good", None)),
     ((0, ("good", "bad")), ("good", "bad"))],
)  # fmt: skip
def test_a_word_at_each_mask_or_at_one(target: Any, expected: Any) -> None:
    logits = at_masks(explainer(), TWO)

    def value(row: int, word: str, other: str | None) -> float:
        against = 0.0 if other is None else logits[row, token(other)].item()
        return float(logits[row, token(word)].item() - against)

    found = explainer()(TWO, target=target)
    if isinstance(expected, list):
        values = [value(row, *pair) for row, pair in enumerate(expected)]
        assert [step.value for step in found.steps] == pytest.approx(values, rel=1e-4, abs=1e-5)
    else:
        assert found.value == pytest.approx(value(target[0], *expected), rel=1e-4, abs=1e-5)
        assert not found.steps


def test_the_number_of_the_only_mask_may_be_given() -> None:
    """Not taken for the id of a token: (0, "good") is no difference of [PAD] and "good"."""
    assert explainer()(ONE, target=(0, "good")).value == pytest.approx(explainer()(ONE, target="good").value, rel=1e-6)
    pair = explainer()(ONE, target=(token("good"), token("bad")))
    assert pair.target == "'good' - 'bad'"


@pytest.mark.parametrize("method", METHODS.names())
def test_methods_and_batches(method: str) -> None:
    """Texts with one mask and with several together give what each gives alone."""
    texts, targets = [TWO, ONE, "a [MASK] plot"], ["good", None, "dull"]
    together = explainer()(texts, target=targets, method=method, ledger=False)
    for text, target, found in zip(texts, targets, together, strict=True):
        alone = explainer()(text, target=target, method=method, ledger=False)
        assert [step.target for step in found.steps] == [step.target for step in alone.steps]
        assert found.value == pytest.approx(alone.value, rel=1e-4, abs=1e-5)
        if method not in ("random", "shapley", "kernel_shap"):
            assert found.scores == pytest.approx(alone.scores, rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architectures(architecture: str) -> None:
    model, _ = tiny(architecture)
    one = Explainer(model, _words_with_mask())
    found = one("w20 <mask> w22 <mask>", target="w30")
    given = one.inputs(["w20 <mask> w22 <mask>"])
    with torch.no_grad():
        logits = model(**given).logits[0][given["input_ids"][0] == one.tokenizer.mask_token_id]
    assert [step.value for step in found.steps] == pytest.approx(logits[:, 30].tolist(), rel=1e-6)


def _words_with_mask() -> Any:
    from language_models import words

    tokenizer = words()
    tokenizer.mask_token = "x5"
    tokenizer.add_special_tokens({"mask_token": "x5"})
    return _Spelt(tokenizer)


class _Spelt:
    """A tokenizer whose mask is written <mask>."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __call__(self, text: str, **options: Any) -> Any:
        return self._inner(text.replace("<mask>", "x5"), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize(
    ("text", "target", "says"),
    [
        ("the movie was good", None, r"the text has no mask: write \[MASK\] in place of the word to explain"),
        (TWO, (2, "good"), r"the text has 2 masks, 0 to 1: target=\(number, token\) names one of them"),
        (ONE, (1, "good"), "the text has one mask, number 0"),
        (TWO, "good movie", "target 'good movie' is 2 tokens; a masked-token target is one"),
        (ONE, "✗", "target '✗' is no token that the model knows"),
        (TWO, (0, "✗"), "target '✗' is no token that the model knows"),
        (TWO, 9999, "target 9999 is out of range"),
        (TWO, ("good", "bad", "dull"), "a difference takes two targets, got 3"),
    ],
)
def test_wrong_inputs_are_one_sentence(text: str, target: Any, says: str) -> None:
    with pytest.raises((InputError, TargetError), match=says):
        explainer()(text, target=target)


def test_the_tokenizers_own_mask_is_told() -> None:
    tokenizer = roberta_style(40)
    model = _strong(hf.RobertaForMaskedLM, hf.RobertaConfig(**small(tokenizer)))
    with pytest.raises(InputError, match="text 1 of the list: the text has no mask: write <mask> in place"):
        Explainer(model, tokenizer)(["a <mask> film", "a good film"])
    with pytest.raises(InputError, match="a masked language model reads masks as questions"):
        explainer().evaluate([ONE], methods=["random"])


def test_nothing_is_warned_of_where_the_mask_may_stand() -> None:
    """Whether tokens enter a model elsewhere is tried by exchanging two: never the mask, which is looked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explainer()("a [MASK] movie", target="good")
        explainer()(["a [MASK] movie", "the [MASK] movie"], target=["good", None])


def test_the_unknown_token_itself_may_be_asked_for() -> None:
    found = explainer()(ONE, target="[UNK]")
    assert found.value == pytest.approx(at_masks(explainer(), ONE)[0, token("[UNK]")].item(), rel=1e-4, abs=1e-5)


def test_the_command_line(tmp_path: Path) -> None:
    folder = str(saved(tmp_path / "masked", explainer().model, explainer().tokenizer))
    run = CliRunner().invoke(app, ["explain", TWO, "--model", folder, "--target", "1,good", "--json", "-"])
    assert json.loads(run.stdout)["target"] == "'good' at [MASK] 1"
    run = CliRunner().invoke(app, ["explain", "the movie", "--model", folder])
    assert isinstance(run.exception, InputError)
    assert "write [MASK] in place of the word" in str(run.exception)


def test_the_service_predicts_texts_of_one_mask_and_of_several() -> None:
    served = ServedModel("masked", explainer())
    served.load()
    answers = served.answer(ExplainRequest(()), [ONE, TWO, ONE], [None] * 3)
    expected = [explainer()(text).prediction for text in (ONE, TWO, ONE)]
    assert [one["prediction"] for one in answers] == expected


@pytest.mark.slow
@pytest.mark.skipif(not (MODELS / "antiberty").is_dir(), reason="needs AntiBERTy (RELPROP_REAL_MODELS)")
def test_a_real_masked_language_model() -> None:
    """A residue of the framework that hardly varies: the model knows it, and the ledger closes."""
    one = Explainer(str(MODELS / "antiberty"))
    chain = "E V Q L V E S G G G L V Q P G G S L R L S [MASK] A A S G F T F S"
    found = one(chain)
    assert found.prediction == "'C'"
    assert found.probability is not None
    assert found.probability > 0.9
    assert found.ledger is not None
    assert found.ledger.closes(1e-3)
    assert one(chain, target=("C", "S")).value > 0
