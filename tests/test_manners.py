"""How relprop behaves in a Python session: what it takes, what it prints, and what it says to a slip of the pen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import relprop
from relprop import Explainer, RelpropError
from relprop.embedded import EMBEDDED
from relprop.errors import InputError, ModelError
from relprop.methods import DEFAULT
from relprop.registry import METHODS
from tokenizers_for_tests import saved, tiny

TEXTS = ["good movie", "a dull plot", "so unbelievable"]


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return Explainer(*tiny("bert"))


def series() -> object:
    return pytest.importorskip("pandas").Series(TEXTS, index=[7, 8, 9])


SEVERAL: dict[str, Callable[[], object]] = {
    "a generator": lambda: (text for text in TEXTS),
    "a map": lambda: map(str, TEXTS),
    "an array": lambda: np.array(TEXTS),
    "an array of objects": lambda: np.array(TEXTS, dtype=object),
    "a series": series,
    "a category": lambda: series().astype("category"),  # type: ignore[attr-defined]
    "a column of datasets": lambda: pytest.importorskip("datasets").Dataset.from_dict({"text": TEXTS})["text"],
}


@pytest.mark.parametrize("kind", SEVERAL)
def test_whatever_holds_several_texts(explainer: Explainer, kind: str) -> None:
    """As a list of them does, in order."""
    assert explainer(SEVERAL[kind]()) == explainer(TEXTS)


def test_one_example_is_not_taken_apart(explainer: Explainer) -> None:
    """A text, a pair and an array of numbers are one example each."""
    assert explainer(("good", "bad")).text == ("good", "bad")
    assert explainer(np.str_("good")).text == ("good",)
    with pytest.raises(InputError, match="a text is a string or a pair of strings"):
        explainer(np.zeros(3))


def test_targets_may_be_a_column_too(explainer: Explainer) -> None:
    found = explainer(TEXTS, target=np.array([1, 0, 1]))
    assert found == explainer(TEXTS, target=[1, 0, 1])


def test_a_missing_text_is_named(explainer: Explainer) -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match="text 1 of the list: a text is a string"):
        explainer(pandas.Series(["good", None]))


def test_words(explainer: Explainer) -> None:
    text = "so unbelievable"
    assert explainer(text, words=True) == explainer(text).words()
    dropped = explainer([text], words=True, special="drop", method=["lrp", "gae"])[0]
    assert [unit.text for unit in dropped[1].units] == ["so", "unbelievable"]


def test_methods_may_be_a_tuple(explainer: Explainer) -> None:
    assert explainer("good", method=("lrp", "gae")) == explainer("good", method=["lrp", "gae"])


# Slips of the pen

SLIPS = {
    "metod": ({"metod": "lrp"}, 'no option "metod"; did you mean "method"?'),
    "batchsize": ({"batchsize": 3}, 'did you mean "batch_size"?'),
    "chekpoint": ({"chekpoint": True}, 'did you mean "checkpoint"?'),
    "of several methods": ({"method": ["lrp", "gae"], "varient": "released"}, 'did you mean "variant"?'),
    "nothing near": ({"colour": 1}, 'method "lrp_blend" has no option "colour" (its options:'),
    "question": ({"question": "who?", "context": "me"}, "BertForSequenceClassification does not"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_slips_are_told(explainer: Explainer, slip: str) -> None:
    options, message = SLIPS[slip]
    given = () if slip == "question" else ("good",)
    with pytest.raises(InputError) as told:
        explainer(*given, **options)
    assert message in str(told.value)


def test_slips_in_attribute_and_evaluate(explainer: Explainer) -> None:
    with pytest.raises(InputError, match='did you mean "target"'):
        relprop.attribute(explainer.model, explainer.inputs(["good"]), taget=1)
    with pytest.raises(InputError, match='did you mean "metrics"'):
        explainer.evaluate(["good"], methods=["lrp", "gae"], metric=["aopc"])


WRONG_KINDS = {
    "words": ({"words": "yes"}, "words must be True or False, got 'yes'"),
    "ledger": ({"ledger": "no"}, "ledger must be True or False, got 'no'"),
    "progress": ({"progress": 1}, "progress must be True or False, got 1"),
    "checkpoint": ({"checkpoint": "no"}, 'option "checkpoint" of "lrp_blend" must be True or False'),
    "biases": ({"method": "decompx", "biases": "no"}, 'option "biases" of "decompx" must be True or False'),
    "steps": (
        {"method": "integrated_gradients", "steps": 2.5},
        'option "steps" of "integrated_gradients" must be a wh',
    ),
    "gamma": ({"method": "lrp_gamma", "gamma": "much"}, 'option "gamma" of "lrp_gamma" must be a number, got'),
    "a switch for a number": ({"method": "random", "seed": True}, 'option "seed" of "random" must be a whole number'),
    "of several methods": ({"method": ["lrp", "random"], "seed": "x"}, 'option "seed" of "random" must be a whole'),
    "none by default": ({"method": "shapley", "max_evals": "x"}, 'option "max_evals" of "shapley" must be a whole'),
    "rules": ({"method": "lrp_full", "rules": 3}, 'rule set "3" is unknown'),
}


@pytest.mark.parametrize("slip", WRONG_KINDS)
def test_values_of_a_wrong_kind_are_refused(explainer: Explainer, slip: str) -> None:
    """A word such as "no" would count as true, and do the opposite of what it says."""
    options, message = WRONG_KINDS[slip]
    with pytest.raises(RelpropError) as told:
        explainer("good", **options)
    assert message in str(told.value)
    assert "\n" not in str(told.value)


def test_numbers_of_numpy_are_numbers(explainer: Explainer) -> None:
    given = {"steps": np.int64(3), "method": "integrated_gradients"}
    assert (
        explainer("good", words=np.bool_(True), **given) == explainer("good", steps=3, method=given["method"]).words()
    )
    assert explainer("good", method="lrp_gamma", gamma=1) == explainer("good", method="lrp_gamma", gamma=np.float32(1))


# What is printed


def test_reprs_are_short_and_say_what_there_is(explainer: Explainer) -> None:
    e = explainer("so unbelievable", target=1)
    strongest = max(
        (pair for pair in zip(e.units, e.scores, strict=True) if not pair[0].special), key=lambda p: abs(p[1])
    )
    assert repr(e).startswith(f"Explanation('so unbelievable' -> positive {e.value:.2f}; ")
    assert f"{strongest[0].text} {strongest[1]:+.2f}" in repr(e)
    assert repr(e.part) == f"TextPart(input_ids: {len(e.units)} units, sum of scores {sum(e.scores):+.2f})"
    assert repr(explainer) == "Explainer(BertForSequenceClassification of texts: negative, positive)"
    a = relprop.attribute(explainer.model, explainer.inputs(TEXTS), target=1)
    first, second = a.value.tolist()[:2]
    shape = list(a.scores.shape)
    shown = f"positive {first:.2f}, positive {second:.2f} and 1 more; scores of input_ids {shape}"
    assert repr(a) == f"Attribution(lrp_conservative: {shown})"


def test_the_list_of_methods() -> None:
    """The defaults first, every other once, one line each; and it stays the package that it is."""
    every = relprop.methods()
    assert [one.name for one in every[:3]] == ["lrp_blend", "lrp_full", DEFAULT]
    assert sorted(record.name for record in every) == sorted([*METHODS.names(), "bilrp"])
    lines = repr(every).splitlines()
    assert len(lines) == len(every)
    assert lines[2].startswith("lrp_conservative  ")
    assert lines[2].endswith(every[2].summary)
    assert relprop.methods("attn-lrp").name == "attn_lrp"
    assert repr(relprop.methods("lrp")).startswith("lrp(at=None, variant='paper'): ")
    with pytest.raises(RelpropError, match='did you mean "lrp_conservative"'):
        relprop.methods("lrp_conservativ")
    import relprop.methods as package

    assert package is relprop.methods
    assert package.relevance


# Models and tokenizers by name


def test_explain_with_a_model(tmp_path: Path) -> None:
    """By name, by objects; loaded once, and anew when the folder's files change."""
    model, tokenizer = tiny("bert")
    folder = saved(tmp_path / "own", model, tokenizer)
    first = relprop.explain("good movie", model=folder, target=1)
    assert first == relprop.explain("good movie", model=str(folder), target=1)
    other = relprop.explain("good movie", model=model, tokenizer=tokenizer, target=1)
    assert (other.units, other.target) == (first.units, first.target)
    assert other.scores == pytest.approx(first.scores, rel=1e-5)  # weights that lie elsewhere in memory round otherwise
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"0": "no", "1": "certainly"}
    (folder / "config.json").write_text(json.dumps(config))
    assert relprop.explain("good movie", model=folder, target=1).target == "certainly"
    assert relprop.explain("good").prediction == "positive"


def test_a_tokenizer_by_name(tmp_path: Path, explainer: Explainer) -> None:
    folder = saved(tmp_path, *tiny("bert"))
    assert Explainer(explainer.model, str(folder))("good") == explainer("good")
    assert Explainer(explainer.model, folder)("good") == explainer("good")
    with pytest.raises(ModelError, match="there is no folder"):
        Explainer(explainer.model, tmp_path / "nowhere")
    for file in folder.glob("*okenizer*"):
        file.unlink()
    with pytest.raises(ModelError, match="holds no tokenizer"):
        Explainer(explainer.model, str(folder))


def test_an_image_processor_by_name(tmp_path: Path) -> None:
    for file in EMBEDDED["digits"].glob("*.json"):
        shutil.copy(file, tmp_path)
    whole = Explainer("digits")
    assert type(Explainer(whole.model, str(tmp_path)).tokenizer) is type(whole.tokenizer)


# Files


def test_an_explanation_is_loaded_back(tmp_path: Path, explainer: Explainer) -> None:
    e = explainer("good movie")
    e.save(tmp_path / "one.json")
    assert relprop.load(tmp_path / "one.json") == e
    every = relprop.compare(explainer(TEXTS))
    every.save(tmp_path / "several.json")
    assert relprop.load(str(tmp_path / "several.json")) == every
    (tmp_path / "lines.jsonl").write_text("".join(one.to_json() + "\n" for one in every))
    assert relprop.load(tmp_path / "lines.jsonl") == every


DAMAGED = {"[1, 2": "it is not JSON", "hello": "not JSON", "[3]": "no schema_version", "{}": "no schema_version"}


@pytest.mark.parametrize("content", DAMAGED)
def test_other_files_are_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(InputError, match=rf'other.json" cannot be loaded: .*{DAMAGED[content]}'):
        relprop.load(tmp_path / "other.json")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        relprop.load(tmp_path / "none.json")


def test_compared(tmp_path: Path, explainer: Explainer, capsys: pytest.CaptureFixture[str]) -> None:
    """One file, one page, one terminal: lists of lists are laid flat."""
    found = relprop.compare(explainer(["good", "bad"], method=["lrp", "gae"]))
    assert [(e.text[0], e.method) for e in found] == [("good", "lrp"), ("good", "gae"), ("bad", "lrp"), ("bad", "gae")]
    found.save(tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text() == found.to_html()
    assert found._repr_html_() in found.to_html()
    found.show()
    assert capsys.readouterr().out.count("gae") == 2
    for nothing, message in (([], "nothing to compare"), (["x"], "compare takes explanations")):
        with pytest.raises(InputError, match=message):
            relprop.compare(nothing)
