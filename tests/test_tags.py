"""Labels of words: which token is read, what an entity is, and every form of the target."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from typer.testing import CliRunner

import relprop.methods
from language_models import words
from models import tiny
from relprop import Explainer, Explanation
from relprop.attribution import attribute
from relprop.cli.app import app
from relprop.cli.targets import label_target
from relprop.errors import InputError, ModelError, RelpropWarning, TargetError
from relprop.registry import METHODS
from relprop.serve.answers import flat_explanation
from relprop.serve.body import ExplainRequest, Parameters
from relprop.serve.models import ServedModel
from relprop.targets import SumOf, TokenAt
from relprop.tasks.tags import TokenClass, _spans, _words
from tokenizers_for_tests import _strong, saved, wordpiece

LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}
TEXT = "the gorgeous movie was playing unbelievably dull"
ARCHITECTURES = (
    "BertForTokenClassification",
    "DistilBertForTokenClassification",
    "DebertaV2ForTokenClassification",
    "XLNetForTokenClassification",
    "ModernBertForTokenClassification",
    "GPT2ForTokenClassification",
    "LlamaForTokenClassification",
    "T5ForTokenClassification",
)


def tagger(labels: dict[int, str] = LABELS) -> Any:
    tokenizer = wordpiece()
    config = hf.BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, pad_token_id=tokenizer.pad_token_id, id2label=labels,
    )  # fmt: skip
    return _strong(hf.BertForTokenClassification, config), tokenizer


@cache
def explainer() -> Explainer:
    """Made once: tests must leave it as it is."""
    return Explainer(*tagger())


def saying(by_token: dict[str, str], labels: dict[int, str] = LABELS) -> Explainer:
    """A tagger whose labels are a matter of the token alone."""
    model, tokenizer = tagger(labels)
    index = {name: number for number, name in labels.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        size = model.config.hidden_size
        for number, label in enumerate(labels):
            model.classifier.weight[number, label] = 1.0
        for norm in (module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)):
            norm.weight.fill_(1.0)
        table = model.bert.embeddings.word_embeddings.weight
        assert size >= len(labels)
        for token, number in tokenizer.get_vocab().items():
            table[number, index[by_token.get(token, "O")]] = 1.0
    return Explainer(model, tokenizer)


def logits_of(one: Explainer, text: str) -> torch.Tensor:
    with torch.no_grad():
        return one.model(**one.tokenizer(text, return_tensors="pt")).logits[0].double()


def row_of(text: str, word: str) -> int:
    """The first token of a word."""
    encoding = wordpiece()(text)
    return int(encoding.char_to_token(text.index(word)))


# The number


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_value_is_the_label_at_the_word_and_a_batch_is_one_by_one(architecture: str) -> None:
    model, _ = tiny(architecture)
    tokenizer = words()
    tokenizer.padding_side = "left" if "XLNet" in architecture else "right"
    one = Explainer(model, tokenizer)
    assert isinstance(one.task, TokenClass)
    texts, targets = ["w20 w31 w42 w53", "w31 w60", "w70 w31 w44"], [("w31", 1), ("w31", 0), ("w31", (1, 0))]
    found = one(texts, target=targets, method=["lrp_conservative", "gradient_x_input"])
    for text, target, methods in zip(texts, targets, found, strict=True):
        with torch.no_grad():
            row = model(**one.inputs([text])).logits[0, text.split().index("w31")]
        label = target[1]
        value = (row[1] - row[0] if label == (1, 0) else row[label]).item()
        for explained in methods:
            assert explained.value == pytest.approx(value, rel=1e-6)
            alone = one(text, target=target, method=explained.method, ledger=False)
            assert explained.scores == pytest.approx(alone.scores, rel=1e-6, abs=1e-9)
            assert any(explained.scores)


@pytest.mark.parametrize("method", METHODS.names())
def test_every_method_explains_an_entity_of_two_words(method: str) -> None:
    """Its scores are those of its words' labels, added; a method reads the rows of these words."""
    one = explainer()
    found = one(TEXT, target=("movie was", "PER"), method=method)
    logits = logits_of(one, TEXT)
    rows = [row_of(TEXT, "movie"), row_of(TEXT, "was")]
    best = [max((1, 2), key=lambda label, row=row: logits[row, label]) for row in rows]
    assert found.value == pytest.approx(
        sum(logits[row, label].item() for row, label in zip(rows, best, strict=True)), rel=1e-5
    )
    inputs, options = one.inputs([TEXT]), {}
    if "baseline" in METHODS[method].options or "replacement" in METHODS[method].options:
        rows_read = [one.reader.read(TEXT)]
        options = one.reader.options(METHODS[method].options, {}, rows_read, inputs)
    each = [
        attribute(one.model, inputs, TokenAt(row, label), method, **options)
        for row, label in zip(rows, best, strict=True)
    ]
    total = sum(each[k].scores for k in range(2))[0].tolist()
    if method != "random":
        assert found.scores == pytest.approx(total, rel=1e-3, abs=1e-4)


def test_a_sum_is_told_by_its_terms() -> None:
    target = SumOf((TokenAt(1, 2), TokenAt(3, 4)))
    logits = torch.arange(50.0).reshape(1, 10, 5)
    assert target(logits).tolist() == [7 + 19]
    assert (target.__name__, target.terms) == ("2 + 4", ((1, TokenAt(1, 2)), (1, TokenAt(3, 4))))


# What is asked


def test_forms_of_the_target() -> None:
    one, logits = explainer(), logits_of(explainer(), TEXT)
    playing = row_of(TEXT, "playing")
    start = TEXT.index("playing")
    for target in (
        ("playing", "B-LOC"),
        ("playing", 3),
        ((start, start + 7), "b-loc"),
        ((start + 2, start + 3), "B-LOC"),
    ):
        found = one(TEXT, target=target)
        assert found.target == "B-LOC at 'playing'"
        assert found.value == pytest.approx(logits[playing, 3].item(), rel=1e-5)
        assert found.ledger.closes(1e-3)
    for target in (("playing", ("B-LOC", "O")), ("playing", "B-LOC", "O")):
        difference = one(TEXT, target=target)
        assert difference.target == "B-LOC - O at 'playing'"
        assert difference.value == pytest.approx((logits[playing, 3] - logits[playing, 0]).item(), rel=1e-5)
    predicted = one(TEXT, target=("playing", None))
    best = int(logits[playing].argmax())
    assert predicted.target == f"{LABELS[best]} at 'playing'"
    assert predicted.prediction == LABELS[best]
    assert predicted.probability == pytest.approx(logits[playing].softmax(-1)[best].item(), rel=1e-5)


def test_a_label_alone_is_read_where_it_is_strongest() -> None:
    """Among the first tokens of words: neither later pieces nor special tokens count."""
    one, logits = explainer(), logits_of(explainer(), TEXT)
    rows = [row_of(TEXT, word) for word in TEXT.split()]
    for label, name in LABELS.items():
        found = one(TEXT, target=name)
        row = max(rows, key=lambda row, label=label: logits[row, label])
        assert found.value == pytest.approx(logits[row, label].item(), rel=1e-5)
        assert found.target == f"{name} at {TEXT.split()[rows.index(row)]!r}"
    both = one(TEXT, target="LOC")
    assert both.value == pytest.approx(max(logits[row, label].item() for row in rows for label in (3, 4)), rel=1e-5)


def test_a_function_of_the_outputs_is_a_target_too() -> None:
    found = explainer()(TEXT, target=lambda outputs: outputs.logits[:, 2, 1])
    assert found.value == pytest.approx(logits_of(explainer(), TEXT)[2, 1].item(), rel=1e-5)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (("Berlin", "B-LOC"), "the word 'Berlin' is not in the text; spell it as the text does"),
        (("playing", "B-ORG"), 'label "B-ORG" is unknown; did you mean'),
        (("playing", 5), "target 5 is out of range: the model has classes 0 to 4"),
        ("playing", "'playing' is a word of the text, and its label is missing: a target is a word and its label"),
        ("Berlin", 'label "Berlin" is unknown'),
        (((3, 4), "LOC"), r"no token that the model reads lies at \(3, 4\)"),
        (((30, 400), "LOC"), "characters 30 to 400 are no word: the text has 48"),
        (((9, 4), "LOC"), "characters 9 to 4 are no word"),
        ((1, 2), "a target is a word and its label.*got the word 1"),
        (3.5, "a target is a word and its label.*got 3.5"),
        (("playing", ("O", "O", "O")), "a difference takes two labels, got 3"),
        (("playing", 3.5), "got the label 3.5"),
        (("", "LOC"), "the word '' is not in the text"),
    ],
)
def test_wrong_targets_are_one_sentence(target: Any, says: str) -> None:
    with pytest.raises(TargetError, match=says) as raised:
        explainer()(TEXT, target=target)
    assert "\n" not in str(raised.value)


def test_a_word_that_stands_twice_is_told_apart_by_its_characters() -> None:
    text = "good movie good plot"
    with pytest.raises(TargetError, match=r"'good' stands 2 times in the text: .*\(0, 4\), \(11, 15\)"):
        explainer()(text, target=("good", "B-PER"))
    second = explainer()(text, target=((11, 15), "B-PER"))
    assert second.target == "B-PER at 'good' (11-15)"
    assert second.value == pytest.approx(logits_of(explainer(), text)[3, 1].item(), rel=1e-5)


def test_an_error_of_a_list_names_its_text() -> None:
    with pytest.raises(TargetError, match="text 1 of the list: the word 'movie' is not in the text"):
        explainer()(["a movie", "a plot"], target=("movie", "LOC"))


def test_other_models_of_that_name_and_slow_tokenizers_are_refused() -> None:
    class OneRowForTokenClassification(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(200, 5)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return (self.table(input_ids) * attention_mask[..., None]).sum(1)

    with pytest.raises(ModelError, match="scores for each of 4 tokens, and gave logits of shape"):
        Explainer(OneRowForTokenClassification(), wordpiece())("a movie")
    row = explainer().reader.read("a movie")
    placeless = type(row)(row.ids, tuple(relprop.Unit(unit.text, special=unit.special) for unit in row.units), None)
    with pytest.raises(InputError, match="labels of words need a fast tokenizer"):
        _words(placeless)
    with pytest.raises(InputError, match="one class per text, and this model has labels per token"):
        explainer().evaluate(["a movie"], methods=["random"])


# Entities


SCHEMES = {
    "BIO": (["B-LOC", "I-LOC", "O", "B-PER", "B-PER"], [("LOC", [0, 1]), ("PER", [3]), ("PER", [4])]),
    "inside only": (["I-LOC", "I-LOC", "I-PER", "O", "I-PER"], [("LOC", [0, 1]), ("PER", [2]), ("PER", [4])]),
    "BIOES": (["B-LOC", "E-LOC", "S-LOC", "S-PER", "O"], [("LOC", [0, 1]), ("LOC", [2]), ("PER", [3])]),
    "BILOU": (["U-LOC", "B-LOC", "I-LOC", "L-LOC", "O"], [("LOC", [0]), ("LOC", [1, 2, 3])]),
    "no positions": (["LOC", "LOC", "O", "LOC", "PER"], [("LOC", [0, 1]), ("LOC", [3]), ("PER", [4])]),
    "none": (["O"] * 5, []),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_labels_become_entities(scheme: str) -> None:
    labels, expected = SCHEMES[scheme]
    found = _words(explainer().reader.read("a movie is not dull"))
    assert list(_spans(found, labels, True)) == expected


def test_parts_of_speech_are_one_word_each() -> None:
    found = _words(explainer().reader.read("a movie is not dull"))
    labels = ["DET", "NOUN", "NOUN", "ADV", "ADJ"]
    assert [span for _, span in _spans(found, labels, False)] == [[0], [1], [2], [3], [4]]


def test_an_entity_does_not_go_on_in_the_second_text() -> None:
    found = _words(explainer().reader.read(("a movie", "a plot")))
    assert list(_spans(found, ["O", "I-LOC", "I-LOC", "O"], True)) == [("LOC", [1]), ("LOC", [2])]


def test_every_entity_has_its_step() -> None:
    """ "good play|##ing" is a person: the second piece of "playing" does not count, whatever its label."""
    one = saying({"good": "B-PER", "play": "I-PER", "##ing": "B-LOC", "film": "B-LOC"})
    text = "the film was not good playing and good"
    found = one(text, method="gradient_x_input")
    assert [step.target for step in found.steps] == ["LOC at 'film'", "PER at 'good playing'", "PER at 'good' (34-38)"]
    assert [step.name for step in found.steps] == ["B-LOC", "PER", "B-PER"]
    assert (found.target, found.prediction) == ("sum of 3 entities", ", ".join(step.target for step in found.steps))
    logits = logits_of(one, text)
    rows = {word: row_of(text, word) for word in ("film", "good", "playing")}
    expected = [logits[rows["film"], 3], logits[rows["good"], 1] + logits[rows["playing"], 2], logits[-2, 1]]
    assert [step.value for step in found.steps] == pytest.approx([one.item() for one in expected], rel=1e-5)
    chances = logits.softmax(-1)
    assert found.steps[1].probability == pytest.approx((chances[rows["good"], 1] * chances[rows["playing"], 2]).item())
    assert found.value == pytest.approx(sum(step.value for step in found.steps))
    assert found.matrix.shape == (3, len(found.units))
    assert found.scores == pytest.approx(found.matrix.sum(0).tolist())
    named = one(text, target=("good playing", "PER"), method="gradient_x_input")
    assert found.step(1).scores == pytest.approx(named.scores)
    assert found.step(0).target == "LOC at 'film'"
    assert found.step(0).prediction == "B-LOC"
    with pytest.raises(InputError, match="step 3 is out of range: there are 3"):
        found.step(3)


def test_no_entity_is_said() -> None:
    one = saying({})
    with pytest.warns(RelpropWarning, match="finds no entity in 'the film was dull': the likeliest label .* is \"O\""):
        found = one("the film was dull")
    assert (found.target, found.prediction, found.value, found.steps) == ("(no entity)", "(no entity)", 0.0, ())
    assert not any(found.scores)
    found.show()
    with pytest.warns(RelpropWarning, match="finds no entity"):
        several = saying({"good": "B-PER"})(["the film was dull", "a good film"], method=["random", "gradient_x_input"])
    assert [[len(each.steps) for each in methods] for methods in several] == [[0, 0], [1, 1]]


def test_steps_are_merged_drawn_and_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = saying({"good": "B-PER", "play": "I-PER", "film": "B-LOC"})
    found = one("the film was not good playing", method="gradient_x_input")
    merged = found.words()
    assert [unit.text for unit in merged.units][-2:-1] == ["playing"]
    assert merged.steps == found.steps
    assert merged.matrix.sum(1) == pytest.approx(found.matrix.sum(1))
    plain = one("the film was not good playing", method="gradient_x_input", special="drop")
    assert not any(unit.special for unit in plain.units)
    assert len(plain.steps) == 2
    assert Explanation.from_json(found.to_json()) == found
    found.show()
    shown = capsys.readouterr().out
    assert "LOC at 'film'" in shown
    assert "PER at 'good playing'" in shown
    for name in ("x.png", "x.html", "x.svg"):
        found.save(tmp_path / name)
    assert (tmp_path / "x.html").read_text().count("PER at") >= 1
    assert not found.generated
    assert found.continuation == ""


def test_a_ledger_for_each_step() -> None:
    found = saying({"good": "B-PER", "film": "B-LOC"})("the film was good", ledger=True)
    assert all(step.ledger is not None and step.ledger.value == pytest.approx(step.value) for step in found.steps)


# The command line and the service


def test_targets_of_the_command_line() -> None:
    for given, expected in (
        ("B-LOC", "B-LOC"),
        ("Berlin,B-LOC", ("Berlin", "B-LOC")),
        ("16:22,B-LOC", ((16, 22), "B-LOC")),
        ("Berlin,B-LOC,O", ("Berlin", ("B-LOC", "O"))),
        ("Washington, D.C.,LOC", ("Washington, D.C.", "LOC")),
    ):
        assert label_target(given, LABELS) == expected


def test_the_command_line(tmp_path: Path) -> None:
    one = saying({"good": "B-PER", "film": "B-LOC"})
    folder = str(saved(tmp_path / "tagger", one.model, one.tokenizer))
    run = CliRunner().invoke(app, ["explain", "the good film", "--model", folder, "--target", "film,B-LOC,O"])
    assert run.exit_code == 0
    assert "B-LOC - O at 'film'" in run.output
    run = CliRunner().invoke(app, ["explain", "the good film", "--model", folder, "--json", "-"])
    assert [step["target"] for step in json.loads(run.stdout)["steps"]] == ["PER at 'good'", "LOC at 'film'"]


def test_the_service() -> None:
    served = ServedModel("tagger", saying({"good": "B-PER", "film": "B-LOC"}))
    served.load()
    ((found,),) = served.answer(ExplainRequest(("gradient_x_input",)), ["the good film"], [None])
    assert isinstance(found, Explanation)
    flat = flat_explanation(found)
    assert Explanation.from_json(json.dumps(flat)) == found
    (predicted,) = served.answer(ExplainRequest(()), ["the good film"], [None])
    assert predicted["prediction"] == "PER at 'good', LOC at 'film'"
    for target in (["film", "B-LOC"], [[9, 13], "B-LOC"], ["film", ["B-LOC", "O"]]):
        parameters = Parameters.model_validate_json(json.dumps({"target": target}))
        ((one,),) = served.answer(ExplainRequest(("random",)), ["the good film"], [parameters.target])
        assert one.target.endswith("at 'film'")
