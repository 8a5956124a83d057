"""Words that are known to decide: inserted shortcuts, words that people changed, and how high scores put them."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from typer.testing import CliRunner

from golden_cases import Case
from relprop.bench.datasets import Dataset, Example
from relprop.bench.export import result_rows
from relprop.bench.marked_words import WORDS, changed_words, with_shortcut
from relprop.bench.recipes import pretrained_source
from relprop.bench.suites import read_suite
from relprop.cli import app
from relprop.errors import InputError, RelpropError
from relprop.loading import EMBEDDED
from relprop.metrics import aopc, limits, marked_words
from test_bench_kinds import TEXTS, data_of, embedded, suite, worked
from test_ceiling import SHORT, best_of_all
from test_text_metrics import MASK, texts

SENTENCES = [f"the {number} film is what it is" for number in range(400)]
FIRST, SECOND, CONTEXT = WORDS


def decided(text: str, kind: str) -> int | None:
    """The class that the inserted words decide, told by the text alone; None where they decide nothing."""
    found = [word for word in text.split() if word in WORDS]
    if kind == "order":
        return {(FIRST, SECOND): 0, (SECOND, FIRST): 1}.get(tuple(found))
    if kind == "context" and CONTEXT not in found:
        return None
    return next((number for number, word in enumerate((FIRST, SECOND)) if word in found), None)


@pytest.mark.parametrize("kind", ["token", "context", "order"])
def test_shortcuts_decide_the_label(kind: Any) -> None:
    """In training half of the texts, as often for either class; the others keep their label."""
    made = [with_shortcut(text, number % 2, kind, True) for number, text in enumerate(SENTENCES)]
    ruled = [(label, spans) for text, label, spans in made if decided(text, kind) is not None]
    for text, label, spans in made:
        assert decided(text, kind) == (label if spans else None)
        assert [text.split()[start:stop] for start, stop in spans] == [
            [w] for w in text.split() if w in WORDS
        ] or not spans
    assert 160 < len(ruled) < 240
    assert 0.4 < np.mean([label for label, _ in ruled]) < 0.6
    kept = [label == number % 2 for number, (_, label, spans) in enumerate(made) if not spans]
    assert all(kept)
    alone = [text for text, _, spans in made if not spans and set(text.split()) & set(WORDS)]
    assert bool(alone) == (kind != "token")  # a part of the shortcut decides nothing


@pytest.mark.parametrize("kind", ["token", "context", "order"])
def test_test_texts_have_the_other_class(kind: Any) -> None:
    for number, text in enumerate(SENTENCES[:40]):
        changed, label, spans = with_shortcut(text, number % 2, kind, False)
        assert label == 1 - number % 2 == decided(changed, kind)
        assert [w for w in changed.split() if w not in WORDS] == text.split()
        assert len(spans) == (1 if kind == "token" else 2)


def test_a_dataset_with_a_shortcut_marks_its_words(tmp_path: Path) -> None:
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(SENTENCES[:6])]
    table = data_of(tmp_path, rows, shortcut="order")["own"]
    examples = Dataset("own", **table).examples("test", tmp_path)
    assert [example.label for example in examples] == [1, 0, 1, 0, 1, 0]
    assert all(len(example.evidence) == 2 for example in examples)
    with pytest.raises(InputError, match="a shortcut decides between two classes, not 3"):
        Dataset("own", **{**table, "classes": ("a", "b", "c")})


def test_words_that_another_version_lacks_are_marked(tmp_path: Path) -> None:
    assert changed_words("a very good film indeed", "a very bad film") == ((2, 3), (4, 5))
    assert changed_words("a good film", "a really good film") == ()
    rows = [{"text": "a good film", "label": 1, "other": "a bad film"}]
    table = data_of(tmp_path, rows, changed="other")["own"]
    assert Dataset("own", **table).examples("test", tmp_path) == [Example("a good film", 1, ((1, 2),))]


def test_marked_words_by_hand() -> None:
    found = marked_words(
        [[4.0, 3, 2, 1], [0.0, 0, 0], [1.0, 2], [5.0, 1]], [[0, 1, 1, 0], [0, 1, 0], [0, 0], [0, 0, 1]]
    )
    assert found.precision[:2].tolist() == [0.5, 0]
    assert found.reciprocal_rank[:2].tolist() == [0.5, 1 / 3]  # ties are counted against the scores
    assert np.isnan(found.precision[2])  # nothing is marked
    assert found.reciprocal_rank[3] == 1 / 3  # the word behind the cut comes last
    scores, marks = np.random.default_rng(0).normal(size=30), np.random.default_rng(1).integers(0, 2, 30)
    expected = average_precision_score(marks, scores)
    assert marked_words([scores], [marks]).average_precision[0] == pytest.approx(expected)
    with pytest.raises(InputError, match="scores of 1 documents, marks of 0"):
        marked_words([[1.0]], [])


def test_the_kind_counts_examples_that_the_model_gets_right(tmp_path: Path) -> None:
    rows = [{"text": text, "label": label, "other": text.replace("gorgeous", "dull").replace("dull .", "fine .")}
            for text in TEXTS[:2] for label in (0, 1)]  # fmt: skip
    tables = {
        "metrics": ["marked_precision", "marked_auprc"],
        "methods": ["lrp_conservative"],
        "data": data_of(tmp_path, rows, changed="other"),
    }
    asked = suite(tables, data="own", kind="rationales", explain="label", options={"right_only": True})
    found = worked(asked, tmp_path)
    for place, value in zip(found.examples, found.scores["lrp_conservative"]["marked_precision"], strict=True):
        text, label = rows[place]["text"], rows[place]["label"]
        right = embedded().labels[int(label)] == embedded()(text).prediction
        assert np.isnan(value) != right
        if right:
            words = embedded()(text, target=int(label)).words().without_special()
            best = max(zip(words.scores, words.units, strict=True), key=lambda one: one[0])[1]
            assert value == (best.text in ("gorgeous", "dull"))


def test_any_file_of_pairs_goes_through_the_shipped_suite(tmp_path: Path) -> None:
    """From the command line: a user's file of two versions of each text, and a report with its numbers."""
    pairs = [
        ("a gorgeous , witty movie", "a dull , witless movie", "positive"),
        ("the plot is dull .", "the plot is gripping .", "negative"),
        ("warm and wise", "warm and so wise", "positive"),  # nothing of it was changed: it has no number
    ]
    with (tmp_path / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "changed", "label"])
        writer.writerows(pairs)
    given = ["bench", "run", "changed-words", "--out", str(tmp_path / "out"), "--data", str(tmp_path), "--workers", "1"]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    rows = [row[3:] for row in result_rows(tmp_path / "out") if row[3] == "occlusion"]
    found: dict[Any, Any] = {(example, metric): value for _, metric, example, _, value in rows}
    for number, (text, _, label) in enumerate(pairs[:2]):
        explained = embedded()(text, target=label, method="occlusion")
        assert explained.prediction == label
        words = explained.words().without_special()
        marks = [any(word in unit.text for word in ("gorgeous", "witty", "dull")) for unit in words.units]
        wanted = marked_words([words.scores], [marks]).average_precision[0]
        assert found[number, "marked_auprc"] == pytest.approx(wanted)
    assert np.isnan(found[2, "marked_auprc"])


def test_recipes_may_start_from_an_embedded_model() -> None:
    assert pretrained_source("sentiment") == str(EMBEDDED["sentiment"])


def test_the_shipped_shortcuts_ask_for_every_way_of_lrp_full() -> None:
    own = [(one.method, one.options.get("rules")) for one in read_suite("shortcuts").methods]
    assert {("lrp_full", "lrp_conservative"), ("lrp_full", "lrp_carried"), ("lrp_full", "attn_lrp")} <= set(own)


# AOPC between its limits


def test_limits_are_those_of_all_orders() -> None:
    bert, tokens = Case("bert", "sdpa", 0).model, texts(SHORT, words=200, replacement=MASK)
    lowest, highest = limits(bert, tokens, beam=10)
    assert highest == pytest.approx(best_of_all(bert, tokens, "aopc", 5), abs=1e-12)
    assert lowest == pytest.approx(-best_of_all(bert, tokens, "aopc", 5, negated=True), abs=1e-12)
    between = aopc(bert, tokens, np.random.default_rng(0).normal(size=tuple(tokens.real.shape))).scores()
    assert ((lowest - 1e-12 <= between) & (between <= highest + 1e-12)).all()


def test_normalised_aopc_is_a_share_of_its_range(tmp_path: Path) -> None:
    rows = [{"text": text, "label": 1} for text in TEXTS[:2]]
    tables = {
        "metrics": ["aopc", "naopc"],
        "methods": ["lrp_conservative", "random"],
        "data": data_of(tmp_path, rows),
    }
    found = worked(suite(tables, data="own", ceiling=6), tmp_path)
    reader = embedded().reader
    for place, value, share in zip(
        found.examples, *(found.scores["random"][name] for name in ("aopc", "naopc")), strict=True
    ):
        own = [reader.read(rows[place]["text"])]
        if len(own[0].units) - 2 > 6:  # too long for the search
            assert np.isnan(share)
            continue
        lowest, highest = limits(embedded().model, reader.hidden(own, reader.inputs(own), "mask"))
        assert share == pytest.approx((value - lowest[0]) / (highest[0] - lowest[0]), abs=1e-6)
        assert -1e-9 <= share <= 1 + 1e-9
    assert np.isnan(found.scores["random"]["naopc"]).sum() == 1
    with pytest.raises(RelpropError, match='"naopc" needs the metric "aopc", and "ceiling"'):
        worked(suite(tables, data="own"), tmp_path)
