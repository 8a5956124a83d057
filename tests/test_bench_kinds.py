"""Kinds of experiments against numbers had another way, and the suites that come with relprop."""

import copy
import csv
import gzip
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from relprop import Explainer
from relprop.bench.cell_work import CellWork
from relprop.bench.datasets import Example
from relprop.bench.kinds import KINDS, layers, rationales
from relprop.bench.kinds.batches import Batch
from relprop.bench.measurements import Measurements, join_measurements
from relprop.bench.suite_plan import check_tasks, plan_suite
from relprop.bench.suites import FOLDER, SECOND, Suite, read_suite, shipped_suites, suite_from
from relprop.errors import InputError, RelpropError
from relprop.explanation import Explanation
from relprop.heads import SAMPLE, identify, read_conllu
from relprop.heads.treebank import offset_shares
from relprop.rulebook import rulesets
from relprop.types import Attribution

PUBLISHED = FOLDER.parent / "published"
TEXT = "a gorgeous , witty , seductive movie"
TEXTS = [TEXT, "it is dull .", "the plot never thickens , but the acting is fine and the music better than that ."]


@cache
def embedded() -> Explainer:
    return Explainer("sentiment")


def suite(tables: dict[str, Any], **task: Any) -> Suite:
    """A suite of one task, on the embedded model."""
    own = {"name": "made up", "model": "sentiment", **task}
    return suite_from({"title": "made up", "tasks": [own], **tables}, "made-up", "the test")


def worked(asked: Suite, folder: Path | None) -> Measurements:
    """All cells, through JSON, as workers get and give them."""
    plan = plan_suite(asked, folder)
    check_tasks(plan, plan.tasks)
    work = CellWork(plan.locations)
    results = [json.loads(json.dumps(work(json.loads(json.dumps(spec))))) for spec in plan.specs]
    return join_measurements([Measurements.from_dict(one) for one in results])


def data_of(folder: Path, rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A dataset in a file, and the table that names it."""
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    table = {"title": "own", "classes": ["negative", "positive"], "text": "text", "label": "label", **more}
    return {"own": {**table, "files": {"test": "own.jsonl"}}}


# Faithfulness


def test_faithfulness_is_that_of_evaluate(tmp_path: Path) -> None:
    methods, metrics = ["random", "lrp_ah_ln"], ["auac", "au_mse", "aopc"]
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(TEXTS)]
    tables = {"metrics": [*metrics, "conservation_gap"], "methods": methods, "data": data_of(tmp_path, rows)}
    found = worked(suite(tables, data="own", explain="label", replacement="unk", show=1), tmp_path)
    texts, labels = [TEXTS[i] for i in found.examples], [rows[i]["label"] for i in found.examples]
    wanted = embedded().evaluate(texts, labels, methods=methods, metrics=metrics, replacement="unk")
    for method in methods:
        for metric in metrics:
            curve = wanted.curves[method][metric]
            assert found.scores[method][metric] == pytest.approx(curve.scores().tolist())
            assert found.curves[method][metric].at == list(curve.fractions)
    explained = embedded()(texts, target=labels, method="lrp_ah_ln")
    assert found.scores["lrp_ah_ln"]["total"] == pytest.approx([one.accounted for one in explained], rel=1e-4)
    assert found.scores["lrp_ah_ln"]["value"] == pytest.approx([one.value for one in explained], rel=1e-4)
    assert "total" not in found.scores["random"]  # unsigned scores are no shares
    assert [(one["example"], one["method"]) for one in found.exhibits] == [(0, method) for method in methods]
    assert Explanation.from_json(found.exhibits[1]["explanation"]).text == (TEXTS[0],)
    assert set(found.seconds) == set(methods)


def test_nothing_is_above_the_ceiling(tmp_path: Path) -> None:
    methods = ["random", "lrp_ah_ln", "occlusion"]
    tables = {
        "metrics": ["auac", "au_mse", "aopc"],
        "methods": methods,
        "data": data_of(tmp_path, [{"text": text, "label": 1} for text in TEXTS]),
    }
    found = worked(suite(tables, data="own", explain="label", ceiling=10), tmp_path)
    assert set(found.scores["ceiling"]) == {"auac", "au_mse"}
    for number, place in enumerate(found.examples):
        best = {metric: values[number] for metric, values in found.scores["ceiling"].items()}
        if place == 2:  # too long to be searched
            assert all(value != value for value in best.values())
            continue
        for method in methods:
            assert found.scores[method]["auac"][number] <= best["auac"] * (1 + 1e-5)
            assert found.scores[method]["au_mse"][number] >= best["au_mse"] * (1 - 1e-5)


# Rationales


def document(text: str, *spans: tuple[int, int]) -> dict[str, Any]:
    evidence = [[{"start_token": start, "end_token": stop} for start, stop in spans]]
    return {"text": text, "label": 1, "evidences": evidence}


def marked_suite(folder: Path, rows: list[dict[str, Any]], methods: list[str], **task: Any) -> Suite:
    data = data_of(folder, rows, evidence="evidences")
    tables = {"metrics": ["token_f1"], "methods": methods, "data": data}
    return suite(tables, **{"kind": "rationales", "data": "own", **task})


def scored_by_place(monkeypatch: pytest.MonkeyPatch, sign: int) -> None:
    """Every method scores tokens by their place: the last highest, or the first."""

    def explain(batch: Batch, *_: Any) -> Attribution:
        ids = batch.inputs["input_ids"]
        scores = sign * torch.arange(ids.shape[1]).expand(ids.shape).double()
        return Attribution({"input_ids": scores}, torch.ones(len(ids)), ("",) * len(ids), "made up")

    monkeypatch.setattr(Batch, "explain", explain)


def test_token_f1_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words 1, 5 and 6 are marked; the last words score highest, and [SEP], which is no word, higher still."""
    scored_by_place(monkeypatch, +1)
    asked = marked_suite(tmp_path, [document(TEXT, (1, 2), (5, 7))], ["random"], options={"ks": [1, 2, 4, 9]})
    found = worked(asked, tmp_path)
    f1 = [2 * 1 / (1 + 3), 2 * 2 / (2 + 3), 2 * 2 / (4 + 3), 2 * 3 / (7 + 3)]
    assert found.curves["random"]["token_f1"].at == [1, 2, 4, 9]
    assert found.curves["random"]["token_f1"].values[0] == pytest.approx(f1)
    assert found.scores["random"]["token_f1"] == pytest.approx([sum(f1) / 4])


def test_words_that_were_cut_off_are_marked_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nine words, each one token, the first three are read; the first and the last are marked."""
    scored_by_place(monkeypatch, -1)
    rows = [document("it is dull , but the acting is fine", (0, 1), (8, 9))]
    asked = marked_suite(tmp_path, rows, ["random"], options={"ks": [1, 5]}, max_length=5)
    values = worked(asked, tmp_path).curves["random"]["token_f1"].values[0]
    assert values == pytest.approx([2 * 1 / (1 + 2), 2 * 1 / (3 + 2)])


def test_pieces_are_of_the_word_they_stand_in() -> None:
    """Words are what blanks part: a comma is of the word that it is written to."""
    text = "Unfathomably  dull, and\tlong!"
    row = embedded().reader.read(text)
    words = rationales.words_of(Example(text, 1), row)
    spelled: dict[int, str] = {}
    for unit, word in zip(row.units, words, strict=True):
        assert (word == -1) == unit.special
        if not unit.special:
            spelled[word] = spelled.get(word, "") + text[unit.start : unit.end]
    assert list(spelled.values()) == text.split()
    assert len(row.units) - 2 > len(spelled)  # some word is in pieces


def test_token_f1_of_a_method(tmp_path: Path) -> None:
    """Of several documents in a padded batch, by the explainer's own scores, one document at a time."""
    spans = {TEXTS[0]: [(1, 2), (3, 4)], TEXTS[1]: [(2, 3), (1, 1)], TEXTS[2]: [(2, 4), (9, 10), (12, 14)]}
    rows = [document(text, *own) for text, own in spans.items()]
    found = worked(marked_suite(tmp_path, rows, ["lrp_ah_ln"], options={"ks": [2]}), tmp_path)
    expected = []
    for place in found.examples:
        text = TEXTS[place]
        best = best_words(text, count=2)
        marks = {word for start, stop in spans[text] for word in range(start, stop)}
        expected.append(2 * len(marks & best) / (2 + len(marks)))
    assert len(set(expected)) > 1
    assert found.scores["lrp_ah_ln"]["token_f1"] == pytest.approx(expected)


def best_words(text: str, count: int) -> set[int]:
    explanation = embedded()(text, method="lrp_ah_ln")
    best: dict[int, float] = {}
    for unit, score in zip(explanation.units, explanation.scores, strict=True):
        if unit.start is not None:
            word = len(text[: unit.start + 1].split()) - 1
            best[word] = max(score, best.get(word, score))
    return set(sorted(best, key=lambda word: -best[word])[:count])


@pytest.mark.parametrize(
    ("task", "rows", "message"),
    [
        ({"metrics": ["aopc"]}, [document(TEXT, (0, 1))], "the metrics of rationales are token_f1, .*; got aopc"),
        ({"options": {"k": [1]}}, [document(TEXT, (0, 1))], 'option of rationales "k" is unknown'),
        ({}, [document(TEXT, (5, 8))], r"\[5, 8\), but the document has 7 words"),
        ({}, [document(TEXT)], "has no marked words"),
    ],
)
def test_mistakes_of_rationales(task: Any, rows: Any, message: str, tmp_path: Path) -> None:
    asked = marked_suite(tmp_path, rows, ["random"], **task)
    with pytest.raises(RelpropError, match=message):
        worked(asked, tmp_path)


# Layers


def by_block(explainer: Explainer, rules: rulesets.RuleSet) -> torch.Tensor:
    return layers.by_block(explainer.model, explainer.inputs(list(TEXTS)), None, rules)


def without_biases() -> Explainer:
    model = copy.deepcopy(embedded().model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    return Explainer(model.double(), embedded().tokenizer)


def test_relevance_by_block_is_input_times_gradient(tmp_path: Path) -> None:
    """By plain autograd, text by text; the suite's in one padded batch, of the true class."""
    data = data_of(tmp_path, [{"text": text, "label": i % 2} for i, text in enumerate(TEXTS)])
    tables = {"methods": ["gradient_x_input", "lrp_ah_ln"], "data": data}
    found = worked(suite(tables, kind="layers", data="own", explain="label"), tmp_path)
    explainer = embedded()
    curve = found.curves["gradient_x_input"]["relevance_by_block"]
    for place, values in zip(found.examples, curve.values, strict=True):
        inputs = explainer.tokenizer(TEXTS[place], return_tensors="pt")
        outputs = explainer.model(**inputs, output_hidden_states=True)
        y = outputs.logits[0, place % 2]
        gradients = torch.autograd.grad(y, outputs.hidden_states)
        sums = [(x * g).sum() for x, g in zip(outputs.hidden_states, gradients, strict=True)]
        assert values == pytest.approx([one.item() for one in (*sums, y)], abs=1e-4, rel=1e-4)
    assert curve.at == [0, 1, 2, 3]
    for place, values in zip(found.examples, found.curves["lrp_ah_ln"]["relevance_by_block"].values, strict=True):
        alone = explainer(TEXTS[place], target=place % 2, method="lrp_ah_ln")
        assert (values[0], values[-1]) == pytest.approx((sum(alone.scores), alone.value), rel=1e-4)


def test_all_relevance_is_left_where_it_is_conserved() -> None:
    """Without biases nothing but the inputs can hold relevance, at any block."""
    kept = by_block(without_biases(), rulesets.lrp_conservative)
    torch.testing.assert_close(kept, kept[:, -1:].expand_as(kept))


def test_relevance_collapses_in_norms() -> None:
    """Proposition 2 of [Ali22]: of what comes to a LayerNorm, eps / (eps + Var) goes on. The LN-rule lets all go on."""
    explainer = without_biases()
    collapsed, kept = by_block(explainer, rulesets.lrp_ah), by_block(explainer, rulesets.lrp_ah_ln)
    assert collapsed[:, :2].abs().max() < 1e-6
    assert collapsed[:, 2:].abs().min() > 0.01
    assert kept.abs().min() > 0.01


def test_layers_refuse_methods_without_blocks(tmp_path: Path) -> None:
    tables = {"methods": ["rollout"], "data": data_of(tmp_path, [{"text": TEXT, "label": 1}])}
    with pytest.raises(InputError, match=r'for gradient_x_input, lrp_ah, .*, without options; got "rollout"'):
        worked(suite(tables, kind="layers", data="own"), tmp_path)


# Heads


def heads_suite(**options: Any) -> Suite:
    return suite({"methods": ["mask_lrp"]}, kind="heads", options=options)


def test_heads_of_a_treebank(tmp_path: Path) -> None:
    shutil.copy(SAMPLE, tmp_path / "bank.conllu.gz")
    asked = heads_suite(treebank="bank.conllu.gz", limit=12, xi_pos=0.5)
    (exhibit,) = worked(asked, tmp_path).exhibits
    explainer = embedded()
    found = identify(explainer.model, explainer.tokenizer, read_conllu(SAMPLE)[:12], xi_pos=0.5)
    assert found.kinds() != found.at(xi_pos=0.8).kinds()  # the threshold counts
    assert exhibit["kinds"] == found.kinds()
    assert exhibit["offsets"] == {
        relation: {str(offset): share for offset, share in offset_shares(counts).items()}
        for relation, counts in found.relation_offsets.items()
    }
    told = {name: exhibit[name] for name in ("kind", "model", "corpus", "sentences", "xi_pos", "xi_synt")}
    assert told == {
        "kind": "heads",
        "model": "sentiment",
        "corpus": "bank.conllu.gz, its first 12",
        "sentences": 12,
        "xi_pos": 0.5,
        "xi_synt": 0.1,
    }


def test_heads_of_the_sample_need_no_data(tmp_path: Path) -> None:
    (exhibit,) = worked(heads_suite(limit=8), None).exhibits
    assert (exhibit["corpus"], exhibit["sentences"]) == ("the sample of UD English EWT, its first 8", 8)


def test_another_treebank_is_another_cell(tmp_path: Path) -> None:
    """What was planned on one file is not worked on with another."""
    asked = heads_suite(treebank="bank.conllu.gz")
    lines = gzip.decompress(SAMPLE.read_bytes()).decode().split("\n\n")
    first = tmp_path / "first"
    other = tmp_path / "other"
    for folder, own in ((first, lines[:8]), (other, lines[8:16])):
        folder.mkdir()
        (folder / "bank.conllu.gz").write_bytes(gzip.compress("\n\n".join(own).encode()))
    planned_on = [plan_suite(asked, folder).specs[0] for folder in (first, other)]
    assert planned_on[0]["content"] != planned_on[1]["content"]
    with pytest.raises(InputError, match="not those that were planned"):
        CellWork(plan_suite(asked, other).locations)(planned_on[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tree": "bank"}, 'option of heads "tree" is unknown'),
        ({"treebank": "bank"}, 'the treebank "bank" is a file: name the folder that holds it with --data'),
        ({"limit": 0}, 'task "made up": "limit" must be at least 1, got 0'),
    ],
)
def test_mistakes_of_heads(options: Any, message: str) -> None:
    with pytest.raises(RelpropError, match=message):
        worked(heads_suite(**options), None)


# Suites


@pytest.mark.parametrize("name", shipped_suites())
def test_shipped_suites_are_sound(name: str) -> None:
    asked = read_suite(name)
    assert asked.name == name
    assert all(task.kind in KINDS for task in asked.tasks)
    for table in asked.tables:
        if table.published:
            assert read_published(table.published)


@pytest.mark.parametrize(("name", "no_texts"), [("ali22-text", {"BACE", "MNIST"}), ("song24", set())])
def test_no_published_number_is_missed(name: str, no_texts: set[str]) -> None:
    """Every row and column of the paper's tables is some method and task of the suite, under the same name.

    Tasks with models of a second seed are beside these.
    """
    asked = read_suite(name)
    first = [task for task in asked.tasks if not task.name.endswith(SECOND)]
    for file in {table.published for table in asked.tables} - {""}:
        (_, *columns), *rows = read_published(file)
        tables = [table for table in asked.tables if table.published == file]
        own = {table.column.format(task=task.name) for table in tables for task in first}
        assert set(columns) - no_texts == own
        labels = {label for table in tables for label in table.methods or [one.label for one in asked.methods]}
        assert {row[0] for row in rows} <= {one.printed for one in asked.methods if one.label in labels}


def read_published(name: str) -> list[list[str]]:
    return list(csv.reader((PUBLISHED / f"{name}.csv").read_text(encoding="utf-8").splitlines()))
