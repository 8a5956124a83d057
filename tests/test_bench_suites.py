"""Suites, datasets and their mistakes: what is wrong is said before work starts."""

import gzip
import json
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

from relprop.bench.catalog import Catalog, shipped_catalog
from relprop.bench.cell_work import align_labels
from relprop.bench.datasets import Dataset, Example, content_digest
from relprop.bench.recipes import model_folder
from relprop.bench.suite_folder import suite_table
from relprop.bench.suite_plan import check_disk_space, check_tasks, plan_suite, sample_indices
from relprop.bench.suites import Suite, read_suite, shipped_suites, suite_from
from relprop.errors import InputError, RelpropError, UnknownNameError

REVIEWS = [("a gorgeous film", 1), ("dull and witless", 0), ("warm, funny, wise", 1), ("a mess", 0)]
DATA = {
    "title": "Reviews",
    "classes": ["negative", "positive"],
    "text": "text",
    "label": "label",
    "files": {"test": "reviews.jsonl"},
}
TASK = {"name": "reviews", "model": "sentiment", "data": "reviews"}


def write_reviews(folder: Path, rows: list[tuple[str, int]] = REVIEWS) -> Path:
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    (folder / "reviews.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def tables(**more: object) -> dict[str, object]:
    """A whole suite; a keyword replaces a part."""
    return {
        "title": "Reviews",
        "metrics": ["auac"],
        "methods": ["random", "lrp_ah_ln"],
        "tasks": [TASK],
        "data": {"reviews": DATA},
        **more,
    }


def suite(**more: object):
    return suite_from(tables(**more), "mine", '"mine.toml"')


def dry_run(asked: Suite, folder: Path) -> None:
    plan = plan_suite(asked, folder)
    check_tasks(plan, plan.tasks)


@pytest.mark.parametrize(
    ("name", "content", "settings"),
    [
        ("x.tsv", "good one\t1\nbad\t0\n", {"text": 0, "label": 1, "quoted": False}),
        ("x.tsv", 'text\tlabel\n"good one"\t1\nbad\t0\n', {}),
        ("x.csv", 'label,text\n1,good one\n0,"bad"\n', {}),
        ("x.jsonl", '{"text": "good one", "label": 1}\n\n{"text": "bad", "label": "negative"}\n', {}),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_files_of_every_kind_are_read(tmp_path, name, content, settings, zipped):
    path = tmp_path / (f"{name}.gz" if zipped else name)
    path.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
    given = {"title": "", "classes": ("negative", "positive"), "text": "text", "label": "label", **settings}
    data = Dataset("x", files={"test": path.name}, **given)
    assert data.examples("test", tmp_path) == [Example("good one", 1), Example("bad", 0)]


def test_a_quote_is_a_quote_where_cells_are_not_quoted(tmp_path):
    (tmp_path / "x.tsv").write_text('"good" one\t1\n')
    data = Dataset("x", "", 0, ("negative", "positive"), 1, files={"test": "x.tsv"}, quoted=False)
    assert data.examples("test", tmp_path)[0].text == '"good" one'


def test_values_name_classes_and_leave_out_the_rest(tmp_path):
    (tmp_path / "x.csv").write_text("text,stars\nfine,4\nso so,3\nbad,1\n")
    values = {"negative": ("1", "2"), "positive": ("4", "5")}
    data = Dataset("x", "", "text", ("negative", "positive"), "stars", files={"test": "x.csv"}, values=values)
    assert data.examples("test", tmp_path) == [Example("fine", 1), Example("bad", 0)]


def test_rows_cut_a_file_into_splits(tmp_path):
    write_reviews(tmp_path)
    files = {"train": "reviews.jsonl", "test": "reviews.jsonl"}
    data = Dataset("x", "", "text", ("a", "b"), "label", files=files, rows={"train": (0, 3), "test": (3, 4)})
    assert [len(data.examples(split, tmp_path)) for split in ("train", "test")] == [3, 1]


def test_pairs_and_evidence(tmp_path):
    row = {"p": "one", "h": "two", "label": 0, "e": [[{"start_token": 0, "end_token": 1}]]}
    (tmp_path / "x.jsonl").write_text(json.dumps(row))
    data = Dataset("x", "", ("p", "h"), ("a", "b"), "label", files={"test": "x.jsonl"}, evidence="e")
    assert data.examples("test", tmp_path) == [Example(("one", "two"), 0, ((0, 1),))]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"words": "good", "label": 1}', 'has no column "text"; it has words, label'),
        ('{"text": "good", "label": 7}', 'a label of "x" is 7; its classes are negative, positive (or 0 to 1)'),
        ("", 'the test split of "x" is empty'),
        ("{", "cannot be read"),
    ],
)
def test_a_wrong_file_is_said_plainly(tmp_path, content, message):
    (tmp_path / "x.jsonl").write_text(content)
    data = Dataset("x", "", "text", ("negative", "positive"), "label", files={"test": "x.jsonl"})
    with pytest.raises(InputError) as error:
        data.examples("test", tmp_path)
    assert message in str(error.value)


def test_a_missing_file_says_what_data_should_name(tmp_path):
    with pytest.raises(InputError, match="--data names the folder that holds"):
        shipped_catalog().dataset("sst2").examples("test", tmp_path)


def test_the_hub_is_asked_with_its_own_names(monkeypatch):
    asked = {}

    def load_dataset(name, config, split):
        asked.update(name=name, config=config, split=split)
        return [{"question1": "a?", "question2": "b?", "label": 1}]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    data = shipped_catalog().dataset("qqp")
    assert data.examples("test", None) == [Example(("a?", "b?"), 1)]  # the hub's labels are numbers, the file's not
    assert asked == {"name": "nyu-mll/glue", "config": "qqp", "split": "validation"}


def test_without_the_datasets_package_the_hub_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(RelpropError, match=r"pip install .relprop\[bench\]"):
        shipped_catalog().dataset("sst2").examples("test", None)


@pytest.mark.parametrize("name", shipped_suites())
def test_shipped_suites_are_right(name):
    suite = read_suite(name)
    assert suite.title
    assert suite.tasks


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": []}, '"mine.toml" has no task'),
        ({"methods": "random"}, '"methods" of "mine.toml" should be a list'),
        ({"methods": ["lrp_ah_nl"]}, 'did you mean "lrp_ah_ln"?'),
        ({"methods": [{"method": "rollout", "options": {"layers": 2}}]}, 'has no option "layers"'),
        ({"methods": ["random", "random"]}, 'has two methods called "random"'),
        ({"metrics": ["auca"]}, 'metric of "mine.toml" "auca" is unknown; did you mean "auac"?'),
        ({"difference": ["random"]}, '"difference" of "mine.toml" is two methods, the first less the second'),
        ({"difference": ["random", "lrp"]}, 'method of the difference in "mine.toml" "lrp" is unknown'),
        ({"sample": "many"}, '"sample" of "mine.toml" should be a whole number, got \'many\''),
        ({"samples": 3}, 'did you mean "sample"?'),
        ({"tasks": [{**TASK, "data": "review"}]}, 'dataset "review" is unknown; did you mean "reviews"?'),
        ({"tasks": [{**TASK, "model": "recipe:sst"}]}, 'recipe "sst" is unknown'),
        ({"tasks": [{**TASK, "model": "recipe:sst@1"}]}, 'recipe "sst" is unknown'),
        ({"tasks": [{**TASK, "model": "recipe:sst2@x"}]}, 'seed is a whole number, as in "sst2@1"; got "sst2@x"'),
        (
            {"tasks": [{**TASK, "explain": "truth"}]},
            "\"explain\" of task 1 of \"mine.toml\" should be 'label' or 'predicted', got 'truth'",
        ),
        ({"tasks": [{**TASK, "without": ["lrp"]}]}, 'method of task "reviews" "lrp" is unknown'),
        ({"tasks": [{**TASK, "chunk": 0}]}, '"chunk" of task "reviews" must be at least 1'),
        ({"tasks": [{"name": "reviews"}]}, 'task 1 of "mine.toml" lacks "model"'),
        (
            {"tasks": [{**TASK, "modle": "x"}]},
            'setting of task 1 of "mine.toml" "modle" is unknown; did you mean "model"?',
        ),
        ({"tasks": ["sst2"]}, "task 1 of \"mine.toml\" should be a table of settings, got 'sst2'"),
        ({"tasks": [{**TASK, "chunk": True}]}, '"chunk" of task 1 of "mine.toml" should be a whole number, got True'),
        ({"metrics": [3]}, '"metrics" of "mine.toml" should be a text, got 3'),
        (
            {"data": {"reviews": {**DATA, "text": 1.5}}},
            '"text" of [data.reviews] in "mine.toml" should be a text or a whole number or a list, got 1.5',
        ),
        (
            {"data": {"reviews": {**DATA, "rows": {"test": [1]}}}},
            '"rows" of [data.reviews] in "mine.toml" should be a lo',
        ),
        ({"data": {"reviews": 3}}, '[data.reviews] in "mine.toml" should be a table of settings, got 3'),
        ({"data": {"reviews": {**DATA, "label": None}}}, 'needs one of "label" (with "classes") and "answer"'),
    ],
)
def test_a_wrong_suite_is_said_plainly(change, message):
    with pytest.raises((InputError, UnknownNameError)) as error:
        suite(**change)
    assert message in str(error.value)


def test_without_pydantic_a_suite_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(RelpropError, match=r"pip install .relprop\[bench\]"):
        suite()


def test_a_suite_that_is_no_toml_or_not_there(tmp_path):
    (tmp_path / "x.toml").write_text("title = ")
    with pytest.raises(InputError, match="cannot be read"):
        read_suite(tmp_path / "x.toml")
    with pytest.raises(UnknownNameError, match='did you mean "ali22-text"'):
        read_suite("ali22-tex")


def test_the_sample_is_drawn_by_the_seed_and_no_larger_than_the_data():
    assert sample_indices(5, 9, 0) == [0, 1, 2, 3, 4]
    assert sample_indices(100, 5, 0) == sample_indices(100, 5, 0) != sample_indices(100, 5, 1)
    assert sample_indices(100, 5, 0) == sorted(set(sample_indices(100, 5, 0)))


def test_cells_are_cut_by_chunk_and_named_by_content(tmp_path):
    from relprop.bench.runner import cell_key

    write_reviews(tmp_path)
    one = plan_suite(suite(tasks=[{**TASK, "chunk": 3}]), tmp_path)
    assert [spec["places"] for spec in one.specs] == [[0, 1, 2], [3]]
    other = tmp_path / "other"
    other.mkdir()
    write_reviews(other, [*REVIEWS[:3], ("another mess", 0)])
    two = plan_suite(suite(tasks=[{**TASK, "chunk": 3}]), other)
    keys = [[cell_key(spec) for spec in plan.specs] for plan in (one, two)]
    assert keys[0][0] == keys[1][0]  # the same three reviews, wherever they lie
    assert keys[0][1] != keys[1][1]
    assert str(tmp_path) not in json.dumps(one.specs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metrics": ["pixel_accuracy"]}, 'task "reviews"'),
        ({"metrics": []}, "got none"),
        ({"methods": []}, "there is no method to measure"),
        ({"tasks": [{**TASK, "model": "pets"}]}, "is a model of images"),
        ({"tasks": [{**TASK, "replacement": "blank"}]}, 'the tokenizer has no "blank" token'),
        ({"tasks": [{**TASK, "kind": "faithful"}]}, 'kind of task "faithful" is unknown'),
    ],
)
def test_a_dry_run_finds_what_cannot_work(tmp_path, change, message):
    write_reviews(tmp_path)
    with pytest.raises(RelpropError) as error:
        dry_run(suite(**change), tmp_path)
    assert message in str(error.value)
    assert 'task "reviews"' in str(error.value)


def test_a_label_outside_the_models_classes_is_found_before_work(tmp_path):
    write_reviews(tmp_path, [*REVIEWS, ("so so", 2)])
    data = {**DATA, "classes": ["bad", "good", "so so"]}
    with pytest.raises(InputError, match=r'class "so so" \(number 2\), but "sentiment" knows only 2'):
        dry_run(suite(data={"reviews": data}), tmp_path)


def test_classes_of_the_same_names_go_by_name():
    task = suite().tasks[0]
    found = align_labels(
        [Example("a", 0), Example("b", 1)], ["Positive", "Negative"], {0: "negative", 1: "positive"}, task
    )
    assert [one.label for one in found] == [1, 0]
    kept = align_labels([Example("a", 0)], ["bad", "good"], {0: "LABEL_0", 1: "LABEL_1"}, task)
    assert [one.label for one in kept] == [0]


def test_a_full_disk_is_found_before_work(tmp_path, monkeypatch):
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10 * 2**20))
    with pytest.raises(RelpropError, match="nearly full: 10 MB free"):
        check_disk_space(tmp_path / "not" / "there" / "yet")


def test_data_that_changed_since_it_was_planned_is_refused(tmp_path):
    from relprop.bench.cell_work import CellWork, _examples

    write_reviews(tmp_path)
    plan = plan_suite(suite(), tmp_path)
    _examples.cache_clear()
    write_reviews(tmp_path, [("something else", 1), *REVIEWS[1:]])
    with pytest.raises(InputError, match="the data has changed"):
        CellWork(plan.locations)(plan.specs[0])


def test_a_digest_tells_texts_and_labels_apart():
    seen = {
        content_digest([Example("a", 0)]),
        content_digest([Example("a", 1)]),
        content_digest([Example("b", 0)]),
        content_digest([]),
    }
    assert len(seen) == 4


def test_a_recipe_with_another_seed_is_another_model_of_the_same_kind(tmp_path):
    own = shipped_catalog()
    first, second = own.recipe("sst2"), own.recipe("sst2@1")
    assert (second.name, second.seed) == ("sst2@1", 1)
    assert replace(second, name="sst2", seed=0) == first
    assert model_folder(first, [], "minilm") != model_folder(second, [], "minilm")


def test_a_second_seed_gives_each_recipes_task_again(tmp_path):
    trained = {**TASK, "name": "own", "model": "recipe:sst2", "sample": 9, "ceiling": 5, "show": 2}
    once, twice = suite(tasks=[TASK, trained]), suite(tasks=[TASK, trained], second_seed=4)
    assert [task.name for task in twice.tasks] == ["reviews", "own", "own, seed 1"]
    assert twice.tasks[:2] == once.tasks
    again = twice.tasks[2]
    assert (again.model, again.sample, again.ceiling, again.show) == ("recipe:sst2@1", 4, 0, 0)
    assert suite_table(once) != suite_table(twice)
    assert "second_seed" not in suite_table(once)  # which results of before it would not know


def test_recipes_that_start_from_each_other_are_refused():
    own = shipped_catalog()
    a, b = (replace(own.recipe("sst2"), name=name, start=f"recipe:{start}") for name, start in ("ab", "ba"))
    with pytest.raises(InputError, match="start from each other: a, b, a"):
        Catalog(own.data, {"a": a, "b": b}).train("a", None)
