"""Texts to units: every unit lies where it says, special tokens are told apart, and what is cut off is named."""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch

from explanations import of_text
from relprop.errors import InputError
from relprop.readers.tokens import (
    TruncationWarning,
    content,
    encode,
    limit_of,
    pad,
    parts_of,
    unpad,
    without_truncation_warnings,
)
from tokenizers_for_tests import bert, byte_level, roberta, roberta_style, tiny, wordpiece

TOKENIZERS = {"wordpiece": wordpiece, "byte_level": byte_level, "roberta_style": roberta_style}
TEXTS = {
    "plain": "the movie is unbelievably good, playing a dull plot.",
    "capitals": "The MOVIE",
    "accents": "café naïve Ångström",
    "combining": "cafe\u0301 nai\u0308ve a\u0323\u0302",
    "emoji": "good 😀 movie 👩‍👩‍👧🇩🇪 ❤️",
    "cjk": "日本語の映画 good",
    "blanks": "  good\t\tmovie\n\nthe  plot \n",
    "rtl": "שלום the مرحبا film",
    "zero_width": "mo\u200bvie go\u00adod می‌خواهم",
    "controls": "good\x00bad\x07film",
    "special_in_text": "good [SEP] bad <s> </s> <|endoftext|>",
    "marks": '...!? don\'t (co-op) 3.5% "quoted"',
    "long_word": "un" + "believ" * 40,
}


@pytest.fixture(params=TOKENIZERS, scope="module")
def tokenizer(request):
    return TOKENIZERS[request.param]()


def own(encoded, segment=0):
    return [unit for unit in encoded.units if not unit.special and unit.segment == segment]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_units_lie_where_they_say(tokenizer, text):
    """A unit's text is text[start:end], never empty, inside the text and in reading order."""
    units = own(encode(tokenizer, text, None))
    for unit in units:
        assert 0 <= unit.start < unit.end <= len(text)
        assert unit.text == text[unit.start : unit.end]
        assert unit.word is not None
    assert all(a.start <= b.start and a.end <= b.end and a.word <= b.word for a, b in pairwise(units))


@pytest.mark.parametrize("make", [byte_level, roberta_style])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_byte_level_units_cover_the_text(make, text):
    """Bytes lose nothing: every character but blanks lies in some unit."""
    covered = {place for unit in own(encode(make(), text, None)) for place in range(unit.start, unit.end)}
    assert {i for i, char in enumerate(text) if not char.isspace()} <= covered


def test_units_are_the_pieces_of_the_original_text():
    """Lower-casing and accents off happen on the way to the model, not in what the user sees."""
    units = own(encode(wordpiece(), "Unbelievable Pláying", None))
    assert [unit.text for unit in units] == ["Un", "believ", "able", "Pláy", "ing"]
    assert [(unit.start, unit.end) for unit in units] == [(0, 2), (2, 8), (8, 12), (13, 17), (17, 20)]


def test_byte_level_units_leave_out_the_blank_before_a_word():
    """The blank that a token carries is no part of its unit; a token of blanks alone stays one."""
    for make in (byte_level, roberta_style):
        units = own(encode(make(), "the  good ", None))
        assert [(unit.text, unit.start) for unit in units] == [("the", 0), (" ", 3), ("good", 5), (" ", 9)]


@pytest.mark.parametrize(
    ("make", "expected"),
    [(wordpiece, ["[CLS]", "[SEP]"]), (roberta_style, ["<s>", "</s>"]), (byte_level, [])],
)
def test_special_tokens_are_flagged(make, expected):
    """Tokens that the tokenizer added are special and have no place in the text; the text's own are not."""
    encoded = encode(make(), "good movie", None)
    special = [unit for unit in encoded.units if unit.special]
    assert [unit.text for unit in special] == expected
    assert all(unit.start is unit.end is unit.word is None for unit in special)
    assert len(encoded.units) == len(encoded.ids["input_ids"])


@pytest.mark.parametrize("make", [wordpiece, roberta_style])
def test_pairs_point_into_the_right_text(make):
    """A pair's units carry their segment, and offsets into that segment's text."""
    pair = ("the good movie", "a dull, bad plot日本")
    encoded = encode(make(), pair, None)
    for segment, part in enumerate(pair):
        units = own(encoded, segment)
        assert {i for u in units for i in range(u.start, u.end)} == {i for i, c in enumerate(part) if not c.isspace()}
        assert all(unit.text == part[unit.start : unit.end] for unit in units)
    if "token_type_ids" in encoded.ids:
        assert 1 in encoded.ids["token_type_ids"]


WORD_CASES = {
    "don't stop": ["don't", "stop"],
    "don’t": ["don’t"],
    "co-op": ["co", "-", "op"],
    "3.5% of 1,000": ["3.5", "%", "of", "1,000"],
    "end.5": ["end", ".", "5"],
    "日本語": ["日", "本", "語"],
    "한국어 영화": ["한국어", "영화"],
    "...!": ["...", "!"],
    "snake_case": ["snake_case"],
    "cafe\u0301s": ["cafe\u0301s"],
    "हिन्दी फ़िल्म": ["हिन्दी", "फ़िल्म"],
    "می‌خواهم": ["می‌خواهم"],
    "a👩‍👩‍👧b": ["a", "👩‍👩‍👧", "b"],
    "❤️!": ["❤️", "!"],
    "שלום": ["שלום"],
    "good\n\nbad\n": ["good", "\n\n", "bad", "\n"],
}


@pytest.mark.parametrize(("text", "words"), WORD_CASES.items(), ids=WORD_CASES)
def test_words(text, words):
    """Bytes merge to what a reader calls words."""
    encoded = encode(byte_level(), text, None)
    e = of_text((text,), encoded.units, (1.0,) * len(encoded.units), "m", "t", 0.0).words()
    assert [unit.text for unit in e.units] == words


def test_cut_texts_are_reported():
    """A text beyond the limit is cut to it; the warning and the field name place and words."""
    text = "the good movie is a dull plot"
    with pytest.warns(
        TruncationWarning, match=r"9 tokens, 5 are read: cut off from character 14 on \('is a dull plot'\)"
    ):
        encoded = encode(wordpiece(), text, 5)
    assert len(encoded.units) == len(encoded.ids["input_ids"]) == 5
    assert encoded.units[-1].special
    assert text[own(encoded)[-1].end :].strip() in encoded.cut


def test_warnings_of_cut_texts_are_off_in_one_thread_alone():
    """And Python's own filters, which all threads share, are left as they are."""
    text, before = "the good movie is a dull plot", list(warnings.filters)
    with without_truncation_warnings(), ThreadPoolExecutor(1) as other:
        assert warnings.filters == before
        assert encode(wordpiece(), text, 5).cut  # a warning would be an error
        with pytest.warns(TruncationWarning):
            other.submit(encode, wordpiece(), text, 5).result()
    with pytest.warns(TruncationWarning):
        encode(wordpiece(), text, 5)


def test_a_cut_text_does_not_cut_those_of_other_threads():
    """A fast tokenizer keeps the settings of its last call, and is called by one thread at a time."""
    tokenizer, interval = wordpiece(), sys.getswitchinterval()
    given = [("the good movie is a dull plot", 5), ("the good movie is a dull plot " * 20, 200), ("good", None)]
    expected = [len(tokenizer(text)["input_ids"]) if limit != 5 else 5 for text, limit in given]

    def wrong(thread):
        with without_truncation_warnings():
            turns = [(thread + turn) % 3 for turn in range(200)]
            return [k for k in turns if len(encode(tokenizer, *given[k]).units) != expected[k]]

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert [*threads.map(wrong, range(4))] == [[]] * 4
    finally:
        sys.setswitchinterval(interval)


def test_cut_on_the_left_is_reported_as_such():
    """Some tokenizers keep the end: then the beginning is what was lost."""
    tokenizer = wordpiece()
    tokenizer.truncation_side = "left"
    with pytest.warns(TruncationWarning, match=r"cut off up to character 20 \('the good movie is a'\)"):
        encoded = encode(tokenizer, "the good movie is a dull plot", 4)
    assert [unit.text for unit in own(encoded)] == ["dull", "plot"]


def test_cut_pairs_say_which_text():
    """Both texts of a pair are named when both lost something."""
    with pytest.warns(TruncationWarning) as caught:
        encoded = encode(wordpiece(), ("the good movie is", "a dull plot was bad"), 7)
    assert "of text 1 on ('movie is')" in str(caught[0].message)
    assert "of text 2 on ('plot was bad')" in str(caught[0].message)
    assert encoded.cut == str(caught[0].message)


def test_long_rests_are_shortened():
    """The warning quotes the beginning of what was lost, not all of it."""
    with pytest.warns(TruncationWarning, match=r"\.\.\.\)$") as caught:
        encode(wordpiece(), "good " * 500, 6)
    assert len(str(caught[0].message)) < 160


def test_texts_within_the_limit_warn_of_nothing():
    """Exactly as long as the limit is not too long."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoded = encode(wordpiece(), "the good movie", 5)
    assert encoded.cut is None
    assert len(encoded.units) == 5


def test_a_limit_of_special_tokens_alone_is_refused():
    """No room for a single token of the text: an error, no explanation of nothing."""
    with pytest.raises(InputError, match="a limit of 2 tokens leaves no room for the text 'the good movie'"):
        encode(wordpiece(), "the good movie", 2)


@pytest.mark.parametrize(
    ("model", "tokenizer", "expected"),
    [
        (lambda t: bert(t, positions=64), lambda: wordpiece(limit=20), 20),
        (lambda t: bert(t, positions=30), lambda: wordpiece(limit=64), 30),
        (lambda t: bert(t, positions=30), lambda: wordpiece(limit=10**30), 30),
        (lambda t: roberta(t, positions=40), roberta_style, 38),
        (lambda t: torch.nn.Linear(2, 2), lambda: wordpiece(limit=10**30), None),
    ],
    ids=["tokenizer", "config", "endless tokenizer", "roberta", "unknown"],
)
def test_limits(model, tokenizer, expected):
    """The smaller of what tokenizer and model allow; RoBERTa loses the places up to its padding index."""
    tokenizer = tokenizer()
    assert limit_of(model(tokenizer), tokenizer) == expected


def test_roberta_reads_exactly_its_limit():
    """The limit is right: at it the model runs, one more token and it would not."""
    model, tokenizer = tiny("roberta")
    limit = limit_of(model, tokenizer)
    model(input_ids=torch.full((1, limit), 10))
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=torch.full((1, limit + 1), 10))


@pytest.mark.parametrize("side", ["left", "right"])
def test_pad_and_unpad(side):
    """Padding lies on the tokenizer's side, the mask is 0 exactly there, and unpad takes it off again."""
    tokenizer = wordpiece()
    tokenizer.padding_side = side
    rows = [encode(tokenizer, text, None) for text in ("good", "the good movie is dull")]
    batch = pad(tokenizer, rows, 99)
    width = len(rows[1].units)
    assert {values.shape for values in batch.values()} == {(2, width)}
    padding = batch["attention_mask"][0] == 0
    expected = [1] * (width - 3) + [0] * 3 if side == "left" else [0] * 3 + [1] * (width - 3)
    assert padding.int().tolist() == expected
    assert (batch["input_ids"][0][padding] == 99).all()
    assert batch["input_ids"][0][~padding].tolist() == rows[0].ids["input_ids"]
    assert content(tokenizer, rows)[0].sum() == 1
    assert (batch["input_ids"][content(tokenizer, rows)] > 4).all()  # no [PAD] [UNK] [CLS] [SEP] [MASK]
    for number, row in enumerate(rows):
        scores = batch["input_ids"][number].double()
        assert unpad(tokenizer, scores, row) == [float(i) for i in row.ids["input_ids"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is empty"),
        (" \n\t", "the text is empty"),
        (("good", " "), "the text is empty"),
        (None, "a text is a string or a pair of strings, got None"),
        (3, "a text is a string or a pair of strings, got 3"),
        (("a", "b", "c"), "a text is a string or a pair of strings"),
        (("a", 1), "a text is a string or a pair of strings"),
        (b"good", "a text is a string or a pair of strings"),
        ("a\udcff", "not valid Unicode"),
    ],
)
def test_what_is_no_text_is_refused(text, message):
    """One sentence that says what a text is."""
    with pytest.raises(InputError, match=message):
        parts_of(text)


def test_a_text_without_tokens_is_refused():
    """BERT drops control characters: then nothing is left to explain."""
    with pytest.raises(InputError, match="the tokenizer finds no token in the text"):
        encode(wordpiece(), "\x00\x07", None)
