"""Models trained for benchmarks: once, resumable to the same weights, with their accuracy on record."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForSequenceClassification
from typer.testing import CliRunner

from relprop.bench import recipes
from relprop.bench.datasets import Dataset
from relprop.bench.export import fingerprint
from relprop.bench.recipes import ABOUT, Recipe, pretrained_source, train_model
from relprop.bench.store import Store
from relprop.bench.store_files import FILE
from relprop.cli import app
from relprop.errors import InputError
from tokenizers_for_tests import WORDS, wordpiece

RECIPE = Recipe("reviews", "", "reviews", epochs=6, rate=3e-3, batch_size=8, max_length=16)
DATA = Dataset("reviews", "", "text", ("bad", "good"), "label", files={"train": "r.jsonl", "test": "r.jsonl"})


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tiny untrained model, data that it can learn, and a cache of one's own."""
    monkeypatch.setenv("RELPROP_CACHE", str(tmp_path / "cache"))
    tokenizer = wordpiece()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **sizes))
    model.save_pretrained(tmp_path / "start")
    tokenizer.save_pretrained(tmp_path / "start")
    rows = [
        {"text": f"{a} {b} {word}", "label": int(word == "good")}
        for a in WORDS[:6]
        for b in WORDS[:5]
        for word in ("good", "bad")
    ]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return str(tmp_path / "start")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_a_recipe_learns_and_its_accuracy_is_recorded(start, tmp_path):
    folder, about = train_model(RECIPE, DATA, tmp_path, start)
    assert about["accuracy"]["test"] > 0.9
    assert (about["train_examples"], about["examples"]) == (60, {"test": 60})
    assert json.loads((folder / ABOUT).read_text()) == about
    config = json.loads((folder / "config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "good"}


def test_a_trained_model_is_not_trained_again(start, tmp_path):
    steps: list[int] = []
    first = train_model(RECIPE, DATA, tmp_path, start, progress=lambda _, step, *__: steps.append(step))
    count = len(steps)
    assert count == 6 * 8
    assert train_model(RECIPE, DATA, tmp_path, start, progress=lambda _, step, *__: steps.append(step)) == first
    assert len(steps) == count


def test_another_recipe_or_other_data_is_another_model(start, tmp_path):
    short = replace(RECIPE, epochs=1)
    one, _ = train_model(short, DATA, tmp_path, start)
    two, _ = train_model(replace(short, seed=1), DATA, tmp_path, start)
    with (tmp_path / "r.jsonl").open("a") as file:
        file.write('\n{"text": "very good", "label": 1}')
    three, _ = train_model(short, DATA, tmp_path, start)
    assert len({one, two, three}) == 3


def test_a_stopped_training_goes_on_to_the_same_weights(start, tmp_path, monkeypatch):
    calm, _ = train_model(RECIPE, DATA, tmp_path, start)
    monkeypatch.setenv("RELPROP_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(recipes, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    seen: list[int] = []

    def stop_at(last: int) -> Any:
        def said(_: str, step: int, *__: Any) -> None:
            seen.append(step)
            if step == last:
                raise KeyboardInterrupt

        return said

    for last in (7, 20):
        with pytest.raises(KeyboardInterrupt):
            train_model(RECIPE, DATA, tmp_path, start, progress=stop_at(last))
    folder, _ = train_model(RECIPE, DATA, tmp_path, start, progress=stop_at(0))
    assert seen == [*range(1, 8), *range(7, 21), *range(20, 49)]  # the step that was interrupted is done again
    assert folder != calm
    for name, values in weights(calm).items():
        assert torch.equal(values, weights(folder)[name]), name
    assert not list(folder.glob("checkpoint*"))


def test_products_are_in_bfloat16_where_the_cpu_has_them(start, tmp_path, monkeypatch):
    found = {}
    for fast in (True, False):
        monkeypatch.setattr(recipes, "_computes_bfloat16", lambda fast=fast: fast)
        monkeypatch.setenv("RELPROP_CACHE", str(tmp_path / f"fast-{fast}"))
        folder, about = train_model(RECIPE, DATA, tmp_path, start)
        assert about["products"] == ("bfloat16" if fast else "float32")
        assert about["accuracy"]["test"] > 0.9
        found[fast] = weights(folder)
    assert {value.dtype for value in found[True].values()} == {torch.float32}
    assert any(not torch.equal(value, found[False][name]) for name, value in found[True].items())


def test_a_start_that_cannot_be_loaded_is_said_plainly(start, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="training cannot start from"):
        train_model(RECIPE, DATA, tmp_path, str(tmp_path / "empty"))


@pytest.mark.parametrize(("layers", "sources"), [(1, [0]), (3, [0, 0, 1]), (4, [0, 0, 1, 1])])
def test_fewer_layers_than_the_start_has_or_each_repeated(start, tmp_path, layers, sources):
    """A rate of 0 shows the weights that training starts from."""
    folder, about = train_model(replace(RECIPE, layers=layers, epochs=1, rate=0.0), DATA, tmp_path, start)
    model = BertForSequenceClassification.from_pretrained(folder)
    assert (model.config.num_hidden_layers, about["layers"]) == (layers, layers)
    own, before = weights(folder), weights(Path(start))
    for layer, source in enumerate(sources):
        for part in ("attention.self.query.weight", "output.dense.bias"):
            name = f"bert.encoder.layer.{{}}.{part}"
            assert torch.equal(own[name.format(layer)], before[name.format(source)])
    with pytest.raises(InputError, match=r"it has 2 layers, and \[recipe.reviews\] takes -1"):
        train_model(replace(RECIPE, layers=-1), DATA, tmp_path, start)


def test_minilm_is_the_installed_package_or_the_hubs(monkeypatch):
    monkeypatch.setattr(recipes.importlib.util, "find_spec", lambda _: None)
    assert pretrained_source("minilm") == "sentence-transformers/all-MiniLM-L6-v2"
    assert pretrained_source("some/model") == "some/model"


def suite_with(folder: Path, start: str, second: str) -> Path:
    """Two tasks: one on a recipe's model, one on `second`."""
    tables = f"""
title = "Reviews"
metrics = ["auac"]
methods = ["lrp_ah_ln"]
sample = 4
tasks = [
    {{ name = "own", model = "recipe:reviews", data = "reviews" }},
    {{ name = "other", model = "{second}", data = "reviews" }},
]
[data.reviews]
title = "Reviews"
classes = ["bad", "good"]
text = "text"
label = "label"
files = {{ train = "r.jsonl", test = "r.jsonl" }}
[recipe.reviews]
start = "{start}"
data = "reviews"
epochs = 1
"""
    (folder / "mine.toml").write_text(tables)
    return folder / "mine.toml"


def bench_run(suite: Path, *more: str) -> tuple[int, str]:
    given = ["bench", "run", str(suite), "--out", str(suite.parent / "out"), "--data", str(suite.parent)]
    result = CliRunner().invoke(app, [*given, "--workers", "1", *more])
    return result.exit_code, result.output + str(result.exception or "")


def test_a_dry_run_trains_nothing(start, tmp_path):
    suite = suite_with(tmp_path, start, "sentiment")
    code, said = bench_run(suite, "--dry-run")
    assert (code, "1 tasks can be run, 1 cells; after training: own" in said) == (0, True), said
    assert not (tmp_path / "cache").exists()
    code, said = bench_run(suite)
    assert code == 0, said
    assert "2 cells done" in said
    assert bench_run(suite, "--dry-run") == (0, "0 tasks can be run, 0 cells; done: own, other\n")


def test_tasks_that_are_done_need_no_model_and_results_move_to_another_machine(start, tmp_path):
    suite = suite_with(tmp_path, start, "sentiment")
    code, said = bench_run(suite, "--task", "own")
    assert (code, "1 cells done" in said) == (0, True), said
    trained = fingerprint(tmp_path / "out")
    shutil.rmtree(tmp_path / "cache")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / FILE).write_bytes((tmp_path / "out" / FILE).read_bytes())
    assert str(tmp_path / "cache").encode() not in (elsewhere / FILE).read_bytes()
    code, said = bench_run(suite, "--out", str(elsewhere))  # the last --out counts
    assert (code, "2 cells done" in said) == (0, True), said
    assert not (tmp_path / "cache").exists()  # nothing was trained again
    with Store(elsewhere, read_only=True) as store:
        assert [row.spec["task"]["name"] for row in store.rows()] == ["own", "other"]
        assert set(json.loads(store.about("models"))) == {"recipe:reviews", "sentiment"}
    code, said = bench_run(suite, "--task", "other")
    assert (code, fingerprint(tmp_path / "out")) == (0, fingerprint(elsewhere)), said
    assert trained != fingerprint(elsewhere)


def test_a_half_done_task_of_another_model_is_not_taken_for_whole(start, tmp_path):
    suite = suite_with(tmp_path, start, "sentiment")
    assert bench_run(suite, "--task", "own")[0] == 0
    with Store(tmp_path / "out") as store:
        (row,) = store.rows()
        store.keep([replace(row, spec={**row.spec, "places": row.spec["places"][:2]})])
    code, said = bench_run(suite, "--dry-run")
    assert (code, "done" in said) == (0, False), said


def test_only_the_named_task_is_worked_on(start, tmp_path):
    """Whatever else is planned in the folder and was not finished."""
    suite = suite_with(tmp_path, start, "sentiment")
    assert bench_run(suite, "--task", "own")[0] == 0
    with Store(tmp_path / "out") as store:
        (own,) = store.rows()
        store.keep([replace(own, result=None, seconds=None)])
    code, said = bench_run(suite, "--task", "other")
    assert (code, "1 cells done" in said) == (0, True), said
    with Store(tmp_path / "out", read_only=True) as store:
        assert [(row.spec["task"]["name"], row.done) for row in store.rows()] == [("own", False), ("other", True)]
    code, said = bench_run(suite)
    assert (code, "2 cells done" in said) == (0, True), said


def test_an_unknown_task_is_told_with_the_known_ones(start, tmp_path):
    code, said = bench_run(suite_with(tmp_path, start, "sentiment"), "--task", "othr")
    assert (code, 'task of mine "othr" is unknown; did you mean "other"?' in said) == (1, True), said


def test_training_takes_as_many_threads_as_workers(start, tmp_path, monkeypatch):
    taken, fit, before = [], recipes._fit, torch.get_num_threads()
    monkeypatch.setattr(recipes, "_fit", lambda *job: (taken.append(torch.get_num_threads()), fit(*job)))
    torch.set_num_threads(2)
    try:
        code, said = bench_run(suite_with(tmp_path, start, "sentiment"), "--workers", "1")
        assert (code, taken, torch.get_num_threads()) == (0, [1], 2), said
    finally:
        torch.set_num_threads(before)


def test_what_is_wrong_elsewhere_is_said_before_training(start, tmp_path):
    code, said = bench_run(suite_with(tmp_path, start, "pets"))
    assert code == 1
    assert 'task "other": "pets" is a model of images' in said
    assert not (tmp_path / "cache").exists()
