"""Key-value recall: prompts whose answer is known, a language model trained on them, and its scores counted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import relprop
from relprop.bench.catalog import shipped_catalog
from relprop.bench.datasets import AskedValue, Dataset, Example
from relprop.bench.key_values import ASKS, Recall, draw_prompt
from relprop.bench.kinds.rationales import marks_of, words_of
from relprop.bench.recipes import Recipe, train_model
from relprop.bench.suites import read_suite
from relprop.bench.training_tasks import RecallTask, training_task_for
from relprop.cli import app
from relprop.errors import InputError, RelpropError
from relprop.metrics import marked_words
from test_bench_kinds import suite, worked

SIZES = Recall(words=4, pairs=2, train=6400, test=50, questions=3)
DATA = Dataset("tiny", "", recall=SIZES)
CONFIG = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
          "num_key_value_heads": 2, "max_position_embeddings": 32, "attention_bias": True, "initializer_range": 0.1,
          "rope_theta": 30.0}  # fmt: skip
RECIPE = Recipe("tiny", "llama", "tiny", epochs=1, rate=4e-3, batch_size=16, config=CONFIG)


def solved(text: str) -> str:
    """The value that follows, told by the text alone."""
    words = text.split()
    pairs = words[: words.index(ASKS)]
    return dict(zip(pairs[::2], pairs[1::2], strict=True))[words[-1]]


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_prompt_holds_its_answer_once(split: str) -> None:
    sizes = Recall(words=9, pairs=6, train=100, test=100, questions=2)
    for number in range(100):
        one = draw_prompt(split, number, sizes)
        words = one.text.split()
        before = words[: words.index(ASKS)]
        assert solved(one.text) == one.value == f"v{one.number}"
        assert len(set(before)) == len(before)
        assert words[one.question :] == [ASKS, words[-1]]
        ((start, stop),) = one.marks
        assert words[start:stop] == [words[-1], one.value]
        assert draw_prompt(split, number, replace(sizes, marked="value")).marks == ((start + 1, stop),)
        if split == "test":
            assert len(words) == 2 * 6 + 2
    lengths = {draw_prompt(split, number, sizes).text.index(ASKS) for number in range(100)}
    assert len(lengths) > (3 if split == "train" else 0)  # few pairs are learned first


def test_splits_are_drawn_and_repeat() -> None:
    train, test = (DATA.examples(split, None) for split in ("train", "test"))
    assert (len(train), len(test), DATA.splits) == (6400, 50, ("train", "test"))
    assert DATA.examples("test", Path("nowhere")) == test
    assert isinstance(test[0], AskedValue)
    assert test[0].target == test[0].value
    assert Example("some text", 1).target == 1
    with pytest.raises(RelpropError, match='split "dev" is unknown'):
        DATA.examples("dev", None)
    for wrong, message in (
        ({"pairs": 1}, "2 to 4 pairs"),
        ({"pairs": 5}, "2 to 4 pairs"),
        ({"test": 0}, "at least one prompt"),
    ):
        with pytest.raises(InputError, match=message):
            replace(SIZES, **wrong)
    with pytest.raises(InputError, match='needs one of "label"'):
        Dataset("tiny", "", "text", ("a", "b"), "label", recall=SIZES)


def test_the_targets_are_the_values_after_questions() -> None:
    examples = DATA.examples("train", None)[:20]
    task = training_task_for(DATA, examples)
    assert isinstance(task, RecallTask)
    config: Any = type("Config", (), {})()
    tokenizer = task.new_processor(config, DATA.examples("train", None))
    assert config.vocab_size == len(tokenizer) == 4 + 4 + 3  # keys, values, the question, padding, unknown
    for example, row in zip(examples, task.rows(tokenizer, examples, 64), strict=True):
        assert isinstance(example, AskedValue)
        words = f"{example.text} {example.value}".split()
        assert tokenizer.convert_ids_to_tokens(row.ids["input_ids"]) == words[:-1]
        for i, target in enumerate(row.target):
            assert target == (tokenizer.convert_tokens_to_ids(words[i + 1]) if i and words[i - 1] == ASKS else -100)
        assert sum(target >= 0 for target in row.target) == 3
    with pytest.raises(InputError, match=r"a prompt has .* tokens, and max_length is 5"):
        task.rows(tokenizer, examples, 5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small model that has learned to recall, in a cache of its own."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELPROP_CACHE", str(cache))
        folder, facts = train_model(RECIPE, DATA, None, "llama")
    return cache, folder, facts


def test_a_language_model_learns_to_recall(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, folder, facts = trained
    assert facts["accuracy"]["test"] >= 0.98
    explainer = relprop.Explainer(str(folder))
    for example in DATA.examples("test", None)[:5]:
        assert explainer(example.text).prediction == repr(solved(str(example.text)))
    monkeypatch.setenv("RELPROP_CACHE", str(cache))
    with pytest.raises(RelpropError, match=r"is right in .* of the test examples, and 200% are needed"):
        train_model(replace(RECIPE, epochs=0, least_accuracy=2.0), DATA, None, "llama")


def test_the_kind_counts_the_pair_among_the_words_before_the_question(
    trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small slice of the suite, against scores of the explainer itself."""
    cache, folder, _ = trained
    monkeypatch.setenv("RELPROP_CACHE", str(cache))
    shipped = read_suite("needle")
    methods = [{"method": one.method, "options": dict(one.options), "label": one.label} for one in shipped.methods]
    tables = {
        "metrics": list(shipped.metrics),
        "sample": 8,
        "methods": methods,
        "data": {"tiny": {"title": "", "recall": vars(SIZES)}},
        "recipe": {"tiny": {name: value for name, value in vars(RECIPE).items() if name != "name"}},
    }
    asked = suite(tables, model="recipe:tiny", data="tiny", kind="rationales", explain="label",
                  options={"right_only": True})  # fmt: skip
    found = worked(asked, None)
    assert set(found.scores) == {one.label for one in shipped.methods}
    explainer, examples = relprop.Explainer(str(folder)), DATA.examples("test", None)
    for k, place in enumerate(found.examples):
        example = examples[place]
        assert isinstance(example, AskedValue)
        explained = explainer(example.text, target=example.value, method="lrp_conservative")
        if explained.prediction != repr(example.value):
            assert np.isnan(found.scores["lrp_conservative"]["marked_precision"][k])
            continue
        wanted = marked_words([explained.scores[: example.question]], [marks_of(example)])
        assert found.scores["lrp_conservative"]["marked_precision"][k] == wanted.precision[0]
        assert found.scores["lrp_conservative"]["marked_reciprocal_rank"][k] == wanted.reciprocal_rank[0]
        assert words_of(example, explainer.reader.read(example.text)) == [0, 1, 2, 3, -1, -1]
    with pytest.raises(RelpropError, match='set explain = "label"'):
        worked(suite(tables, model="recipe:tiny", data="tiny", kind="rationales", options={"right_only": True}), None)


def test_the_shipped_suite_needs_no_data_and_refuses_disobedience() -> None:
    catalog, shipped = shipped_catalog(), read_suite("needle")
    for task in shipped.tasks:
        recipe = catalog.recipe(task.model.removeprefix("recipe:"))
        assert (recipe.start, recipe.least_accuracy) == ("llama", 0.98)
        assert catalog.dataset(task.data).recall is not None
        assert task.options == {"right_only": True}


def test_a_dry_run_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELPROP_CACHE", str(tmp_path))
    result = CliRunner().invoke(app, ["bench", "run", "needle", "--out", str(tmp_path / "out"), "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "0 tasks can be run, 0 cells; after training: key and value 1" in result.output


def test_a_config_that_makes_no_model_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELPROP_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=r'\[recipe.tiny\]: no model "lama" with this config'):
        train_model(replace(RECIPE, start="lama"), DATA, None, "lama")
    reviews = Dataset("r", "", "text", ("bad", "good"), "label", files={"train": "r.jsonl"})
    (tmp_path / "r.jsonl").write_text('{"text": "good", "label": 1}\n')
    with pytest.raises(InputError, match="starts from a trained one, not from a config"):
        train_model(replace(RECIPE, start="bert", config={"hidden_size": 32}), reviews, tmp_path, "bert")
