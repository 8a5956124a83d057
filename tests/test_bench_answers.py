"""Precision@20 on questions: the bench kind against numbers had another way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForQuestionAnswering

from relprop import Explainer
from relprop.bench.kinds.batches import Batch
from relprop.bench.measurements import Measurements
from relprop.bench.report.metric_statistics import metric_statistic
from relprop.bench.suites import Suite, read_suite, suite_from
from relprop.errors import RelpropError
from relprop.explanation import Explanation
from relprop.types import Attribution
from test_bench_kinds import worked
from tokenizers_for_tests import bert, saved, wordpiece

METRICS = ["precision_at_k", "pooled_recall_at_k"]
LONG = "the plot was not very good and the film is bad. " * 4 + "it was a gorgeous and witty movie"
QUESTIONS = [
    {"question": "was it good?", "context": "the movie is a good movie and the plot was very dull", "span": [4, 5]},
    {"question": "what is it?", "context": LONG, "span": [len(LONG.split()) - 4, len(LONG.split()) - 2]},
    {"question": "is it a film?", "context": "it is a film", "span": [3, 3]},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = wordpiece(32)
    return saved(tmp_path_factory.mktemp("qa"), bert(tokenizer, BertForQuestionAnswering), tokenizer)


def suite(model: Path | str, folder: Path, rows: list[dict[str, Any]], methods: list[str], **task: Any) -> Suite:
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    data = {"title": "own", "text": ["question", "context"], "answer": "span", "files": {"test": "own.jsonl"}}
    own = {"name": "made up", "model": str(model), "data": "own", "kind": "answers", **task}
    tables = {"title": "made up", "tasks": [own], "metrics": METRICS, "methods": methods, "data": {"own": data}}
    return suite_from(tables, "made-up", "the test")


def answer(row: dict[str, Any]) -> tuple[int, int]:
    """The characters of the words."""
    words, (first, last) = row["context"].split(), row["span"]
    begin = len(" ".join([*words[:first], ""]))
    return begin, begin + len(" ".join(words[first : last + 1]))


def counted(e: Explanation, begin: int, stop: int, k: int) -> tuple[int, int, int]:
    """Hits, tokens taken, tokens of the answer."""
    best = sorted(range(len(e.units)), key=lambda i: -e.scores[i])[:k]
    right = {
        i for i, unit in enumerate(e.units)
        if unit.segment == 1 and unit.start is not None and begin <= unit.start < stop
    }  # fmt: skip
    return len(right & set(best)), len(best), len(right)


@pytest.mark.parametrize("method", ["lrp_ah_ln", "transformer_attribution"])
def test_the_numbers_are_those_of_the_explanations(model: Path, tmp_path: Path, method: str) -> None:
    """Of the right answer's own span, in its window; 2 tokens are taken."""
    found = worked(suite(model, tmp_path, QUESTIONS, [method], explain="label", options={"k": 2}, show=1), tmp_path)
    explainer = Explainer(model)
    expected = []
    for place in found.examples:
        row = QUESTIONS[place]
        e = explainer((row["question"], row["context"]), target=answer(row), method=method)
        expected.append(counted(e, *answer(row), 2))
    hits, taken, length = (list(column) for column in zip(*expected, strict=True))
    assert 0 < sum(hits) < sum(length)
    scores = found.scores[method]
    assert scores["hits"] == hits
    assert scores["answer"] == length
    assert scores["precision_at_k"] == pytest.approx([h / t for h, t in zip(hits, taken, strict=True)])
    pooled = metric_statistic("pooled_recall_at_k", scores)
    assert pooled is not None
    assert pooled(np.ones((1, 3)))[0] == pytest.approx(sum(hits) / sum(length))
    (exhibit,) = found.exhibits
    assert Explanation.from_json(exhibit["explanation"]).part.answer == answer(QUESTIONS[exhibit["example"]])
    assert set(found.seconds) == {method}


def test_without_token_types_the_model_gets_none(model: Path, tmp_path: Path) -> None:
    """As [Song24]'s code calls it. The same numbers by a model whose embeddings of both types are the first's."""
    given = suite(model, tmp_path, QUESTIONS, ["attcat"], explain="label", options={"k": 2, "token_types": False})
    found = worked(given, tmp_path)
    same = Explainer(model)
    types = same.model.bert.embeddings.token_type_embeddings.weight
    with torch.no_grad():
        types[1] = types[0]
    expected = []
    for place in found.examples:
        row = QUESTIONS[place]
        e = same((row["question"], row["context"]), target=answer(row), method="attcat")
        expected.append(counted(e, *answer(row), 2)[0])
    assert found.scores["attcat"]["hits"] == expected


def test_the_predicted_answer_is_explained_and_the_right_one_counted(model: Path, tmp_path: Path) -> None:
    """Where the window that answers does not hold the right answer, there is no number."""
    found = worked(suite(model, tmp_path, QUESTIONS, ["lrp_ah_ln"], options={"k": 3}), tmp_path)
    explainer = Explainer(model)
    missed = 0
    for number, place in enumerate(found.examples):
        row = QUESTIONS[place]
        e = explainer((row["question"], row["context"]), method="lrp_ah_ln")
        held = max(unit.end or 0 for unit in e.units if unit.segment == 1) >= answer(row)[1]
        hits = found.scores["lrp_ah_ln"]["hits"][number]
        missed += not held
        assert hits == counted(e, *answer(row), 3)[0] if held else np.isnan(hits)
    assert missed == 1


def test_by_hand(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last tokens score highest: of the three best, [SEP] included, one is of the answer."""

    def explain(batch: Batch, method: Any, whole: Measurements) -> Attribution:
        ids = batch.inputs["input_ids"]
        scores = torch.arange(ids.shape[1]).expand(ids.shape).double()
        return Attribution({"input_ids": scores}, torch.ones(len(ids)), ("",) * len(ids), "random")

    monkeypatch.setattr(Batch, "explain", explain)
    rows = [{"question": "is it?", "context": "it is a good film and bad", "span": [2, 5]}]
    found = worked(suite(model, tmp_path, rows, ["random"], options={"k": 3}, explain="label"), tmp_path)
    assert found.scores["random"] == {"hits": [1.0], "answer": [4.0], "precision_at_k": [1 / 3]}


def test_an_answer_longer_than_any_window_has_no_number(model: Path, tmp_path: Path) -> None:
    rows = [{**QUESTIONS[1], "span": [0, len(LONG.split()) - 1]}]
    found = worked(suite(model, tmp_path, rows, ["random"], explain="label"), tmp_path)
    assert np.isnan(found.scores["random"]["precision_at_k"]).all()


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"options": {"ks": [1]}}, 'option of answers "ks" is unknown'),
        ({"metrics": ["aopc"]}, "the metrics of answers are precision_at_k, pooled_recall_at_k; got aopc"),
        ({"of": "sentiment"}, '"sentiment" answers no questions'),
    ],
)
def test_mistakes(model: Path, tmp_path: Path, task: dict[str, Any], message: str) -> None:
    of = task.pop("of", model)
    with pytest.raises(RelpropError, match=message):
        worked(suite(of, tmp_path, QUESTIONS, ["random"], **task), tmp_path)


def test_data_without_answers(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(json.dumps({"text": "good", "label": 1}) + "\n")
    data = {"title": "own", "text": "text", "label": "label", "classes": ["a", "b"], "files": {"test": "own.jsonl"}}
    own = {"name": "made up", "model": "sentiment", "data": "own", "kind": "answers"}
    tables = {"title": "made up", "tasks": [own], "metrics": METRICS, "methods": ["random"], "data": {"own": data}}
    with pytest.raises(RelpropError, match='"own" has no answers'):
        worked(suite_from(tables, "made-up", "the test"), tmp_path)


def test_the_shipped_suite_asks_for_the_papers_table() -> None:
    shipped = read_suite("song24-qa")
    assert {one.printed for one in shipped.methods} >= {"Rollout", "RawAtt", "AttCAT", "Mask-LRP"}
    assert shipped.tasks[0].explain == "predicted"
