"""An explanation: saved and loaded equal, merged without loss, written whole or not at all."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import jsonschema
import pytest
from PIL import Image

from explanations import changed, of_text
from relprop.errors import InputError, RelpropError
from relprop.explanation import Explanation, save, show, to_html
from relprop.saved_explanations import SCHEMA_VERSION
from relprop.types import Entry, Ledger, Unit

CLS, SEP = Unit("[CLS]", special=True), Unit("[SEP]", special=True)
TEXT = "Unbelievable <b>日本😀"
UNITS = (
    CLS,
    Unit("Un", 0, 2, word=0),
    Unit("believ", 2, 8, word=0),
    Unit("able", 8, 12, word=0),
    Unit("<", 13, 14, word=1),
    Unit("b", 14, 15, word=2),
    Unit(">", 15, 16, word=3),
    Unit("日", 16, 17, word=4),
    Unit("本", 17, 18, word=5),
    Unit("😀", 18, 19, word=6),
    SEP,
)
SCORES = (0.5, 0.25, -0.125, 1 / 3, 0.0, -0.0, 1e-300, 2.0, -4.0, 1e300, 0.1)
LEDGER = Ledger(1.5, (Entry("", "inputs", "input", 1.0), Entry("a.b", "linear", "bias", 0.5)), itemised=True)
PLAIN = of_text((TEXT,), UNITS, SCORES, "lrp_ah_ln", "positive", 1.5)
FULL = changed(
    PLAIN,
    prediction="positiv\u0308",
    probability=0.75,
    ledger=LEDGER,
    baseline=-0.5,
    truncated="cut",
    merged=True,
    answer=(2, 8),
)
PAIR = changed(PLAIN, text=("Un", "good"), units=(Unit("Un", 0, 2), Unit("good", 0, 4, segment=1)), scores=(0.1, 0.2))

UNIT_SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "start": {"type": ["integer", "null"]},
        "end": {"type": ["integer", "null"]},
        "special": {"type": "boolean"},
        "segment": {"enum": [0, 1]},
        "word": {"type": ["integer", "null"]},
    },
    "required": ["text", "start", "end", "special", "segment", "word"],
    "additionalProperties": False,
}
ENTRY_SCHEMA = {
    "type": "object",
    "properties": {
        "module": {"type": "string"},
        "op": {"type": "string"},
        "kind": {"enum": ["input", "bias", "constant", "unexplained"]},
        "value": {"type": "number"},
    },
    "required": ["module", "op", "kind", "value"],
    "additionalProperties": False,
}
PART_SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"const": "text"},
        "name": {"const": "input_ids"},
        "text": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        "units": {"type": "array", "items": UNIT_SCHEMA},
        "scores": {"type": "array", "items": {"type": "number"}},
        "by_step": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        "written_from": {"type": ["integer", "null"]},
        "truncated": {"type": ["string", "null"]},
        "merged": {"type": "boolean"},
        "answer": {"type": ["array", "null"], "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
    },
    "additionalProperties": False,
}
PART_SCHEMA["required"] = list(PART_SCHEMA["properties"])
LEDGER_SCHEMA = {
    "type": ["object", "null"],
    "properties": {
        "value": {"type": "number"},
        "entries": {"type": "array", "items": ENTRY_SCHEMA},
        "itemised": {"type": "boolean"},
    },
    "required": ["value", "entries", "itemised"],
    "additionalProperties": False,
}
STEP_SCHEMA = {
    "type": "object",
    "properties": {
        "tokens": {"type": "array", "items": {"type": "integer"}},
        "name": {"type": "string"},
        "target": {"type": "string"},
        "value": {"type": "number"},
        "probability": {"type": "number"},
        "runner_up": {"type": "string"},
        "runner_up_probability": {"type": ["number", "null"]},
        "ledger": LEDGER_SCHEMA,
        "baseline": {"type": ["number", "null"]},
    },
    "additionalProperties": False,
}
STEP_SCHEMA["required"] = list(STEP_SCHEMA["properties"])
SCHEMA = {
    "type": "object",
    "properties": {
        "schema_version": {"const": 2},
        "parts": {"type": "array", "items": PART_SCHEMA},
        "method": {"type": "string"},
        "target": {"type": "string"},
        "value": {"type": "number"},
        "prediction": {"type": "string"},
        "probability": {"type": ["number", "null"]},
        "ledger": LEDGER_SCHEMA,
        "baseline": {"type": ["number", "null"]},
        "signed": {"type": "boolean"},
        "steps": {"type": "array", "items": STEP_SCHEMA},
        "quantity": {"type": "string"},
        "model": {"type": "string"},
        "passes": {"type": "string"},
    },
    "additionalProperties": False,
}
SCHEMA["required"] = list(SCHEMA["properties"])
EVERY = pytest.mark.parametrize("e", [PLAIN, FULL, PAIR], ids=["plain", "full", "pair"])


@EVERY
def test_json_loads_back_equal(e):
    """Every field survives, floats to the last bit, and saving again gives the same line."""
    loaded = Explanation.from_json(e.to_json())
    assert loaded == e
    assert [math.copysign(1, score) for score in loaded.scores] == [math.copysign(1, score) for score in e.scores]
    assert hash(loaded) == hash(e)
    assert loaded.to_json() == e.to_json()


@EVERY
def test_json_keeps_its_schema(e):
    """Schema version 2 is what programs read: a change of fields needs a new version."""
    jsonschema.validate(json.loads(e.to_json()), SCHEMA)
    assert "\n" not in e.to_json()  # one explanation per line


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_refused(number):
    """NaN is no JSON: neither written nor read."""
    with pytest.raises(InputError, match="a number that is not finite"):
        changed(PLAIN, value=number).to_json()
    with pytest.raises(InputError, match="is not a finite number"):
        Explanation.from_json(PLAIN.to_json().replace("1e+300", json.dumps(number)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no explanation saved by relprop: it is not JSON"),
        ("{", "no explanation saved by relprop: it is not JSON"),
        ("[1]", "it has no schema_version"),
        ('"text"', "it has no schema_version"),
        ("null", "it has no schema_version"),
        ("{}", "it has no schema_version"),
        (
            PLAIN.to_json().replace('"schema_version": 2', '"schema_version": 3'),
            "has schema version 3; this relprop reads 1 and 2",
        ),
        ('{"schema_version": 1}', "is damaged"),
        ('{"schema_version": 1, "kind": "smell"}', "is damaged .*smell"),
        ('{"schema_version": 2}', "is damaged .*parts"),
        (PLAIN.to_json().replace('"kind": "text"', '"kind": "smell"'), 'kind of part "smell" is unknown'),
        (PLAIN.to_json().replace('"method"', '"madhat"'), "is damaged .*madhat"),
        (PLAIN.to_json().replace('"special"', '"spatial"'), "is damaged .*spatial"),
        (PLAIN.to_json().replace("[0.5, ", "["), "is damaged .*11 units, 10 scores"),
        (FULL.to_json().replace('"entries"', '"exits"'), "is damaged .*entries"),
    ],
)
def test_what_is_no_explanation_is_refused(text, message):
    """One sentence for foreign, newer and damaged files."""
    with pytest.raises(RelpropError, match=message) as caught:
        Explanation.from_json(text)
    assert "\n" not in str(caught.value)


def test_words_merge_pieces():
    """A word's score is the sum of its pieces', its text the original's; special tokens stay apart."""
    words = PLAIN.words()
    assert [unit.text for unit in words.units] == ["[CLS]", "Unbelievable", "<", "b", ">", "日", "本", "😀", "[SEP]"]
    assert words.scores[1] == 0.25 - 0.125 + 1 / 3
    assert (words.units[1].start, words.units[1].end) == (0, 12)
    assert words.accounted == pytest.approx(PLAIN.accounted)
    assert words.part.merged
    assert not PLAIN.part.merged
    assert words.words() == words


def test_words_of_a_pair_do_not_merge_across():
    """The last word of the first text and the first of the second have the same number, not the same segment."""
    units = (Unit("good", 0, 4, word=0), Unit("bad", 0, 3, segment=1, word=0))
    pair = changed(PAIR, text=("good", "bad"), units=units)
    assert [unit.text for unit in pair.words().units] == ["good", "bad"]


def test_special_neighbours_stay_apart():
    """Two special tokens side by side are two."""
    e = changed(PLAIN, units=(CLS, SEP, SEP), scores=(1.0, 2.0, 3.0))
    assert e.words().scores == (1.0, 2.0, 3.0)


def test_words_need_places():
    """A slow tokenizer gives no offsets: say so."""
    with pytest.raises(InputError, match="words cannot be made: the tokenizer gives no places"):
        changed(PLAIN, units=(Unit("good"),), scores=(1.0,)).words()


def test_without_special():
    """Their scores go, the others stay as they were."""
    kept = PLAIN.without_special()
    assert kept.units == UNITS[1:-1]
    assert kept.scores == SCORES[1:-1]


def test_top():
    """The largest magnitudes first, either sign; no more than there are."""
    assert [score for _, score in PLAIN.top(3)] == [1e300, -4.0, 2.0]
    assert [unit.text for unit, _ in PLAIN.top(3)] == ["😀", "本", "日"]
    assert len(PLAIN.top(100)) == len(UNITS)


@pytest.mark.parametrize("ending", ["html", "HTML", "json", "png", "svg", "pdf"])
def test_save_by_ending(tmp_path, ending):
    """The ending says the format, and a reader of that format can read it."""
    path = tmp_path / f"out.{ending}"
    e = changed(FULL, scores=(0.5,) * len(UNITS))
    e.save(path)
    content = path.read_bytes()
    match ending.lower():
        case "json":
            assert Explanation.from_json(content.decode()) == e
        case "png":
            with Image.open(path) as image:
                assert image.size[0] > 100
        case "html":
            assert content.decode() == e.to_html()
            assert "<b>" not in content.decode().split("<body", 1)[1]
        case "svg":
            assert b"<svg" in content
        case "pdf":
            assert content.startswith(b"%PDF")
    assert os.listdir(tmp_path) == [path.name]


def test_save_several_as_json(tmp_path):
    """Several explanations are one JSON array."""
    save([PLAIN, FULL], tmp_path / "out.json")
    loaded = [Explanation.from_json(json.dumps(one)) for one in json.loads((tmp_path / "out.json").read_text("utf-8"))]
    assert loaded == [PLAIN, FULL]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.txt", r"the name must end in \.html, \.json, \.png, \.svg or \.pdf"),
        ("out", "the name must end in"),
        ("nowhere/out.html", 'there is no folder ".*nowhere"'),
        ("folder.html", "it is a folder"),
    ],
)
def test_save_refuses(tmp_path, name, message):
    """Before anything is written: one sentence with the path."""
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InputError, match=message) as caught:
        PLAIN.save(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert os.listdir(tmp_path) == ["folder.html"]


@pytest.mark.parametrize("ending", ["html", "json", "png"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, ending):
    """A disk that fills up while writing: the old file stays whole, no fragment stays behind, the reason is told."""
    path = tmp_path / f"out.{ending}"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match=r"cannot write .* No space left on device"):
        changed(PLAIN, scores=(0.5,) * len(UNITS)).save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [path.name]


def test_a_number_json_lacks_leaves_the_old_file(tmp_path):
    """An explanation that cannot be written touches nothing."""
    path = tmp_path / "out.json"
    path.write_text("old")
    with pytest.raises(InputError, match="not finite"):
        changed(PLAIN, value=math.nan).save(path)
    assert path.read_text() == "old"


def test_notebooks_get_a_fragment():
    """`_repr_html_` is safe markup without a page around it, and shows every unit."""
    fragment = PLAIN._repr_html_()
    assert "<html" not in fragment
    assert "&lt;" in fragment
    assert all(text in fragment for text in ("believ", "日", "[CLS]"))


def test_show_prints_what_was_explained(capsys):
    """The terminal names method, target, value, sum and truncation."""
    show([changed(FULL, scores=(0.5,) * len(UNITS))])
    printed = capsys.readouterr().out
    for telling in ("lrp_ah_ln", "positive = 1.500", "probability 0.75", "sum of scores +5.500, ", " = 1.500", "cut"):
        assert telling in printed


def test_several_on_one_page():
    """Comparisons stack every method."""
    page = to_html([PLAIN, changed(PLAIN, method="gradient")])
    assert "lrp_ah_ln" in page
    assert "gradient" in page


def test_the_schema_version_is_the_tested_one():
    """Raise it together with the schema above."""
    assert SCHEMA["properties"]["schema_version"]["const"] == SCHEMA_VERSION


def test_saved_files_are_readable_by_others(tmp_path: Path):
    """Temporary files are private; the result is not."""
    PLAIN.save(tmp_path / "out.json")
    assert (tmp_path / "out.json").stat().st_mode & 0o777 == 0o644


def test_sentences_merge_words():
    """Full stops, quotes that close behind them, other scripts; special tokens stay apart."""
    text = 'It is good. "Really?" Yes... 好。不好'
    words = [("It", 0), ("is", 3), ("good", 6), (".", 10), ('"', 12), ("Really", 13), ("?", 19), ('"', 20), ("Yes", 22)]
    units = (CLS, *(Unit(word, at, at + len(word), word=i) for i, (word, at) in enumerate(words)))
    units += (Unit("...", 25, 28, word=9), Unit("好", 29, 30, word=10), Unit("。", 30, 31, word=11))
    units += (Unit("不好", 31, 33, word=12),)
    e = of_text((text,), units, tuple(map(float, range(len(units)))), "lrp", "positive", 1.5)
    found = e.sentences()
    assert [unit.text for unit in found.units] == ["[CLS]", "It is good.", '"Really?"', "Yes...", "好。", "不好"]
    assert found.scores == (0.0, 1 + 2 + 3 + 4.0, 5 + 6 + 7 + 8.0, 9 + 10.0, 11 + 12.0, 13.0)
    with pytest.raises(InputError, match="sentences cannot be made"):
        changed(PLAIN, units=(Unit("good"),), scores=(1.0,)).sentences()


def test_a_short_repr():
    """What, which target, how much, and what weighs most; no special tokens."""
    e = of_text(
        ("a gorgeous, witty, seductive movie.",),
        (CLS, Unit("gorgeous"), Unit("witty")),
        (3.0, 1.234, 0.7),
        "m",
        "positive",
        2.626,
    )
    assert repr(e) == "Explanation('a gorgeous, witty, seductive movie.' -> positive 2.63; gorgeous +1.23, witty +0.70)"
    assert repr(changed(e, signed=False)).endswith("; gorgeous 1.23, witty 0.70)")  # neither for nor against
    assert len(repr(changed(e, text=("word " * 100,)))) < 120
