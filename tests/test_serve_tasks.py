"""The service answers for every task of texts: pairs, choices, chats, words, masks, labels, numbers."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers

import relprop
from encoders_for_tests import PAIR, SMALL, explainer, tokenizer
from serving_for_tests import Live, patient, serving
from test_choices import CHOICES, TEXT, chooser
from test_words_and_chats import CHAT, storyteller


def tiny(kind: str, **settings: Any) -> relprop.Explainer:
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(tokenizer()), **SMALL)
    for name, value in settings.items():
        setattr(config, name, value)
    return relprop.Explainer(getattr(transformers, f"BertFor{kind}")(copy.deepcopy(config)).eval(), tokenizer())


def explainers() -> dict[str, relprop.Explainer]:
    labels = {0: "toxic", 1: "insult", 2: "threat"}
    return {
        "encoder": explainer(),
        "chooser": relprop.Explainer(chooser(), tokenizer()),
        "chat": storyteller(),
        "masks": tiny("MaskedLM"),
        "several": tiny("SequenceClassification", id2label=labels, problem_type="multi_label_classification"),
        "number": tiny("SequenceClassification", id2label={0: "LABEL_0"}, problem_type="regression"),
        "tagger": tiny("TokenClassification", id2label={0: "O", 1: "B-PER", 2: "B-LOC"}),
        "next": tiny("NextSentencePrediction"),
    }


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving(explainers(), limits=patient()) as live:
        live.wait()
        yield live


def found(live: Live, model: str, instance: Any, **parameters: Any) -> relprop.Explanation:
    answer = live.explain(instance, model=model, **parameters)
    assert answer.status == 200, answer.content
    return relprop.Explanation.from_json(json.dumps(answer.json["explanations"][0]))


CASES = {
    "a pair": ("encoder", list(PAIR), PAIR, {}),
    "a named pair by dot": ("encoder", {"text": PAIR[0], "pair": PAIR[1]}, PAIR, {"target": "dot"}),
    "pairs of tokens": ("encoder", ["good", "bad"], ("good", "bad"), {"method": "bilrp"}),
    "a choice": ("chooser", {"text": TEXT, "choices": CHOICES}, (TEXT, CHOICES), {"target": 1}),
    "a chat": ("chat", {"messages": CHAT}, CHAT, {}),
    "masks": ("masks", "a [MASK] movie with [MASK]", "a [MASK] movie with [MASK]", {}),
    "words": ("tagger", {"words": ["a", "New York"]}, relprop.WordList(["a", "New York"]), {"target": ("a", "B-LOC")}),
    "a number": ("number", "a dull movie", "a dull movie", {}),
    "what follows": ("next", list(PAIR), PAIR, {"target": "follows"}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_service_answers_what_the_library_says(live: Live, case: str) -> None:
    model, instance, given, options = CASES[case]
    answer, own = found(live, model, instance, **options), explainers()[model](given, ledger=False, **options)
    assert (answer.target, answer.method) == (own.target, own.method)
    assert answer.value == pytest.approx(own.value, abs=1e-5)
    assert len(answer.parts) == len(own.parts) or len(answer.parts[0].units) == len(own.part.units)
    assert [part.total for part in answer.parts] == pytest.approx([part.total for part in own.parts], abs=1e-4)


def test_several_labels_at_once(live: Live) -> None:
    answer = found(live, "several", "a dull movie", labels=["toxic", 2])
    assert [step.name for step in answer.steps] == ["toxic", "threat"]
    both = live.explain("a", model="several", labels=[0], target=1)
    assert (both.status, both.error) == (400, 'give either "target" or "labels", not both')
    many = live.explain("a", "b", model="several", labels=[0] * 33)
    assert (many.status, many.error) == (413, "2 instances by 1 methods by 33 labels are 66; at most 64 are taken")


def test_what_the_page_is_told(live: Live) -> None:
    about = {name: live.get(f"/v1/models/{name}").json for name in explainers()}
    kinds = {name: one["kind"] for name, one in about.items()}
    assert kinds == {
        "encoder": "two_texts", "chooser": "choices", "chat": "language", "masks": "masks", "several": "texts",
        "number": "texts", "tagger": "texts", "next": "texts",
    }  # fmt: skip
    assert about["next"]["labels"] == ["follows", "does not follow"]
    assert [name for name, one in about.items() if one["paired"]] == ["next"]
    assert {name: one["at"] for name, one in about.items() if one["at"]} == {"masks": "mask", "tagger": "word"}
    assert [(name, one["mask"]) for name, one in about.items() if "mask" in one] == [("masks", "[MASK]")]
    assert [name for name, one in about.items() if one["several"]] == ["several"]
    methods = live.get("/v1/methods").json["methods"]
    assert [one["name"] for one in methods if one["pairs_only"]] == ["bilrp"]
    similar = live.post("/v1/models/encoder:predict", {"instances": [list(PAIR)]}).json["predictions"][0]
    assert similar["value"] == pytest.approx(explainer()(PAIR).value, abs=1e-6)


@pytest.mark.parametrize(
    ("model", "instance", "words"),
    [
        ("encoder", "alone", 'an instance is ["text", "second text"]'),
        ("chooser", TEXT, 'an instance is {"text": "...", "choices": ["...", "..."]}'),
        ("chooser", {"text": TEXT, "choices": []}, "an instance is"),
        ("chat", {"messages": [{"role": "user", "content": 3}]}, "an instance is a text"),
        ("chat", {"messages": [{"role": "user"}]}, "message 0 of the chat should be"),
        ("several", {"words": ["a", ""]}, "word 1 of the list is empty"),
        ("several", {"messages": CHAT}, "an instance is a text"),
        ("chooser", {"text": "a" * 9_000, "choices": ["b" * 900, "c" * 900]}, "10,800 characters; at most 10,000"),
    ],
)
def test_wrong_instances_have_their_sentence(live: Live, model: str, instance: Any, words: str) -> None:
    answer = live.explain(instance, model=model)
    assert answer.status in (400, 413)
    assert words in answer.error
