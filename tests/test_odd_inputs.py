"""Whatever is given: an explanation, or one sentence of relprop's own. And long texts, cut before they cost much."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

import odd_inputs
from relprop.errors import InputError, RelpropError, RelpropWarning, printable
from relprop.explainer import Explainer
from relprop.explanation import Explanation
from relprop.graph import Graph
from relprop.readers import tokens
from relprop.readers.tokens import TruncationWarning, encode
from tokenizers_for_tests import MAKERS, tiny

resource = pytest.importorskip("resource", reason="peak memory is read the Unix way")
MEGABYTES = 500
SENTENCE = "the good movie is not very dull and witty. "
LONG = SENTENCE * (10**7 // len(SENTENCE))
# What must not be explained as if nothing were odd.
REFUSED = {
    "text": "None, bytes, empty, white, half a character, a pair with None, mixed, a dict",
    "picture": "cut.png, empty.png, drawing.png, bomb.png, none.png, nan.tif, array with NaN, meta, a dict",
    "graph": "empty, open ring, half a character, branches, long, categories beyond, negative categories, "
    "unknown bonds, too many nodes, a list with a wrong one",
    "question": "no context, empty question, bytes, uneven, halves, answer not there, characters beyond",
    "option": "target beyond, NaN, bytes, max_length text, batch_size float, special 3",
}  # fmt: skip


def peak() -> float:
    """The largest memory of the process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def outcome(ask: Callable[[], Any]) -> str | None:
    """The sentence of a refusal, None for an explanation. Errors of other kinds are raised."""
    before = peak()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in (TruncationWarning, RelpropWarning):
            warnings.simplefilter("ignore", kind)
        try:
            found = ask()
        except RelpropError as error:
            sentence = str(error)
            assert sentence.isprintable()
            assert 10 < len(sentence) < 600
            return sentence
    assert peak() - before < MEGABYTES
    for one in found if isinstance(found, list) else [found]:
        assert isinstance(one, Explanation | Graph)
    return None


def check(kind: str, asked: dict[str, Callable[[], Any]]) -> None:
    refused = {name for name, ask in asked.items() if outcome(ask) is not None}
    expected = set(REFUSED[kind].split(", "))
    assert expected <= set(asked)
    assert expected <= refused
    assert len(refused) < len(asked)  # else it refuses everything


@pytest.mark.parametrize("name", ["bert", "roberta", "lm"])
def test_texts(name: str) -> None:
    explainer = Explainer(*tiny(name))
    check("text", {key: lambda given=given: explainer(given) for key, given in odd_inputs.texts().items()})


def test_pictures(tmp_path: Path) -> None:
    explainer = Explainer("digits")
    given = odd_inputs.pictures(tmp_path)
    check("picture", {key: lambda one=one: explainer(one) for key, one in given.items()})


def test_graphs(tmp_path: Path) -> None:
    explainer = Explainer("molecules")
    given = odd_inputs.graphs(tmp_path)
    check("graph", {key: lambda one=one: explainer(one) for key, one in given.items()})


@pytest.mark.parametrize("name", odd_inputs.graph_arrays())
def test_what_is_no_graph(name: str) -> None:
    with pytest.raises(InputError) as caught:
        odd_inputs.graph_arrays()[name]()
    assert str(caught.value).isprintable()


def test_questions() -> None:
    explainer = Explainer(*tiny("qa"))
    check("question", {key: lambda one=one: explainer(**one) for key, one in odd_inputs.questions().items()})


def test_targets_and_options() -> None:
    explainer = Explainer(*tiny("bert"))
    asked = odd_inputs.targets_and_options()
    check("option", {key: lambda one=one: explainer("the good movie", **one) for key, one in asked.items()})


def test_there_are_enough(tmp_path: Path) -> None:
    tables = (odd_inputs.texts(), odd_inputs.pictures(tmp_path), odd_inputs.graphs(tmp_path), odd_inputs.graph_arrays())
    assert sum(map(len, tables)) + len(odd_inputs.questions()) + len(odd_inputs.targets_and_options()) >= 200


def test_errors_are_one_printable_line() -> None:
    assert printable("a\nb\0\ud800\u202e é") == r"a b\x00\ud800\u202e é"
    assert str(InputError("two\nlines")) == "two lines"


# Long texts.


class Counting:
    """A tokenizer that notes how many characters it was given."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.characters = tokenizer, 0

    def __call__(self, *parts: str, **options: Any) -> Any:
        self.characters += sum(map(len, parts))
        return self.tokenizer(*parts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("pair", [False, True], ids=["one", "pair"])
@pytest.mark.parametrize("name", ["bert", "roberta", "lm"])
def test_long_texts_are_cut_before_they_are_tokenised(name: str, pair: bool, side: str) -> None:
    """Of 10 MB little is tokenised, and the tokens are those of a text that is just long enough."""
    tokenizer = deepcopy(tiny(name)[1])
    tokenizer.truncation_side = side
    counting = Counting(tokenizer)
    before = peak()
    with pytest.warns(TruncationWarning, match=r"characters, 60 tokens are read: cut off (up to|from) character"):
        row = encode(counting, (LONG, LONG) if pair else LONG, 60)
    assert counting.characters < 10**6
    assert peak() - before < MEGABYTES
    short = SENTENCE * 20
    enough = tokenizer(*([short] * (1 + pair)), truncation=True, max_length=60)
    assert row.ids["input_ids"] == enough["input_ids"]
    for unit in row.units:
        if unit.start is not None:
            assert LONG[unit.start : unit.end] == unit.text


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "qa"])
def test_cutting_first_changes_no_token(name: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of any size give what the tokenizer's own truncation of the whole text gives."""
    tokenizer = deepcopy(tiny(name)[1])
    tokenizer.truncation_side = side
    texts = [SENTENCE * 9, "unbelievable!!! " * 30 + "日本語映画 " * 20, "a" * 90 + " good" * 40, "don't " * 70]
    for size in (1, 50, 200):
        monkeypatch.setattr(tokens, "_WHOLE", size)
        for given in [*texts, (texts[0], texts[1]), (texts[3], "good"), ("good", texts[2])]:
            parts = (given,) if isinstance(given, str) else given
            with pytest.warns(TruncationWarning):
                row = encode(tokenizer, given, 12)
            assert row.ids["input_ids"] == tokenizer(*parts, truncation=True, max_length=12)["input_ids"]


def test_pairs_of_long_texts_take_no_table_of_all_that_is_cut_off() -> None:
    """A tokenizer that cuts a pair makes every combination of what it cuts off: 20,000 tokens took gigabytes."""
    counting = Counting(tiny("bert")[1])
    with pytest.warns(TruncationWarning, match="tokens, 60 are read"):
        encode(counting, (SENTENCE * 2000, SENTENCE * 2000), 60)
    assert counting.characters < 2 * 2000 * len(SENTENCE) + 2000


def test_blanks_without_end() -> None:
    """What has no tokens is not searched to its end."""
    counting = Counting(tiny("bert")[1])
    with pytest.raises(InputError, match="no room for the text"):
        encode(counting, " " * 10**7 + "good", 60)
    assert counting.characters < 10**6


def test_a_tokenizer_that_fails_is_named() -> None:
    tokenizer = deepcopy(tiny("bert")[1])
    tokenizer.model_max_length = "64"
    with pytest.raises(InputError, match="the tokenizer failed: TypeError"):
        encode(tokenizer, "good", None)


def test_a_context_without_end_is_refused() -> None:
    with pytest.raises(InputError, match="the context has 9,999,994 characters; at most 1,000,000 are read"):
        Explainer(*tiny("qa"))(question="what is good", context=LONG)


def test_numbers_of_graphs_are_not_rounded() -> None:
    """Whole floats are numbers of nodes, others are not."""
    assert Graph.of([1, 2], torch.tensor([[0.0, 1.0]])).edges.tolist() == [[0, 1]]
    with pytest.raises(InputError, match="edges are whole numbers"):
        Graph.of([1, 2], [(0.5, 1.5)])
