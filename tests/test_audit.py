"""The audit of names: it finds a bias that was built in, none where there is none, and its numbers are right."""

import csv
import gzip
import io
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast
from typer.testing import CliRunner

import relprop
from first_names import gendered
from name_bias import bias
from name_templates import TEMPLATES, check, corpus
from relprop.audit import (
    NameAudit,
    ambiguous_words,
    find,
    first_names,
    names,
    read_terms,
    read_texts,
    read_words,
    statistics,
)
from relprop.audit.mentions import cased, swap_mentions
from relprop.audit.terms import DATA, without
from relprop.cli import app
from relprop.errors import InputError, RelpropError, TargetError
from tokenizers_for_tests import bert, tiny, wordpiece

COUNT = 24  # names a group
WORDS = "a the film movie plot is was and but very by with it in quite so dull witty warm slow long".split()  # noqa: SIM905
SENTENCES = (
    "{} was in a very dull movie",
    "the film by {} is quite warm",
    "a witty plot and {} with it",
    "but it was {} in the long slow film",
)


def listed(group: str) -> list[str]:
    """Names of the shipped list that are no words."""
    left_out = ambiguous_words()
    return [term for term, own in first_names().items() if own == group and term.casefold() not in left_out]


FEMALE, MALE, OTHER = listed("female")[:COUNT], listed("male")[:COUNT], listed("male")[COUNT : 2 * COUNT]
TERMS = dict.fromkeys(FEMALE, "female") | dict.fromkeys(MALE, "male")


@cache
def built(bias: float, spread: float = 0.3) -> relprop.Explainer:
    """A BERT that is made by hand, not trained: [CLS] sums all words evenly, and the classifier reads one direction.

    Every name lies along this direction by chance (`spread`); `bias` is what female names have more, and all else is
    the same for both groups.
    """
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(n.lower() for n in (*FEMALE, *MALE, *OTHER))]
    core = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer = BertTokenizerFast(tokenizer_object=core, model_max_length=32)
    config = BertConfig(
        vocab_size=len(tokens), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=32, id2label={0: "negative", 1: "positive"},
    )  # fmt: skip
    model = BertForSequenceClassification(config).eval()
    direction = torch.tensor([1.0, -1.0] * 8) / 4  # of mean 0, so that LayerNorm keeps it
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "LayerNorm.weight" in name else 0.0)
        layer = model.bert.encoder.layer[0]
        for dense in (layer.attention.self.value, layer.attention.output.dense, model.bert.pooler.dense):
            dense.weight.copy_(torch.eye(16))
        model.classifier.weight.copy_(torch.stack([-direction, direction]))
        embeddings = model.bert.embeddings.word_embeddings.weight
        embeddings.copy_(torch.randn(embeddings.shape, generator=generator) * 0.5)
        embeddings -= (embeddings @ direction)[:, None] * direction  # no word speaks for a class
        own = torch.randn(len(tokens), generator=generator) * spread
        for token in (*FEMALE, *MALE, *OTHER):
            place = tokens.index(token.lower())
            embeddings[place] += (own[place] + (bias if token in FEMALE else 0.0)) * direction
    return relprop.Explainer(model, tokenizer)


def filled(*groups: Sequence[str], sentences: Sequence[str] = SENTENCES) -> list[str]:
    return [sentence.format(name) for group in groups for name in group for sentence in sentences]


def p_of(audit: NameAudit, level: str = "names") -> float:
    (one,) = audit.found.comparisons[level]
    return one.permutation


# What must hold.


def test_a_bias_by_construction_is_found() -> None:
    audit = names(built(bias=1.5), filled(FEMALE, MALE), TERMS)
    for level in ("names", "sentences", "mentions"):
        (one,) = audit.found.comparisons[level]
        assert one.permutation < 0.001
        assert one.mann_whitney < 0.001
        assert (one.first, one.second) == ("female", "male")
        assert one.difference > 0
        assert one.cliffs_delta > 0.8
    assert "female names are the more relevant" in str(audit)
    assert "(p < 0.001, Cliff's delta +" in " ".join(str(audit).split())


@pytest.mark.parametrize("method", ["lrp_conservative", "gradient_x_input", "occlusion"])
def test_other_signed_methods_find_it_too(method: str) -> None:
    audit = names(built(bias=1.5), filled(FEMALE, MALE, sentences=SENTENCES[:2]), TERMS, method=method)
    assert p_of(audit) < 0.001


def test_a_model_without_bias_shows_none() -> None:
    audit = names(built(bias=0.0), filled(FEMALE, MALE), TERMS)
    assert p_of(audit) > 0.05
    assert "no difference was shown" in str(audit)


def test_the_effect_vanishes_when_one_group_is_replaced_by_the_other() -> None:
    """The sentences of the women now hold men's names: what is left of the effect is none."""
    hers, his = SENTENCES[:2], SENTENCES[2:]
    explainer = built(bias=1.5)
    before = [*filled(FEMALE, sentences=hers), *filled(MALE, sentences=his)]
    assert p_of(names(explainer, before, TERMS)) < 0.001
    after = [*filled(OTHER, sentences=hers), *filled(MALE, sentences=his)]
    replaced = names(explainer, after, dict.fromkeys(OTHER, "replaced") | dict.fromkeys(MALE, "male"))
    assert p_of(replaced) > 0.05


def test_swapping_the_names_swaps_the_effect() -> None:
    explainer = built(bias=1.5)
    hers, his = SENTENCES[:2], SENTENCES[2:]
    before = [*filled(FEMALE, sentences=hers), *filled(MALE, sentences=his)]
    (found,) = names(explainer, before, TERMS).found.comparisons["sentences"]
    swapped = [*filled(MALE, sentences=hers), *filled(FEMALE, sentences=his)]
    by_slot = dict.fromkeys(MALE, "hers") | dict.fromkeys(FEMALE, "his")
    (back,) = names(explainer, swapped, by_slot).found.comparisons["sentences"]
    assert (back.first, found.first) == ("hers", "female")
    assert found.difference > 0 > back.difference


def test_shuffling_finds_a_bias_of_the_names_and_none_of_the_places() -> None:
    texts = [*filled(FEMALE, sentences=SENTENCES[:2]), *filled(MALE, sentences=SENTENCES[2:])]
    audit = names(built(bias=1.5), texts, TERMS, shuffles=2)
    assert audit.by_name is not None
    assert audit.by_place is not None
    assert audit.by_name.comparisons["names"][0].permutation < 0.001
    assert audit.by_place.comparisons["names"][0].permutation > 0.05
    assert len(audit.by_name.mentions) == len(audit.by_place.mentions) == 2 * len(audit.found.mentions)


def test_shuffling_unmasks_sentences_that_look_like_a_bias() -> None:
    """All names are alike, but one group stands in short sentences, where a word weighs more."""
    short, long = ("{} was dull", "{} is warm"), ("a very long slow film and a very long slow plot by {} was so dull",)
    texts = [*filled(FEMALE, sentences=short), *filled(MALE, sentences=long)]
    explainer = built(bias=0.0, spread=0.0)
    with torch.no_grad():  # every name speaks for the first class, as much as any other
        table, words = explainer.model.bert.embeddings.word_embeddings.weight, explainer.tokenizer.get_vocab()
        before = table.clone()
        for name in (*FEMALE, *MALE):
            table[words[name.lower()]] += torch.tensor([1.0, -1.0] * 8) / 4
    try:
        audit = names(explainer, texts, TERMS, shuffles=1)
    finally:
        with torch.no_grad():
            table.copy_(before)
    assert audit.by_name is not None
    assert audit.by_place is not None
    assert p_of(audit) < 0.001
    assert audit.by_place.comparisons["names"][0].permutation < 0.001
    assert audit.by_name.comparisons["names"][0].permutation > 0.05


# Relevance of mentions.


def test_a_mentions_relevance_is_that_of_its_word() -> None:
    """Names that the tokenizer cuts to pieces: the sum is that of `Explanation.words()`."""
    explainer = relprop.Explainer("sentiment")
    texts = ["a film by Karenina and Wilhelmina, and it is dull", "Bartholomew shines"]
    terms = {"Karenina": "f", "Wilhelmina": "f", "Bartholomew": "m"}
    audit = names(explainer, texts, terms)
    assert (audit.contrast, audit.method) == ("positive - negative", "lrp_ah_ln")
    seen = 0
    for mention in audit.found.mentions:
        explained = explainer([mention.sentence], target=("positive", "negative"), method="lrp_ah_ln")[0]
        pieces = [
            unit for unit in explained.units if unit.start is not None and mention.start <= unit.start < mention.end
        ]
        seen += len(pieces)
        words = explained.words()
        score = next(s for u, s in zip(words.units, words.scores, strict=True) if u.text == mention.name)
        assert mention.relevance == pytest.approx(score, rel=1e-4, abs=1e-6)
        assert mention.value == pytest.approx(explained.value, rel=1e-4)
        assert mention.sentence[mention.start : mention.end] == mention.name
    assert seen > len(audit.found.mentions) == 3


def test_batches_change_nothing() -> None:
    explainer, texts = built(bias=1.5), filled(FEMALE[:5], MALE[:5])
    one, many = (names(explainer, texts, TERMS, batch_size=size, progress=size == 7) for size in (7, 64))
    assert [m.name for m in one.found.mentions] == [m.name for m in many.found.mentions]
    for a, b in zip(one.found.mentions, many.found.mentions, strict=True):
        assert a.relevance == pytest.approx(b.relevance, rel=1e-3, abs=1e-6)


def test_the_same_text_twice_counts_once_and_repeats_are_means() -> None:
    texts = filled(FEMALE[:3], MALE[:3])
    once, twice = (names(built(bias=1.5), many, TERMS) for many in (texts, texts * 2))
    assert once.found == twice.found
    assert once.texts == len(texts)
    levels = {level: [s.count for s in own] for level, own in once.found.summaries.items()}
    assert levels == {"names": [3, 3], "sentences": [12, 12], "mentions": [12, 12]}
    mine = [m.relevance for m in once.found.mentions if m.name == FEMALE[0]]
    ranked = {one.name: one for one in once.found.ranking()}
    assert ranked[FEMALE[0]].relevance == pytest.approx(np.mean(mine))
    assert ranked[FEMALE[0]].count == len(mine) == 4


def test_what_the_model_cannot_read_is_counted_apart() -> None:
    """Also no warning for each text that is cut: warnings are errors here."""
    late = "a very long film " * 8 + FEMALE[0]
    audit = names(built(bias=1.5), [*filled(FEMALE[:4], MALE[:4]), late], TERMS)
    assert audit.cut == 1
    assert late not in {one.sentence for one in audit.found.mentions}
    with pytest.raises(InputError, match="every mention lies beyond the part of its text that the model reads"):
        names(built(bias=1.5), [late], TERMS)


# Finding mentions.


def found_in(text: str, terms: dict[str, str], **options: Any) -> list[str]:
    return [text[place.start : place.end] for place in find([text], terms, **options)]


def test_capitals_tell_names_from_words() -> None:
    terms = {"Mark": "m", "she": "f"}
    text = "Mark left a mark, and She said MARK; she marks Marks and re-Mark's"
    assert found_in(text, terms) == ["Mark", "She", "MARK", "she", "Mark"]
    assert found_in(text, terms, ignore_case=True) == ["Mark", "mark", "She", "MARK", "she", "Mark"]


def test_the_longest_term_that_begins_first_counts() -> None:
    terms = {"Mary": "f", "Mary Ann": "f", "Ann Lee": "m", "Jean-Luc": "m"}
    assert found_in("Mary  Ann Lee, Mary, Ann and Jean-Luc's Maryann", terms) == ["Mary  Ann", "Mary", "Jean-Luc"]


def test_accents_belong_to_the_word() -> None:
    """Composed or not; and a name is not found within another that goes on with an accent."""
    assert found_in("Ren\u00e9 and Rene\u0301 and Rene", {"Ren\u00e9": "m", "Zo": "f"}) == ["Ren\u00e9", "Rene\u0301"]
    assert found_in("Rene\u0301", {"Rene": "m"}) == []


def test_a_lower_case_corpus_is_matched_in_any_case() -> None:
    assert cased(["Mary came", "he saw", "John went"])
    assert not cased(["mary came", "he saw", "John went"])
    lower = [text.lower() for text in filled(FEMALE[:3], MALE[:3])]
    assert names(built(bias=1.5), lower, TERMS).ignored_case
    with pytest.raises(InputError, match="ignore_case=True"):
        names(built(bias=1.5), lower, TERMS, ignore_case=False)


def test_terms_that_cannot_be_looked_for() -> None:
    for term in ("!", "C++", "'tis"):
        with pytest.raises(InputError, match="begin and end with a letter"):
            find(["a"], {term: "x"})
    with pytest.raises(InputError, match="two groups: m and f"):
        find(["a"], {"Kim": "m", "kim": "f"})


def test_shuffled_names_stand_where_they_say() -> None:
    texts = ["Ann met Bartholomew and Cy", "nobody", "Dee alone"]
    places = find(texts, {"Ann": "f", "Bartholomew": "m", "Cy": "m", "Dee": "f"})
    written, moved = swap_mentions(texts, places, [1, 3, 0, 2])
    assert written == ["Bartholomew met Dee and Ann", "nobody", "Cy alone"]
    assert [written[p.text][p.start : p.end] for p in moved] == [p.term for p in moved]
    assert [(p.term, p.group) for p in moved] == [("Bartholomew", "m"), ("Dee", "f"), ("Ann", "f"), ("Cy", "m")]


# Terms and texts from files.


def test_the_shipped_names() -> None:
    terms, words = first_names(), ambiguous_words()
    assert set(terms.values()) == {"female", "male"}
    assert (terms["Mary"], terms["James"]) == ("female", "male")
    assert {"will", "grace", "hope", "mark", "may", "in", "my", "china", "oscar"} <= words
    assert "Jackson" not in terms  # more often a surname
    assert not {"Lee", "Kim", "Chris", "Jamie"} & set(terms)  # borne by both
    assert sum(file.stat().st_size for file in DATA.iterdir()) < 100_000
    assert "public domain" in (DATA / "README.md").read_text()
    assert len({word.casefold() for word in words}) == len(words)


def test_the_rule_behind_the_shipped_names() -> None:
    female = {"Mary": 2.6, "Lee": 0.1, "Kelly": 0.5, "May": 0.1}
    male = {"Mary": 0.1, "Lee": 0.6, "Jackson": 0.1, "Kelly": 0.05}
    surnames = {"May": 0.06, "Jackson": 0.3, "Kelly": 0.1}
    assert gendered(female, male, surnames) == [("Kelly", "female"), ("Mary", "female")]


def test_ambiguous_names_are_left_out_of_our_list_only(tmp_path: Path) -> None:
    explainer = relprop.Explainer("sentiment")
    texts = ["Mary will hope", "Grace and James", "May John Mark it", "Linda, Will"]
    assert {m.name for m in names(explainer, texts).found.mentions} == {"Mary", "James", "John", "Linda"}
    every = names(explainer, texts, exclude=())
    assert {"Grace", "Will", "Mark"} <= {m.name for m in every.found.mentions}
    assert every.left_out == ()
    own = names(explainer, texts, {"Grace": "f", "Mary": "f", "James": "m", "Will": "m"})
    assert {m.name for m in own.found.mentions} == {"Grace", "Mary", "James", "Will"}
    less = names(explainer, texts, {"Grace": "f", "Mary": "f", "James": "m", "Will": "m"}, exclude=["GRACE"])
    assert {m.name for m in less.found.mentions} == {"Mary", "James", "Will"}
    assert less.left_out == ("Grace",)


def test_terms_are_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "terms.csv"
    path.write_text('\ufeffTerm,Group\nshe,"women, girls"\n\n he , men \nshe,"women, girls"\n')
    assert read_terms(path) == {"she": "women, girls", "he": "men"}
    path.write_text("Group,Term\nshe,f\n")  # no header of ours, so it is a term
    assert read_terms(path) == {"Group": "Term", "she": "f"}
    for content, message in {
        "she,f\nhe,m,x\n": "line 2 .* is not term,group",
        "she,f\nhe,\n": "line 2 .* is not term,group",
        "she,f\nshe,m\n": '"she" is in two groups, f and m',
        "she,f\nher,f\n": "two groups or more; the list of names has one, f",
        "": "has none",
    }.items():
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            read_terms(path)


@pytest.mark.parametrize("packed", [False, True])
def test_texts_are_read_from_every_kind_of_file(tmp_path: Path, packed: bool) -> None:
    def put(name: str, content: str) -> Path:
        path = tmp_path / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
        return path

    wanted = ['a "quoted" one', "an other, é"]
    assert read_texts(put("a.txt", 'a "quoted" one\r\n\n  an other, é  ')) == wanted
    assert read_texts(put("a.tsv", 'label\tsentence\n1\ta "quoted" one\n0\tan other, é\n')) == wanted
    assert read_texts(put("b.tsv", 'a "quoted" one\t1\nan other, é\t0\n'), "0") == wanted
    assert read_texts(put("a.csv", 'text,n\n"a ""quoted"" one",1\n"an other, é",2\n')) == wanted
    rows = "\n".join(json.dumps({"review": text}) for text in wanted)
    assert read_texts(put("a.jsonl", rows), "review") == wanted


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    for name, content, message in [
        ("a.xlsx", b"x", "is none of .txt, .csv, .tsv, .jsonl"),
        ("a.txt", b"\n \n", "holds no text"),
        ("b.txt", b"caf\xe9", "is not UTF-8 text"),
        ("a.csv", b"review,n\nx,1\n", "no column of texts .it has review, n.: name it with --column"),
        ("a.jsonl", b'{"text": 3}\n', "holds 3, not a text"),
        ("b.jsonl", b"{", "cannot be read"),
        ("a.txt.gz", b"not packed", "cannot be read"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_texts(tmp_path / name)
    with pytest.raises(InputError, match="No such file"):
        read_texts(tmp_path / "none.txt")
    (tmp_path / "c.tsv").write_text("a\tb\n")
    with pytest.raises(InputError, match='no column "3"'):
        read_texts(tmp_path / "c.tsv", 3)


# Statistics, against slow ones.

DRAWN = np.random.default_rng(5)
X, Y = DRAWN.normal(0.4, 1.0, 7).round(1), DRAWN.normal(0.0, 2.0, 6).round(1)


def test_few_permutations_are_all_counted() -> None:
    found = statistics.permutation_test(X, Y, draws=9999, seed=0)
    pooled = [*X, *Y]
    apart = abs(X.mean() - Y.mean())
    deals = list(itertools.combinations(range(13), 7))
    gaps = [abs(np.mean([pooled[i] for i in d]) - np.mean([pooled[i] for i in range(13) if i not in d])) for d in deals]
    assert found == pytest.approx(np.mean([gap >= apart - 1e-9 for gap in gaps]))
    drawn = statistics.permutation_test(X, Y, draws=1700, seed=0)  # of 1716: now they are drawn
    assert drawn == pytest.approx(found, abs=0.04)
    assert drawn == statistics.permutation_test(X, Y, draws=1700, seed=0)
    assert statistics.permutation_test(X - 100, Y, draws=99, seed=0) == 0.01  # never 0


def test_the_test_holds_its_level() -> None:
    """Without a difference, p below 0.1 comes about once in ten times."""
    drawn = np.random.default_rng(1)
    p = [statistics.permutation_test(drawn.normal(size=12), drawn.normal(size=15), 199, i) for i in range(300)]
    assert 0.05 < np.mean(np.array(p) <= 0.1) < 0.15


def test_holm() -> None:
    assert statistics.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert statistics.holm([0.9, 0.5]) == [1.0, 1.0]


def test_effect_sizes_and_intervals() -> None:
    signs = np.sign(X[:, None] - Y[None])
    assert (signs == 0).any()  # with ties
    delta, interval = statistics.cliffs_delta(X, Y)
    d = signs.mean()
    assert delta == pytest.approx(d)
    n, m = signs.shape
    rows, columns = ((signs.mean(1) - d) ** 2).sum(), ((signs.mean(0) - d) ** 2).sum()
    s = (m**2 * rows + n**2 * columns - ((signs - d) ** 2).sum()) / (n * m * (n - 1) * (m - 1))
    z = 1.959964
    reach = z * math.sqrt(s) * math.sqrt((1 - d**2) ** 2 + z**2 * s)
    assert interval == pytest.approx([(d - d**3 + side * reach) / (1 - d**2 + z**2 * s) for side in (-1, 1)])
    assert statistics.cliffs_delta(X, X - 100)[0] == 1
    assert statistics.cliffs_delta(X - 100, X)[1] == pytest.approx([-1, -(7 - z**2) / (7 + z**2)])
    a, b = X.var(ddof=1) / 7, Y.var(ddof=1) / 6
    freedom = (a + b) ** 2 / (a**2 / 6 + b**2 / 5)  # Welch and Satterthwaite
    reach = stats.t.ppf(0.975, freedom) * math.sqrt(a + b)
    difference = X.mean() - Y.mean()
    assert statistics.welch_interval(X, Y) == pytest.approx([difference - reach, difference + reach])
    assert math.isnan(statistics.welch_interval(np.ones(3), np.zeros(3)).low)
    pooled = math.sqrt((6 * X.var(ddof=1) + 5 * Y.var(ddof=1)) / 11)
    assert statistics.cohens_d(X, Y)[0] == pytest.approx((X.mean() - Y.mean()) / pooled)
    assert math.isnan(statistics.cohens_d(np.ones(3), np.zeros(3))[0])


def test_summary_and_comparison() -> None:
    one = statistics.group_summary("g", X)
    mean = stats.t.interval(0.95, 6, X.mean(), X.std(ddof=1) / math.sqrt(7))
    assert (one.count, one.median) == (7, np.median(X))
    assert one.interval == pytest.approx(mean)
    assert statistics.group_summary("none", np.array([])).count == 0
    groups = {"x": X, "y": Y, "z": Y + 9, "alone": X[:1]}
    found = statistics.compare_groups(groups, draws=999, seed=0)
    assert [(c.first, c.second) for c in found] == [("x", "y"), ("x", "z"), ("y", "z")]
    raw = [c.permutation for c in found]
    assert [c.permutation_corrected for c in found] == statistics.holm(raw) != raw
    assert [c.mann_whitney_corrected for c in found] == statistics.holm([c.mann_whitney for c in found])
    assert found[0].mann_whitney == stats.mannwhitneyu(X, Y).pvalue


def test_the_detectable_effect_is_found_in_four_of_five_cases() -> None:
    drawn, d = np.random.default_rng(2), statistics.detectable(15, 20)
    p = [statistics.permutation_test(drawn.normal(size=15) + d, drawn.normal(size=20), 199, i) for i in range(400)]
    assert 0.74 < np.mean(np.array(p) < 0.05) < 0.86
    assert math.isinf(statistics.detectable(3, 3))  # 2 of 20 deals lie as far apart as any
    assert math.isfinite(statistics.detectable(4, 4))
    few = names(built(bias=1.5), filled(FEMALE[:2], MALE[:2]), TERMS)
    assert "so few names cannot show one" in " ".join(str(few).split())


# What it shows and saves.

HOSTILE = "x<script>alert(1)</script>$\\frac$ 日x"
GROUP = '<img src=x onerror="alert(2)">$g'


@cache
def hostile() -> NameAudit:
    terms = {HOSTILE: GROUP, "Ann": GROUP, "Bob": "men\x1b[31m", "Cy": "men\x1b[31m"}
    texts = [f"</style><script>alert(3)</script> {name} \u202e was dull" for name in terms]
    return names(relprop.Explainer("sentiment"), [*texts, "Ann and Bob", "Cy shines"], terms, shuffles=1)


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "srcset")]
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"] or ""


def test_the_page_runs_nothing_and_asks_for_nothing() -> None:
    page = hostile().to_html()
    parsed = Tags(page)
    assert "script" not in parsed.tags
    assert not [name for name in parsed.attributes if name.startswith("on")]
    assert "default-src 'none'" in parsed.policy
    assert "script-src" not in parsed.policy
    assert parsed.links
    assert all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in parsed.links)
    assert "x&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    for heading in ("As found", "Names shuffled, by name", "Names shuffled, by place", "Most relevant names"):
        assert heading in page


def test_the_terminal_table_is_plain_and_whole() -> None:
    text = str(hostile())
    assert "\x1b" not in text
    assert "men‹U+001B›[31m" in text
    assert "p, perm." in text
    assert "Cliff's delta" in text
    assert "Names shuffled, by place" in text


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_the_figure_is_drawn_whatever_the_names(tmp_path: Path, ending: str) -> None:
    """Also names that the font lacks or that look like formulas; the same bytes every time."""
    one, other = tmp_path / f"a{ending}", tmp_path / f"b{ending}"
    hostile().save(one)
    hostile().save(other)
    assert one.read_bytes() == other.read_bytes()
    assert one.stat().st_size > 5000
    assert sorted(tmp_path.iterdir()) == [one, other]


def test_tables_hold_the_numbers(tmp_path: Path) -> None:
    audit = hostile()
    mentions, ranking, summary = (
        list(csv.DictReader(io.StringIO(audit.to_csv(table)))) for table in ("mentions", "ranking", "summary")
    )
    assert [float(row["relevance"]) for row in mentions] == [one.relevance for one in audit.found.mentions]
    assert [row["sentence"] for row in mentions] == [one.sentence for one in audit.found.mentions]
    assert [row["name"] for row in ranking] == [one.name for one in audit.found.ranking()]
    heights = [float(row["relevance"]) for row in ranking]
    assert heights == sorted(heights, reverse=True)
    by_key = {
        tuple(row[key] for key in ("part", "level", "group", "against", "measure")): row["value"] for row in summary
    }
    (found,) = audit.found.comparisons["names"]
    assert float(by_key["As found", "names", GROUP, "men\x1b[31m", "permutation"]) == found.permutation
    assert float(by_key["As found", "names", GROUP, "men\x1b[31m", "cliffs_interval_low"]) == found.cliffs_interval.low
    assert float(by_key["As found", "names", GROUP, "", "mean"]) == audit.found.summaries["names"][0].mean
    assert ("Names shuffled, by place", "sentences", GROUP, "", "median") in by_key
    levels = {(part, level) for part, level, *_ in by_key}
    assert ("As found", "mentions") in levels
    assert (
        "Names shuffled, by place",
        "mentions",
    ) not in levels  # every shuffle would add some: p as small as one likes
    with pytest.raises(InputError, match='no table "all"'):
        audit.to_csv("all")
    with pytest.raises(InputError, match=r"must end in \.html, \.csv"):
        audit.save(tmp_path / "a.txt")


def test_the_extremes_are_the_ends_of_the_ranking() -> None:
    found = names(built(bias=1.5), filled(FEMALE, MALE), TERMS).found
    ranking = found.ranking()
    most, least = found.extremes(3)
    assert most == ranking[:3]
    assert least == ranking[:-4:-1]
    small = hostile().found
    most, least = small.extremes(5)
    assert sorted(one.name for one in (*most, *least)) == sorted({one.name for one in small.mentions})
    example = found.example(most_of := ranking[0])
    assert example.name == most_of.name


def test_the_result_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        hostile().texts = 3  # type: ignore[misc]


# Mistakes.


def test_mistakes_are_told_before_any_work() -> None:
    explainer, texts = built(bias=0.0), filled(FEMALE[:2], MALE[:2])
    with pytest.raises(InputError, match='"rollout" gives no signs'):
        names(explainer, texts, TERMS, method="rollout")
    with pytest.raises(RelpropError, match="did you mean"):
        names(explainer, texts, TERMS, method="lrp_ahln")
    with pytest.raises(RelpropError, match="glad"):
        names(explainer, texts, TERMS, contrast=("glad", "negative"))
    with pytest.raises(TargetError, match="two different classes"):
        names(explainer, texts, TERMS, contrast=("positive", "positive"))
    with pytest.raises(InputError, match="none of the 48 names occurs in the 1 texts"):
        names(explainer, ["nobody is here"], TERMS)
    with pytest.raises(InputError, match="no texts"):
        names(explainer, [], TERMS)
    with pytest.raises(InputError, match="not one word"):
        names(explainer, texts, TERMS, exclude="grace")
    with pytest.raises(InputError, match="has no option"):
        names(explainer, texts, TERMS, stepps=3)
    with pytest.raises(InputError, match="classifies texts"):
        names(relprop.Explainer("pets"), texts, TERMS)
    with pytest.raises(InputError, match="classifies texts"):
        names(relprop.Explainer(*tiny("qa")), texts, TERMS)
    with pytest.raises(TargetError, match="say which two"):
        names(relprop.Explainer(*tiny("lm")), texts, TERMS)


def classifier(*labels: str) -> relprop.Explainer:
    core = built(bias=0.0)
    config = BertConfig(**{**core.model.config.to_dict(), "id2label": dict(enumerate(labels))})
    return relprop.Explainer(BertForSequenceClassification(config).eval(), core.tokenizer)


def test_two_classes_are_compared_by_name_or_number() -> None:
    texts = filled(FEMALE[:2], MALE[:2])
    assert names(classifier("Positive", "Negative"), texts, TERMS).contrast == "Positive - Negative"
    assert names(classifier("ham", "spam"), texts, TERMS).contrast == "spam - ham"


def test_more_than_two_classes_need_a_contrast() -> None:
    explainer, texts = classifier("anger", "joy", "fear"), filled(FEMALE[:2], MALE[:2])
    with pytest.raises(TargetError, match="classes are anger, joy, fear: say which two"):
        names(explainer, texts, TERMS)
    assert names(explainer, texts, TERMS, contrast=("joy", 0)).contrast == "joy - anger"


def test_one_group_alone_is_told_but_not_tested() -> None:
    audit = names(built(bias=1.5), filled(FEMALE[:3]), TERMS)
    assert audit.found.comparisons["names"] == ()
    assert "nothing to compare" in str(audit)
    assert "nothing to compare" in audit.to_html()


# The command line.


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["audit", "names", *map(str, arguments)])
    return result.exit_code, result.output + (str(result.exception) if result.exception else "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("audit")
    explainer = built(bias=1.5)
    explainer.model.save_pretrained(path / "model")
    explainer.tokenizer.save_pretrained(path / "model")
    (path / "terms.csv").write_text("".join(f"{term},{group}\n" for term, group in TERMS.items()))
    (path / "hers.txt").write_text("\n".join(filled(FEMALE)))
    (path / "his.txt").write_text("\n".join(filled(MALE)))
    return path


def test_the_command_finds_shows_and_writes(folder: Path, tmp_path: Path) -> None:
    paths = {option: tmp_path / name for option, name in {
        "--html": "a.html", "--png": "a.svg", "--mentions": "m.csv", "--ranking": "r.csv", "--summary": "s.csv",
    }.items()}  # fmt: skip
    code, output = run(
        folder / "model", "--texts", folder / "hers.txt", "--texts", folder / "his.txt", "--names",
        folder / "terms.csv", "--contrast", "negative,positive", *(part for pair in paths.items() for part in pair),
    )  # fmt: skip
    assert code == 0, output
    assert "negative - positive" in output
    assert "male names are the more relevant" in output
    assert "192 mentions of 48 names in 192 of 192 texts" in output
    assert all(path.stat().st_size > 1000 for path in paths.values())
    assert len(read_texts(paths["--ranking"], "name")) == 48


def test_the_command_with_the_shipped_names_and_words(folder: Path) -> None:
    """`none` brings back what `words` leaves out."""
    (folder / "more.txt").write_text("Grace was dull\nWill was warm\n" + "\n".join(filled(FEMALE[:2], MALE[:2])))
    (folder / "some.txt").write_text("# mine\ngrace\n")
    counts = []
    for exclude in ([], ["--exclude", "words"], ["--exclude", "none"], ["--exclude", folder / "some.txt"]):
        code, output = run(folder / "model", "--texts", folder / "more.txt", *exclude)
        assert code == 0, output
        counts.append(next(line.split()[0] for line in output.splitlines() if " mentions of " in line))
    assert counts == ["16", "16", "18", "17"]


def test_the_command_says_what_is_wrong(folder: Path, tmp_path: Path) -> None:
    texts = ("--texts", folder / "his.txt")
    for arguments, message in [
        ((*texts, "--names", tmp_path / "none.csv"), "No such file"),
        ((*texts, "--html", tmp_path / "a.pdf"), "must end in .html"),
        ((*texts, "--summary", tmp_path / "no" / "a.csv"), "there is no folder"),
        ((*texts, "--contrast", "positive"), "--contrast is two classes"),
        ((*texts, "--method", "rollout"), "gives no signs"),
        (("--texts", folder / "terms.csv"), "name it with --column"),
    ]:
        code, output = run(folder / "model", *arguments)
        assert code == 1
        assert message in output
    assert not list(tmp_path.iterdir())


# The corpus of the published experiment.


def test_templates_hold_every_name_once() -> None:
    texts = corpus(["mary", "james"])
    assert len(texts) == len(set(texts)) == 2 * len(TEMPLATES)
    places = find(texts, without(first_names(), ambiguous_words()), ignore_case=True)
    assert [place.text for place in places] == list(range(len(texts)))


def test_relevance_is_compared_with_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the model made by hand, the more a name speaks for a class, the more the output does."""
    names(built(bias=1.5), filled(FEMALE, MALE), TERMS).save(tmp_path / "mentions.csv")
    check(tmp_path / "mentions.csv")
    said = capsys.readouterr().out
    assert "48 names: rank correlation of relevance and output 1.00" in said
    assert ", p < 0.001, " in said
    assert said.count(" outputs: ") == 2


def test_a_bias_is_put_into_whole_names_alone() -> None:
    tokenizer = wordpiece()
    model, vocabulary = bert(tokenizer), tokenizer.get_vocab()
    table = model.get_input_embeddings().weight
    before = table.detach().clone()
    assert bias(model, tokenizer, ["witty", "wittily"], 0.5) == ["witty"]
    change = (table.detach() - before).abs().sum(1)
    assert change.nonzero().flatten().tolist() == [vocabulary["witty"]]
    expected = before[vocabulary["witty"]] + 0.5 * (before[vocabulary["good"]] - before[vocabulary["bad"]])
    torch.testing.assert_close(table[vocabulary["witty"]].detach(), expected)


def test_words_are_read_without_comments(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("# why\n\n grace \nwill\n")
    assert read_words(tmp_path / "w.txt") == {"grace", "will"}
