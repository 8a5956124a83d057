"""The embedded model: small, plain, right about plain sentences, and explained by the words that matter."""

from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification

import relprop
from relprop.embedded import EMBEDDED

FOLDER = EMBEDDED["sentiment"]


def test_it_is_small_and_plain() -> None:
    """At most 8 MB, safetensors, and loaded by transformers alone, in single precision."""
    assert sum(path.stat().st_size for path in Path(FOLDER).iterdir()) <= 8_000_000
    model = AutoModelForSequenceClassification.from_pretrained(FOLDER)
    assert type(model) is BertForSequenceClassification
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.float32"}


@pytest.mark.parametrize(
    ("text", "label", "word"),
    [
        ("a gorgeous, witty, seductive movie.", "positive", "gorgeous"),
        ("a dull, lifeless film.", "negative", "dull"),
        ("one of the best films of the year", "positive", "best"),
        ("what a waste of time and money", "negative", "waste"),
        ("the plot is boring", "negative", "boring"),
        ("I loved it!", "positive", "loved"),
    ],
)
@pytest.mark.parametrize("method", ["lrp_ah_ln", "lrp_conservative"])
def test_the_word_that_matters_comes_first(text: str, label: str, word: str, method: str) -> None:
    explanation = relprop.explain(text, method=method, special="drop")
    assert explanation.prediction == explanation.target == label
    best = max(zip(explanation.words().scores, explanation.words().units, strict=True), key=lambda pair: pair[0])[1]
    assert best.text == word


def test_the_other_class_is_explained_by_the_other_words() -> None:
    """A mixed sentence: each class is supported by its own word and opposed by the other's."""
    text = "the acting is terrible but i loved every minute"
    for target, own, other in (("positive", "loved", "terrible"), ("negative", "terrible", "loved")):
        scores = {unit.text: score for unit, score in relprop.explain(text, target=target).top(20)}
        assert scores[own] > 0 > scores[other]


def test_its_books_close() -> None:
    ledger = relprop.explain("a gorgeous, witty, seductive movie.", method="lrp_conservative").ledger
    assert ledger.closes(1e-5)
    assert ledger.inputs + ledger.biases + ledger.constants == pytest.approx(ledger.value, rel=1e-5)


def test_any_text_can_be_read() -> None:
    """Rare words come in pieces; only characters beyond ASCII may be unknown."""
    units = relprop.explain("Unquestionably zany! 100% ~ @#$ qwxz").units
    assert "[UNK]" not in {unit.text for unit in units}
    assert "".join(unit.text for unit in units if not unit.special) == "Unquestionablyzany!100%~@#$qwxz"


def test_the_language_model_reads_any_text_and_tells_stories() -> None:
    """Plain files of at most 10 MB, single precision; names stay whole, what is unknown comes in bytes."""
    assert max(path.stat().st_size for path in EMBEDDED["stories"].iterdir()) < 10_000_000
    explainer = relprop.Explainer("stories")
    assert {str(parameter.dtype) for parameter in explainer.model.parameters()} == {"torch.float32"}
    told = explainer("Once upon a time, there was a little girl named Lily. She loved to play")
    assert told.prediction == "'outside'"
    assert told.ledger.closes(1e-4)
    text = "Żółw said: qwxz 😀!"
    ids = explainer.tokenizer(text)["input_ids"]
    assert explainer.tokenizer.unk_token_id not in ids
    assert explainer.tokenizer.decode(ids, skip_special_tokens=True) == text
