"""Syntactic and positional heads: counts against the released code and a slow oracle, masks, files, command line."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BartConfig,
    BartForSequenceClassification,
    ByT5Tokenizer,
    CanineTokenizer,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    MambaConfig,
    MambaForCausalLM,
)

import tokenizers_for_tests as tokenizers
from relprop.cli import main
from relprop.errors import InputError, ModelError, UnknownNameError
from relprop.heads import (
    SAMPLE,
    Heads,
    Sentence,
    Word,
    corrupted,
    heads_of,
    identify,
    parse_texts,
    random_mask,
    read_conllu,
    relation_offsets,
)
from relprop.heads.alignment import NO_WORD, AlignedSentence, align
from relprop.heads.attention_counts import count_attention
from relprop.heads.attention_maps import attention_maps, batch_inputs, equal_length_batches
from relprop.heads.treebank import RELATIONS, offset_shares
from relprop.loading import load
from relprop.render import heads as figures
from tiny_models import shrink
from treebank_sample import sample

GOLDEN = Path(__file__).parent / "golden" / "heads"


def sentence(text: str, arcs: dict[int, tuple[int, str]], glued: str = "") -> Sentence:
    """Words from a text; `arcs`: dependent -> (governor, label); `glued`: words with no space behind them."""
    words = text.split()
    return Sentence(
        tuple(Word(word, *arcs.get(i, (None, "root")), word not in glued.split()) for i, word in enumerate(words))
    )


FILM = sentence(
    "the unbelievable movie is walking a very good plot .",
    {0: (2, "det"), 1: (2, "amod"), 2: (4, "nsubj"), 3: (4, "aux"), 5: (8, "det"), 6: (7, "advmod"), 7: (8, "amod"),
     8: (4, "obj"), 9: (4, "punct")},
    glued="plot",
)  # fmt: skip
SHORT = sentence("the film was dull", {0: (1, "det"), 1: (3, "nsubj:pass"), 2: (3, "cop")})
POETRY = sentence(
    "witty the plot it gorgeous film and bad", {0: (2, "amod"), 2: (5, "nsubj"), 3: (5, "obj"), 7: (5, "amod")}
)
NOT_GOOD = sentence("it is not a good film", {0: (5, "nsubj"), 1: (5, "cop"), 2: (5, "advmod"), 4: (5, "amod")})


# What is counted


def golden() -> tuple[Sentence, AlignedSentence, dict[str, Any], Any]:
    told = json.loads((GOLDEN / "head_identification.json").read_text())
    words = [Word(w["text"], w["head"] - 1 if w["head"] else None, w["deprel"]) for w in told["parsed"]]
    places = (NO_WORD, 0, 1, 2, 3, 3, 4, 5, 6, 7, 8, NO_WORD)
    row = AlignedSentence({}, places, tuple(place == NO_WORD for place in places))
    return Sentence(tuple(words)), row, told, np.load(GOLDEN / "head_identification.npz")


def test_counts_equal_the_released_code():
    """Hits and misses by relation, and rows by offset, of the released variant."""
    parse, row, told, arrays = golden()
    tally = count_attention([torch.tensor(arrays["attn"])[None]], [row], [parse], variant="released")
    assert told["deprel_order"] == list(RELATIONS)
    hits = tally.hits[..., 0]
    np.testing.assert_array_equal(hits, arrays["hit"])
    np.testing.assert_array_equal(tally.arcs - hits, arrays["miss"])
    middle = len(row) - 1
    np.testing.assert_array_equal(tally.offsets[..., middle:], arrays["rel_ppos"][..., : middle + 1])
    np.testing.assert_array_equal(tally.offsets[..., :middle][..., ::-1], arrays["rel_npos"][..., 1 : middle + 1])
    assert not tally.hits[..., 1].any()


def test_offsets_of_relations_equal_the_released_code():
    parse, _, told, _ = golden()
    assert relation_offsets([parse]) == {k: dict(Counter(raw)) for k, raw in told["lambda_raw"].items()}


def test_paper_counts_on_the_golden_maps():
    """Both directions: the head that looks from governors at dependents (3) is seen; special tokens are no rows."""
    parse, row, _, arrays = golden()
    tally = count_attention([torch.tensor(arrays["attn"])[None]], [row], [parse])
    assert tally.hits[0, 0, :, 0].tolist() == tally.arcs.tolist() == [1, 1, 2, 1]
    assert tally.hits[0, 3].tolist() == [[0, 0], [0, 1], [0, 2], [0, 0]]  # looks at `small`, `wall` and `red`
    assert tally.rows == 10
    offset, rows = tally.best_offset()
    assert (offset[0, 1], rows[0, 1], offset[0, 2], rows[0, 2]) == (-1, 10, 1, 10)


def oracle(maps: list[np.ndarray], rows: list[AlignedSentence], parses: list[Sentence]) -> tuple[Any, ...]:
    """The definitions, word by word: [Song24] as told in docs/heads.md, one number at a time."""
    offsets: Counter[tuple[int, int, int]] = Counter()
    hits: Counter[tuple[int, int, str, int]] = Counter()
    arcs: Counter[str] = Counter()
    for number, (row, parse) in enumerate(zip(rows, parses, strict=True)):
        plain = [i for i in range(len(row)) if not row.special[i]]
        pieces = [[i for i in plain if row.words[i] == w] for w in range(len(parse.words))]
        pairs = [(d, w.head, w.label.split(":")[0]) for d, w in enumerate(parse.words) if w.head is not None]
        pairs = [pair for pair in pairs if pair[2] in RELATIONS]
        arcs.update(k for *_, k in pairs)
        for b, block in enumerate(maps):
            for h, attention in enumerate(block[number]):
                for i in plain:
                    offsets[b, h, max(range(len(row)), key=lambda j: attention[i][j]) - i] += 1
                for dependent, governor, k in pairs:
                    for way, (source, goal) in enumerate([(dependent, governor), (governor, dependent)]):
                        strongest = max(plain, key=lambda j: attention[pieces[source][0]][j])
                        hits[b, h, k, way] += strongest in pieces[goal]
    return offsets, hits, arcs


def test_counts_equal_a_slow_oracle():
    """Random attention over sentences with words in pieces."""
    tokenizer = tokenizers.wordpiece()
    parses = [FILM, replace(FILM, words=(*FILM.words[:-1], replace(FILM.words[-1], text="!")))]
    rows = [align(tokenizer, one) for one in parses]
    n, draw = len(rows[0]), torch.Generator().manual_seed(0)
    maps = [torch.rand(2, 20, n, n, generator=draw) for _ in range(2)]
    tally = count_attention(maps, rows, parses, longest=30)
    offsets, hits, arcs = oracle([one.numpy() for one in maps], rows, parses)
    assert {at: n for at, n in np.ndenumerate(tally.offsets) if n} == {
        (b, h, o + 29): n for (b, h, o), n in offsets.items()
    }
    for (b, h, k, way), n in np.ndenumerate(tally.hits):
        assert n == hits[b, h, RELATIONS[k], way]
    assert dict(zip(RELATIONS, tally.arcs.tolist(), strict=True)) == {k: arcs[k] for k in RELATIONS}
    assert tally.hits.sum() > 20  # else the comparison would say little


def test_released_matches_by_spelling():
    """A second word that reads like the governor passes for it; short words, digits and subtypes are passed over."""
    parse = sentence("good film good 12 film", {0: (4, "amod"), 1: (4, "nsubj:pass"), 2: (4, "amod"), 3: (4, "amod")})
    row = AlignedSentence({}, (0, 1, 2, 3, 4), (False,) * 5)
    attention = torch.zeros(1, 1, 5, 5)
    attention[0, 0, :, 1] = 1  # all look at the first `film`
    released = count_attention([attention], [row], [parse], variant="released")
    assert (released.arcs.tolist(), released.hits[0, 0, :, 0].tolist()) == ([0, 0, 2, 0], [0, 0, 2, 0])
    paper = count_attention([attention], [row], [parse])
    assert (paper.arcs.tolist(), paper.hits[0, 0, :, 0].tolist()) == ([1, 0, 3, 0], [0, 0, 0, 0])


# Which heads are found


def made(row: AlignedSentence, parse: Sentence) -> torch.Tensor:
    """Heads [6, tokens, tokens] that look before, at governors, at dependents, at [SEP], at themselves, behind."""
    n, first = len(row), row.first_tokens()
    look = np.tile(np.arange(n), (6, 1))
    look[0] = np.maximum(np.arange(n) - 1, 0)
    look[3] = n - 1
    look[5] = np.minimum(np.arange(n) + 1, n - 1)
    for arc in parse.arcs():
        last = max(i for i in range(n) if row.words[i] == arc.governor)
        if arc.relation in ("nsubj", "obj"):
            look[1, first[arc.dependent]] = last
        if arc.relation == "amod":
            look[2, first[arc.governor]] = first[arc.dependent]
    return torch.nn.functional.one_hot(torch.tensor(look), n).float()


@pytest.fixture
def by_hand(monkeypatch):
    """`identify` with the maps above in place of a model's."""
    tokenizer = tokenizers.wordpiece()
    parses = [FILM, SHORT, NOT_GOOD, POETRY]
    by_ids = {tuple(align(tokenizer, one).ids["input_ids"]): one for one in parses}

    def maps(model: Any, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        rows = [by_ids[tuple(ids)] for ids in inputs["input_ids"].tolist()]
        return [torch.stack([made(align(tokenizer, one), one) for one in rows])]

    monkeypatch.setattr("relprop.heads.identification.attention_maps", maps)
    return identify(tokenizers.tiny("bert")[0], tokenizer, parses, name="by hand")


def test_finds_heads_made_by_hand(by_hand):
    """The previous and the next token, and the relations that a head follows; not [SEP], not the token itself."""
    assert by_hand.positional.tolist() == [[True, False, False, False, False, True]]
    assert by_hand.follows[0, 1].tolist() == [True, True, False, False]
    assert by_hand.follows[0, 2].tolist() == [False, False, True, False]
    assert not by_hand.follows[0, 3:].any()
    assert [(f.head, f.kind, f.what) for f in by_hand.findings()][:4] == [
        (0, "positional", "offset -1"),
        (1, "syntactic", "nsubj, dependent to governor"),
        (1, "syntactic", "obj, dependent to governor"),
        (2, "syntactic", "amod, governor to dependent"),
    ]
    assert by_hand.kinds()[0][:4] == ["positional", "syntactic", "syntactic", "neither"]


def test_chance_is_the_most_common_offset(by_hand):
    """lambda of the four sentences: nsubj -2, -2, -5, -3; obj +4, -2; amod -1 (thrice), -2, +2; advmod -1, -3."""
    assert by_hand.relation_offsets["nsubj"] == {-5: 1, -3: 1, -2: 2}
    assert by_hand.chance.tolist() == [0.5, 0.5, 0.6, 0.5]
    assert not by_hand.at(xi_synt=0.5).syntactic.any()


def test_a_fixed_offset_has_alpha_lambda_both_ways():
    """Of words that are one token each: so the threshold means the same in both directions."""
    parses = [NOT_GOOD, sentence("good good film", {0: (2, "amod"), 1: (2, "amod")})]
    tokenizer = tokenizers.wordpiece()
    hits = np.zeros(2)
    for parse in parses:
        row = align(tokenizer, parse)
        behind, before = (torch.roll(torch.eye(len(row)), way, 1)[None, None] for way in (1, -1))
        hits += [
            count_attention([behind], [row], [parse]).hits[0, 0, 2, 0],
            count_attention([before], [row], [parse]).hits[0, 0, 2, 1],
        ]
    assert offset_shares(relation_offsets(parses)["amod"])[-1] == 2 / 3
    assert (hits / 3).tolist() == [2 / 3, 2 / 3]


# Words and tokens


def pieces_of(tokenizer: Any, parse: Sentence) -> list[str]:
    row = align(tokenizer, parse)
    ids = row.ids["input_ids"]
    return [
        tokenizer.decode([i for i, w in zip(ids, row.words, strict=True) if w == number]).replace(" ", "")
        for number in range(len(parse.words))
    ]


@pytest.mark.parametrize("make", [tokenizers.wordpiece, tokenizers.byte_level, tokenizers.roberta_style])
def test_tokens_belong_to_their_words(make):
    assert pieces_of(make(), FILM) == [word.text for word in FILM.words]


@pytest.mark.parametrize(("make", "around"), [(ByT5Tokenizer, (0, 1)), (CanineTokenizer, (1, 1))])
def test_slow_tokenizers_read_word_by_word(make, around):
    tokenizer = make()
    assert not tokenizer.is_fast
    row = align(tokenizer, FILM)
    assert (row.special.index(False), row.special[::-1].index(False)) == around
    assert row.ids["input_ids"] == tokenizer(FILM.text)["input_ids"]
    assert pieces_of(tokenizer, FILM) == [word.text for word in FILM.words]


def test_a_token_over_two_words_is_the_first_ones():
    """`do` and `n't`, written as one, are read as `don`, `'`, `t`."""
    parse = sentence("I do n't", {0: (1, "nsubj"), 2: (1, "advmod")}, glued="do")
    assert parse.text == "I don't"
    assert pieces_of(tokenizers.wordpiece(), parse) == ["i", "don", "'t"]
    assert align(tokenizers.wordpiece(), parse).first_tokens() == {0: 1, 1: 2, 2: 3}


# Models


def llama(tokenizer: Any) -> Any:
    config = shrink(LlamaConfig, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    return LlamaForSequenceClassification(config).eval()


def distilbert(tokenizer: Any) -> Any:
    config = shrink(DistilBertConfig, vocab_size=len(tokenizer), n_layers=2, n_heads=4, dim=32, hidden_dim=48)
    return DistilBertForSequenceClassification(config).eval()


MODELS = {
    "bert": (tokenizers.bert, tokenizers.wordpiece),
    "roberta": (tokenizers.roberta, lambda: tokenizers.roberta_style(limit=60)),
    "distilbert": (distilbert, tokenizers.wordpiece),
    "gpt2": (tokenizers.gpt2, tokenizers.byte_level),
    "llama": (llama, lambda: tokenizers.byte_level(pad_token="<|endoftext|>")),
    "qa": (tokenizers.bert_qa, tokenizers.wordpiece),
}


@pytest.mark.parametrize("name", MODELS)
def test_runs_on(name):
    """One by one and in batches the counts are the same; causal heads look at nothing behind; the model stays."""
    model_of, tokenizer_of = MODELS[name]
    tokenizer = tokenizer_of()
    model = model_of(tokenizer).train()
    parses = [SHORT, SHORT, NOT_GOOD, sentence("a bad plot", {1: (2, "amod")})]
    found = identify(model, tokenizer, parses)
    assert model.training
    assert found.shape == (2, 4)
    assert (found.sentences, found.skipped, found.words) == (4, 0, 17)
    single = [identify(model, tokenizer, [one]) for one in parses]
    np.testing.assert_array_equal(sum(np.array(one.hits) for one in single), found.hits)
    assert sum(one.rows for one in single) == found.rows
    if name in ("gpt2", "llama"):
        assert (np.array(found.offset)[found.offset_share > 0] < 0).all()


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "gpt2", "llama"])
def test_maps_are_the_models_own(name):
    model_of, tokenizer_of = MODELS[name]
    tokenizer = tokenizer_of()
    model = model_of(tokenizer)
    inputs = batch_inputs(model, [align(tokenizer, SHORT)])
    seen = attention_maps(model, inputs)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        told = model(**inputs, output_attentions=True).attentions
    for ours, theirs in zip(seen, told, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_models_without_fitting_maps_are_declined():
    tokenizer = tokenizers.wordpiece()
    mamba = MambaForCausalLM(shrink(MambaConfig, vocab_size=len(tokenizer))).eval()
    with pytest.raises(ModelError, match="and this model has none"):
        identify(mamba, tokenizer, [SHORT])
    config = shrink(BartConfig, vocab_size=len(tokenizer), eos_token_id=tokenizer.sep_token_id, pad_token_id=0)
    with pytest.raises(ModelError, match="heads are identified by"):
        identify(BartForSequenceClassification(config).eval(), tokenizer, [SHORT])


def test_long_sentences_are_skipped_and_counted():
    tokenizer = tokenizers.wordpiece(limit=8)
    found = identify(tokenizers.bert(tokenizer), tokenizer, [FILM, SHORT])
    assert (found.sentences, found.skipped, found.words) == (1, 1, 4)
    assert found.relation_offsets["amod"] == {}
    assert not found.follows[..., 2].any()  # a relation that never came is followed by no head
    with pytest.raises(
        InputError, match="the model can read none of the 1 sentences; the model reads 8 tokens at most"
    ):
        identify(tokenizers.bert(tokenizer), tokenizer, [FILM])


def test_names_of_models_are_no_paths(tmp_path):
    model, tokenizer = tokenizers.tiny("bert")
    folder = tokenizers.saved(tmp_path / "mine", model, tokenizer)
    assert identify(*load(folder), [SHORT]).model == "mine"
    assert identify(model, tokenizer, [SHORT]).model == "BertForSequenceClassification"
    assert identify(model, tokenizer, [SHORT], name="org/bert").model == "org/bert"


def test_batches_hold_sentences_of_one_length():
    rows = [AlignedSentence({}, (0,) * n, (False,) * n) for n in (3, 5, 3, 400, 400, 3)]
    model = tokenizers.tiny("bert")[0]
    assert equal_length_batches(model, rows) == [[0, 2, 5], [1], [3, 4]]
    assert [len(one) for one in equal_length_batches(model, [rows[3]] * 7)] == [3, 3, 1]  # maps grow with the square
    assert equal_length_batches(tokenizers.tiny("gpt2")[0], rows[:3]) == [[0], [2], [1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "released!"}, 'variant is "paper" or "released", got "released!"'),
        ({"relations": "nsubj"}, "relations are a sequence of names"),
        ({"xi_pos": 80}, "xi_pos is a number from 0 to 1, got 80"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        identify(*tokenizers.tiny("bert"), [SHORT], **options)


# Treebanks

BANK = """\
# text = He can't. Del!
1\tHe\the\tPRON\t_\t_\t4\tnsubj:pass\t_\t_
2-3\tcan't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
2\tca\t_\tAUX\t_\t_\t4\taux\t_\t_
3\tn't\t_\tPART\t_\t_\t4\tadvmod\t_\t_
3.1\tgo\t_\tVERB\t_\t_\t_\t_\t_\t_
4\t.\t_\tPUNCT\t_\t_\t0\troot\t_\t_
5-6\tDel\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
5\tDe\t_\tADP\t_\t_\t6\tcase\t_\t_
6\tel\t_\tDET\t_\t_\t4\tdobj\t_\t_

1\tgo\t_\tVERB\t_\t_\t0\troot\t_\t_
"""


@pytest.mark.parametrize("how", ["plain", "gz", "crlf", "bom"])
def test_reads_conllu(tmp_path, how):
    """Ranges give the spacing, empty nodes are passed over, subtypes and old names count under their relation."""
    content = {"crlf": BANK.replace("\n", "\r\n"), "bom": "\ufeff" + BANK}.get(how, BANK).encode()
    path = tmp_path / "bank.conllu"
    path.write_bytes(gzip.compress(content) if how == "gz" else content)
    first, second = read_conllu(path)
    assert [word.text for word in first.words] == ["He", "ca", "n't", ".", "De", "el"]
    assert first.text == "He can't. De el"  # `Del` is not spelt by its words
    assert [first.text[a:b] for a, b in first.spans()] == [word.text for word in first.words]
    assert [(arc.dependent, arc.governor, arc.relation) for arc in first.arcs()] == [
        (0, 3, "nsubj"),
        (2, 3, "advmod"),
        (5, 3, "obj"),
    ]
    assert second.words == (Word("go", None, "root"),)


LINE = "1\tgo\t_\tVERB\t_\t_\t0\troot\t_\t_\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no sentence; a CoNLL-U file was expected"),
        (b"# only\n\n", "holds no sentence"),
        (b"\n1 go _ VERB\n", r'bank.conllu", line 2: expected 10 columns separated by tabs, got 1: \'1 go _ VERB\''),
        (LINE.replace("\t0\t", "\t2\t").encode(), "line 1: expected a head from 0 to 1, got '2'"),
        (LINE.replace("\t0\t", "\t_\t").encode(), "line 1: expected a head from 0 to 1, got '_'"),
        (LINE.replace("\t0\t", "\t1\t").encode(), "line 1: the word is its own head"),
        ((LINE + LINE).encode(), "line 2: expected word 2 of the sentence, got id '1'"),
        (
            ("1-3" + LINE[1:] + LINE).encode(),
            "line 1: expected a range of the sentence's words, such as 1-2, got '1-3'",
        ),
        (("1.1" + LINE[1:]).encode(), "line 1: the sentence has no syntactic word"),
        (b"\xff\xfe1", "is not UTF-8 text .at byte 0."),
        (gzip.compress(LINE.encode(), mtime=0)[:-9], "is a damaged gzip file"),
        (None, 'cannot read ".*bank.conllu": No such file or directory'),
    ],
)
def test_unreadable_treebanks_say_where(tmp_path, content, message):
    path = tmp_path / "bank.conllu"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_conllu(path)


def test_the_sample_is_small_credited_and_whole():
    sentences = read_conllu(SAMPLE)
    assert len(sentences) == 500
    assert SAMPLE.stat().st_size < 200_000
    assert "CC\n  BY-SA 4.0" in (SAMPLE.parent / "README.md").read_text()
    told = [
        line[9:] for line in gzip.decompress(SAMPLE.read_bytes()).decode().split("\n") if line.startswith("# text = ")
    ]
    same = sum(one.text == text for one, text in zip(sentences, told, strict=True))
    assert same >= 495  # spacing of the words gives the text back, but for rare double blanks


def test_samples_are_spread_evenly():
    text = "".join(f"# {i}\n{LINE}\n" for i in range(7))
    assert [block[:3] for block in sample(text, 3).split("\n\n")[:-1]] == ["# 0", "# 2", "# 4"]
    assert sample(text, 9) == text


def test_parses_of_spacy():
    """Tokens with `i`, `head`, `dep_`; several sentences a text; spaCy's own names of relations."""
    tokens = [SimpleNamespace(i=i, text=t, dep_=d, whitespace_=" ") for i, (t, d) in enumerate(
        [("I", "nsubj"), ("see", "ROOT"), ("films", "dobj"), ("Go", "ROOT")])]  # fmt: skip
    for token, head in zip(tokens, (1, 1, 1, 3), strict=True):
        token.head = tokens[head]
    tokens[2].whitespace_ = ""

    class Doc(list):
        sents = (tokens[:3], tokens[3:])

    first, second = parse_texts(lambda text: Doc(tokens), ["I see films Go"])
    assert first == Sentence((Word("I", 1, "nsubj"), Word("see", None, "ROOT"), Word("films", 1, "dobj", False)))
    assert [arc.relation for arc in first.arcs()] == ["nsubj", "obj"]
    assert second == Sentence((Word("Go", None, "ROOT"),))


def test_parses_of_stanza():
    fields = [("I", 2, "nsubj", 0, 1), ("see", 0, "root", 2, 5), ("!", 2, "punct", 5, 6)]
    words = [SimpleNamespace(text=t, head=h, deprel=d, start_char=a, end_char=b) for t, h, d, a, b in fields]
    document = SimpleNamespace(sentences=[SimpleNamespace(words=words)])
    (found,) = parse_texts(lambda text: document, ["I see!"])
    assert found.words == (Word("I", 1, "nsubj"), Word("see", None, "root", False), Word("!", 1, "punct"))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([SimpleNamespace(i=0, text="I", dep_="", head=None)], "the spaCy pipeline gives no relations"),
        (["I", "see"], "expected a spaCy or Stanza pipeline; this one gave list"),
        (
            SimpleNamespace(sentences=[SimpleNamespace(words=[SimpleNamespace(text="I", head=None, deprel=None)])]),
            "the Stanza pipeline gives no relations",
        ),
    ],
)
def test_pipelines_without_parses_are_named(document, message):
    with pytest.raises(InputError, match=message):
        parse_texts(lambda text: document, ["I see"])


def test_a_real_spacy_pipeline():
    spacy = pytest.importorskip("spacy")
    nlp = spacy.blank("en")

    @spacy.Language.component("by_hand")
    def by_hand(doc: Any) -> Any:
        doc[0].head, doc[0].dep_ = doc[1], "nsubj"
        doc[1].head, doc[1].dep_ = doc[1], "ROOT"
        doc[2].head, doc[2].dep_ = doc[1], "dobj"
        return doc

    with pytest.raises(InputError, match="it needs a parser"):
        parse_texts(nlp, ["I see films"])
    nlp.add_pipe("by_hand")
    (found,) = parse_texts(nlp, ["I see films"])
    assert found.text == "I see films"
    assert [(arc.dependent, arc.governor, arc.relation) for arc in found.arcs()] == [(0, 1, "nsubj"), (2, 1, "obj")]


# Values, files and masks


def test_saved_heads_come_back_equal(by_hand, tmp_path):
    by_hand.save(tmp_path / "heads.json")
    assert Heads.load(tmp_path / "heads.json") == by_hand
    assert [path.name for path in tmp_path.iterdir()] == ["heads.json"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda data: "{", "is not JSON"),
        (lambda data: "[1]", "it has no schema_version"),
        (lambda data: json.dumps({**data, "schema_version": 2}), "has schema version 2; this relprop reads 1"),
        (lambda data: json.dumps({**data, "hits": [[1]]}), "damaged .*hits should be whole numbers of shape"),
        (
            lambda data: json.dumps({**data, "offset_rows": [[0.5] * 6]}),
            "damaged .*offset_rows should be whole numbers",
        ),
        (lambda data: json.dumps({**data, "xi_pos": 3}), "damaged .*xi_pos is a number from 0 to 1"),
        (lambda data: json.dumps({k: v for k, v in data.items() if k != "rows"}), "damaged .*rows"),
        (lambda data: json.dumps({**data, "more": 1}), "damaged .*more"),
        (lambda data: json.dumps({**data, "relation_offsets": {}}), "damaged .*relations differ"),
    ],
)
def test_damaged_files_are_refused(by_hand, tmp_path, edit, message):
    path = tmp_path / "heads.json"
    path.write_text(edit(json.loads(by_hand.to_json())))
    with pytest.raises(InputError, match=f'heads.json" .*{message}'):
        Heads.load(path)


def test_files_that_cannot_be_read_or_written_are_named(by_hand, tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        Heads.load(tmp_path / "none.json")
    with pytest.raises(InputError, match=r"cannot write .*No such file"):
        by_hand.save(tmp_path / "none" / "heads.json")


def test_thresholds_change_after_the_fact(by_hand):
    assert by_hand.positional.sum() == 2
    assert by_hand.at(xi_pos=1.0).positional.sum() == 0
    assert by_hand.at(xi_pos=1.0).xi_synt == by_hand.xi_synt
    with pytest.raises(InputError, match="xi_pos is a number from 0 to 1, got 2"):
        by_hand.at(xi_pos=2)


def test_masks_by_name(by_hand):
    np.testing.assert_array_equal(by_hand.mask(), by_hand.syntactic | by_hand.positional)
    np.testing.assert_array_equal(by_hand.mask("positional"), by_hand.positional)
    assert by_hand.mask("random", seed=3).sum() == by_hand.both.sum()
    np.testing.assert_array_equal(by_hand.mask(corrupt=0.5, seed=1), corrupted(by_hand.both, 0.5, 1))
    with pytest.raises(UnknownNameError, match='head mask "sintactic" is unknown; did you mean "syntactic"'):
        by_hand.mask("sintactic")
    with pytest.raises(InputError, match=r"the both mask of by hand is empty: .*nearest: block 0 head 0, offset -1 in"):
        by_hand.at(xi_pos=1.0, xi_synt=1.0).mask()


MASK = np.arange(48).reshape(4, 12) % 5 == 0


def test_random_masks_have_the_same_size():
    masks = [random_mask(MASK, seed) for seed in range(200)]
    assert {int(mask.sum()) for mask in masks} == {int(MASK.sum())}
    assert np.abs(np.mean(masks, 0) - MASK.mean()).max() < 0.12  # every head is drawn about as often
    np.testing.assert_array_equal(random_mask(MASK, 7), masks[7])


def test_corruption_adds_irrelevant_heads():
    """As the released code: a share of the heads outside joins; more with a larger share, all at 1."""
    some, more = corrupted(MASK, 0.25), corrupted(MASK, 0.75)
    assert int(some.sum()) == 10 + int(0.25 * 38)
    assert (some >= MASK).all()
    assert (some <= more).all()
    assert corrupted(MASK, 1).all()
    np.testing.assert_array_equal(corrupted(MASK, 0), MASK)
    assert not np.array_equal(corrupted(MASK, 0.25, 1), some)


def test_corruption_may_swap_heads():
    half = corrupted(MASK, 0.5, how="swap")
    assert (half.sum(), (half & MASK).sum()) == (10, 5)
    assert not (corrupted(MASK, 1, how="swap") & MASK).any()
    full = np.ones((2, 2), bool)
    np.testing.assert_array_equal(corrupted(full, 1, how="swap"), full)  # there is nothing to swap with
    with pytest.raises(InputError, match="from 0 to 1, got 20"):
        corrupted(MASK, 20)
    with pytest.raises(InputError, match='how is "add" or "swap", got "drop"'):
        corrupted(MASK, 0.5, how="drop")


# The embedded model


def test_the_embedded_models_heads_are_known():
    """Its file fits the model: the sample gives nearly the shares that the whole treebank gave."""
    model, tokenizer = load("sentiment")
    known, again = heads_of(model), identify(model, tokenizer)
    assert (known.shape, known.sentences) == ((2, 12), 2001)
    np.testing.assert_allclose(known.offset_share, again.offset_share, atol=0.03)
    np.testing.assert_allclose(known.alpha, again.alpha, atol=0.1)
    assert not known.at(xi_pos=0.8, xi_synt=0.1).both.any()  # docs/heads.md says so
    assert [(f.block, f.head, f.what) for f in known.findings()] == [(0, 2, "offset -1")]


def test_unknown_heads_say_what_to_do():
    with pytest.raises(ModelError, match=r"relprop heads FOLDER --save FOLDER/heads.json"):
        heads_of(tokenizers.tiny("bert")[0])


# Command line and figures


@pytest.fixture
def relprop(monkeypatch, capfd):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("warnings.showwarning", __import__("warnings").showwarning)  # `main` sets its own

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["relprop", "heads", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return (int(ended.value.code or 0), *capfd.readouterr())

    return run


def test_command_finds_saves_and_draws(relprop, tmp_path):
    files = {"--save": "heads.json", "--offsets": "offsets.png", "--map": "heads.svg"}
    options = [part for name, file in files.items() for part in (name, tmp_path / file)]
    code, out, err = relprop("--limit", 60, "--xi-pos", 0.7, *options)
    assert code == 0
    saved = Heads.load(tmp_path / "heads.json")
    share = f"{saved.offset_share[0, 2]:.3f}"
    row = next(line for line in out.splitlines() if "offset -1" in line)
    assert row.split() == ["0", "2", "positional", "offset", "-1", share, "0.700"]
    assert "sentiment, 2 blocks of 12 heads: 1 positional, 0 syntactic, 0 positional and syntactic, 23 neither" in out
    assert f"the sample of UD English EWT, its first 60: 60 sentences, {saved.words:,} words" in out
    assert err == "".join(f"wrote {tmp_path / file}\n" for file in files.values())
    assert (tmp_path / "offsets.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "heads.svg").read_text()


def test_command_says_when_no_head_passes(relprop, tmp_path):
    bank = tmp_path / "own.conllu"
    bank.write_text(LINE + "\n" + BANK)
    code, out, _ = relprop("sentiment", "--treebank", bank, "--xi-pos", 1)
    assert code == 0
    assert "no head keeps to one offset in more than 1.0 of the rows" in out
    assert "own.conllu: 3 sentences, 8 words" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--treebank", "none.conllu"], 'relprop: cannot read "none.conllu": No such file or directory'),
        (["--save", "heads.txt"], 'relprop: cannot write "heads.txt": the name must end in .json'),
        (["--map", "heads.jpg"], 'relprop: cannot write "heads.jpg": the name must end in .png, .svg or .pdf'),
        (["--xi-synt", "7"], "relprop: xi_synt is a number from 0 to 1, got 7.0"),
        (["no/such/folder"], 'relprop: there is no folder "no/such/folder"'),
    ],
)
def test_command_errors_are_one_sentence(relprop, arguments, message):
    code, out, err = relprop(*arguments)
    assert (code, out) == (1, "")
    assert err.strip().startswith(message)


def test_offsets_are_drawn_as_bars():
    figure = figures.offsets_figure({"amod": {-1: 0.7, -2: 0.2, 30: 0.1}, "obj": {2: 1.0}, "none": {}}, "a bank")
    axis, other, empty = figure.axes
    bars = {round(bar.get_x() + 0.4): (round(bar.get_height(), 3), bar.get_facecolor()) for bar in axis.patches}
    assert {i: height for i, (height, _) in bars.items()} == {-1: 0.7, -2: 0.2}
    assert bars[-1][1] != bars[-2][1]  # the tallest is marked
    assert "0.10 farther" in axis.get_title()
    assert "farther" not in other.get_title()
    assert not empty.patches


def test_kinds_are_drawn_in_their_colours():
    kinds = [["positional", "neither"], ["syntactic", "positional and syntactic"]]
    (axis,) = figures.heads_figure(kinds, "a model").axes
    drawn = {(p.get_x() + 0.46, p.get_y() + 0.46): p.get_facecolor() for p in axis.patches}
    assert len(drawn) == len(set(drawn.values())) == 4
    assert [text.get_text() for text in axis.texts] == ["P", "", "S", "B"]


def test_pictures_have_known_endings(tmp_path):
    with pytest.raises(
        ValueError, match=r'cannot save a picture as "heads.jpg"; the name must end in .png, .svg, .pdf'
    ):
        figures.save(figures.heads_figure([["neither"]], ""), tmp_path / "heads.jpg")
