"""Damaged saved explanations, of both versions: refused in one sentence, never loaded with other numbers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from relprop.embedded import EMBEDDED
from relprop.errors import InputError, RelpropError
from relprop.explanation import Explanation
from relprop.heads import Heads
from tokenizers_for_tests import tiny

GOLDEN = Path(__file__).parent / "golden" / "explanations-v1"
KINDS = ("text", "pair", "answer", "picture", "graph", "continuation", "encoder-decoder")


@cache
def saved(version: int, kind: str) -> str:
    text = (GOLDEN / f"{kind}.json").read_text()
    return text if version == 1 else Explanation.from_json(text).to_json()


def part(data: dict[str, Any]) -> dict[str, Any]:
    """What holds the scores: the explanation itself in version 1, its first part in version 2."""
    return data["parts"][0] if data["schema_version"] == 2 else data


def set_score(data: dict[str, Any], value: Any) -> None:
    rows = part(data)["scores"]
    while isinstance(rows[0], list):
        rows = rows[0]
    rows[0] = value


def shorten(data: dict[str, Any]) -> None:
    part(data)["scores"].pop()


# Changes that no file that relprop wrote can have: each must be refused, whatever was explained.
ANY: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no scores": lambda d: part(d).pop("scores"),
    "scores of text": lambda d: part(d).update(scores="abc"),
    "scores that are a number": lambda d: part(d).update(scores=3),
    "no scores at all": lambda d: part(d).update(scores=None),
    "a score of text": lambda d: set_score(d, "0.5x"),
    "a score of nothing": lambda d: set_score(d, None),
    "an endless score": lambda d: set_score(d, 1e999),
    "a score that is a list": lambda d: set_score(d, [[1.0]]),
    "a score that is a dict": lambda d: set_score(d, {}),
    "no method": lambda d: d.pop("method"),
    "a method of numbers": lambda d: d.update(method=3),
    "a method of lists": lambda d: d.update(method=["lrp"]),
    "no version": lambda d: d.pop("schema_version"),
    "version 3": lambda d: d.update(schema_version=3),
    "version text": lambda d: d.update(schema_version="2"),
    "version true": lambda d: d.update(schema_version=True),
    "version list": lambda d: d.update(schema_version=[1]),
    "version none": lambda d: d.update(schema_version=None),
}
# Of single outputs, not of continuations.
SINGLE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no value": lambda d: d.pop("value"),
    "a value of text": lambda d: d.update(value="2.6"),
    "an endless value": lambda d: d.update(value=1e999),
    "a target of numbers": lambda d: d.update(target=1),
    "a probability of text": lambda d: d.update(probability="high"),
    "a ledger of text": lambda d: d.update(ledger="closed"),
    "a ledger of lists": lambda d: d.update(ledger=[]),
    "a ledger without entries": lambda d: d.update(ledger={"value": 1.0}),
    "a ledger that does not close": lambda d: d.update(ledger={"value": 9.0, "entries": []}),
    "an unknown entry": lambda d: d.update(ledger={"value": 0.0, "entries": [{"a": 1}]}),
    "an entry of text": lambda d: d.update(
        ledger={"value": 1.0, "entries": [{"module": "", "op": "x", "kind": "input", "value": "1"}]}
    ),
    "an entry of no kind": lambda d: d.update(
        ledger={"value": 1.0, "entries": [{"module": "", "op": "x", "kind": "magic", "value": 1.0}]}
    ),
    "a baseline of text": lambda d: d.update(baseline="zero"),
}
OWN: dict[str, dict[str, Callable[[dict[str, Any]], Any]]] = {
    "text": {
        "a score too few": shorten,
        "no units": lambda d: part(d).update(units=[]),
        "units of text": lambda d: part(d).update(units="abc"),
        "a unit of nothing": lambda d: part(d)["units"].__setitem__(0, None),
        "a unit with more": lambda d: part(d)["units"][0].update(colour="red"),
        "a unit of numbers": lambda d: part(d)["units"][1].update(text=3),
        "a unit beyond the text": lambda d: part(d)["units"][1].update(start=10**6, end=10**6 + 1),
        "a unit turned": lambda d: part(d)["units"][1].update(start=5, end=2),
        "a unit before the text": lambda d: part(d)["units"][1].update(start=-3),
        "a unit of another text": lambda d: part(d)["units"][1].update(segment=7),
        "a text of numbers": lambda d: part(d).update(text=[3]),
        "another text": lambda d: part(d).update(text=["a"]),
        "a note of numbers": lambda d: part(d).update(truncated=3),
    },
    "picture": {
        "a grid of one row": lambda d: part(d).update(scores=[1.0, 2.0]),
        "no rows": lambda d: part(d).update(scores=[[]]),
        "no pixels": lambda d: part(d).update(size=[0, 8]),
        "a ragged grid": lambda d: part(d).update(scores=[[1.0], [1.0, 2.0]]),
        "a grid of text": lambda d: part(d).update(scores=[["a"]]),
        "a frame of three": lambda d: part(d).update(frame=[0, 0, 1]),
        "a frame of text": lambda d: part(d).update(frame=["a", 0, 1, 1]),
        "a size of text": lambda d: part(d).update(size=["8", "8"]),
        "a size of three": lambda d: part(d).update(size=[8, 8, 3]),
    },
    "graph": {
        "a score too few": shorten,
        "an edge score too few": lambda d: part(d)["edge_scores" if d["schema_version"] == 1 else "edges"].pop(),
        "no graph": lambda d: part(d).pop("graph"),
        "a graph of text": lambda d: part(d).update(graph="C"),
        "a graph without nodes": lambda d: part(d)["graph"].update(nodes=[]),
        "an edge beyond": lambda d: part(d)["graph"].update(edges=[[0, 999]]),
        "names of another graph": lambda d: part(d)["graph"].update(names=["a"]),
        "names of numbers": lambda d: part(d)["graph"].update(names=[1] * len(part(d)["graph"]["names"])),
    },
    "continuation": {
        "a score too few": lambda d: (part(d)["by_step"] if d["schema_version"] == 2 else d["scores"])[0].pop(),
        "steps of text": lambda d: d.update({"steps" if d["schema_version"] == 2 else "generated": "abc"}),
        "no step": lambda d: d.update({"steps" if d["schema_version"] == 2 else "generated": []}),
        "a step of nothing": lambda d: d["steps" if d["schema_version"] == 2 else "generated"].__setitem__(0, None),
    },
}
OWN["pair"] = OWN["answer"] = {"one text less": lambda d: part(d).update(text=part(d)["text"][:1])}
OWN["encoder-decoder"] = {}
TEXTS: dict[str, Any] = {
    "nothing": "",
    "blank": "  ",
    "a number": "3",
    "a list": "[]",
    "text": '"a"',
    "null": "null",
    "nested": "[" * 100_000,
    "a nested version": '{"schema_version": ' + "[" * 100_000,
    "NaN": '{"schema_version": NaN}',
    "bytes": b"{}",
    "None": None,
    "an int": 3,
    "a NUL": "\0",
    "half a character": "\ud800",
    "a picture": "\x89PNG\r\n",
    "a huge number": '{"schema_version": 1' + "0" * 5000 + "}",
    "an unknown kind": '{"schema_version": 1, "kind": "smell"}',
    "a kind of lists": '{"schema_version": 1, "kind": []}',
    "parts of nothing": '{"schema_version": 2, "parts": null}',
    "no parts": json.dumps({"schema_version": 2, "parts": [], "method": "m", "target": "t", "value": 1, "steps": []}),
    "parts of numbers": '{"schema_version": 2, "parts": [3], "ledger": null, "steps": []}',
    "a part of no kind": '{"schema_version": 2, "parts": [{}], "ledger": null, "steps": []}',
    "an unknown part": '{"schema_version": 2, "parts": [{"kind": "smell"}], "ledger": null, "steps": []}',
}
CASES = [
    (version, kind, name, change)
    for version in (1, 2)
    for kind in KINDS
    for table in (ANY, {} if "o" in kind[1:2] or kind == "encoder-decoder" else SINGLE, OWN[kind])
    for name, change in table.items()
]


def refusal(text: Any) -> str:
    with pytest.raises(RelpropError) as caught:
        Explanation.from_json(text)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert len(sentence) < 500
    return sentence


@pytest.mark.parametrize(("version", "kind"), [(version, kind) for version in (1, 2) for kind in KINDS])
def test_damaged_ones_are_refused(version: int, kind: str) -> None:
    taken = 0
    for own_version, own_kind, name, change in CASES:
        if (own_version, own_kind) == (version, kind):
            data = json.loads(saved(version, kind))
            change(data)
            try:
                refusal(json.dumps(data))
            except BaseException as error:
                raise AssertionError(name) from error
            taken += 1
    assert taken >= 18


@pytest.mark.parametrize("name", TEXTS)
def test_other_texts_are_refused(name: str) -> None:
    refusal(TEXTS[name])


def test_there_are_enough() -> None:
    assert len(CASES) + len(TEXTS) >= 40
    assert {kind for _, kind, _, _ in CASES} == set(KINDS)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_cut_and_flipped_ones_are_never_untyped(version: int, kind: str) -> None:
    """A cut is always refused; a flipped bit may hit a letter of the text, which nobody can tell."""
    text, chance = saved(version, kind), random.Random(version)
    for share in (0.01, 0.3, 0.7, 0.99):
        refusal(text[: int(len(text) * share)])
    for _ in range(60):
        place = chance.randrange(len(text))
        flipped = chr(ord(text[place]) ^ 1 << chance.randrange(7))
        with suppress(RelpropError):
            assert Explanation.from_json(text[:place] + flipped + text[place + 1 :]).to_json()


def test_whole_ones_load() -> None:
    for version in (1, 2):
        for kind in KINDS:
            assert Explanation.from_json(saved(version, kind)).method


# Heads are saved beside a model, and loaded with it.

HEADS = {
    "cut": lambda text: text[:100],
    "nested": lambda text: "[" * 100_000,
    "no version": lambda text: text.replace("schema_version", "version"),
    "another version": lambda text: text.replace('"schema_version": ', '"schema_version": 9'),
    "no offsets": lambda text: text.replace("relation_offsets", "offsets"),
    "text": lambda text: "heads",
    "nothing": lambda text: "",
}


@pytest.mark.parametrize("name", HEADS)
def test_damaged_heads(name: str, tmp_path: Path) -> None:
    path = tmp_path / "heads.json"
    path.write_text(HEADS[name]((EMBEDDED["sentiment"] / "heads.json").read_text()))
    with pytest.raises(InputError) as caught:
        Heads.load(path)
    assert str(caught.value).isprintable()


def test_heads_that_are_no_file(tmp_path: Path) -> None:
    (tmp_path / "heads.json").mkdir()
    for path in (tmp_path / "heads.json", tmp_path / "none.json", tmp_path / "a\0b"):
        with pytest.raises(InputError):
            Heads.load(path)


def test_an_explanation_made_today_passes_its_own_checks() -> None:
    """The checks of a loaded file hold for what is made of every kind."""
    from relprop.explainer import Explainer

    made = [
        Explainer(*tiny("bert"))("the good movie"),
        Explainer(*tiny("bert"))(("the movie", "is good"), method="integrated_gradients"),
        Explainer(*tiny("lm"))("the good", generate=2),
        Explainer(*tiny("qa"))(question="what is good", context="the movie is good"),
        Explainer("digits")(EMBEDDED["digits"] / "samples" / "0-digits-7.png"),
        Explainer("molecules")("CCO"),
    ]
    for one in [*made, made[0].words(), made[0].without_special(), made[2].words()]:
        assert Explanation.from_json(one.to_json()).to_json() == one.to_json()
