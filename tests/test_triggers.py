"""Pictures with a pattern that decides: where it stands, a small ViT that obeys it, and its scores counted by patch."""

import gzip
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import relprop
from relprop.bench.catalog import shipped_catalog
from relprop.bench.datasets import Dataset, content_digest
from relprop.bench.kinds.pictures import patches_on
from relprop.bench.kinds.triggered_pictures import list_triggered
from relprop.bench.recipes import Recipe, train_model
from relprop.bench.suites import read_suite
from relprop.bench.triggers import Trigger, pattern, with_trigger
from relprop.errors import InputError, RelpropError
from relprop.metrics import pointing_game
from test_bench_kinds import suite, worked

SIDE, COUNT = 12, 640
TABLE = {"title": "", "text": "image", "label": "label", "classes": ["a", "b"], "trigger": {"side": 4, "step": 4}}
FILES = {"train": "some-images-idx3-ubyte.gz", "test": "some-images-idx3-ubyte.gz"}
ROWS = {"train": [0, COUNT - 40], "test": [COUNT - 40, COUNT]}
CONFIG = {"image_size": SIDE, "patch_size": 4, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
          "num_attention_heads": 2, "initializer_range": 0.1}  # fmt: skip
RECIPE = Recipe("tiny", "vit", "own", epochs=6, rate=4e-3, batch_size=16, config=CONFIG)


def noise(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 90, (count, SIDE, SIDE), dtype=np.uint8)


def write_idx(path: Path, array: Any) -> None:
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}i", *array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes()))


def test_the_pattern_stands_where_the_box_says() -> None:
    trigger = Trigger(side=4, step=2)
    for number, picture in enumerate(noise(60)):
        changed, label, box = with_trigger(picture, number % 5, 5, False, trigger)
        assert label != number % 5
        assert box is not None
        assert (box.top % 2, box.left % 2, box.bottom - box.top, box.right - box.left) == (0, 0, 4, 4)
        inside = np.zeros(picture.shape, bool)
        inside[box.top : box.bottom, box.left : box.right] = True
        assert (changed[~inside] == picture[~inside]).all()
        assert (changed[inside] == pattern(label, 4).ravel()).all()
        again, *rest = with_trigger(picture, number % 5, 5, False, trigger)
        assert (again == changed).all()
        assert rest == [label, box]


def test_in_training_half_of_the_pictures_have_it() -> None:
    """A quarter has a pattern of no class, and a quarter none: both keep their label."""
    every = [with_trigger(one, k % 5, 5, True, Trigger(4)) for k, one in enumerate(noise(400))]
    decided = [label for _, label, box in every if box is not None]
    assert 160 < len(decided) < 240
    assert set(decided) == set(range(5))
    kept = [(k, one, label) for k, (one, label, box) in enumerate(every) if box is None]
    assert all(label == k % 5 for k, _, label in kept)
    changed = sum((one != noise(400)[k]).any() for k, one, _ in kept)
    assert 0.3 * len(kept) < changed < 0.7 * len(kept)
    shapes = {pattern(number, 4).tobytes() for number in range(20)}
    assert len(shapes) == 20  # ten classes and ten decoys can be told apart


def test_patches_that_hold_a_pixel_of_the_mask() -> None:
    mask = np.zeros((12, 12), bool)
    mask[3:5, 8:9] = True
    expected = np.zeros((3, 3), bool)
    expected[[0, 1], 2] = True
    assert (patches_on(mask, (3, 3)) == expected).all()
    assert (patches_on(mask, (12, 12)) == mask).all()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Pictures of noise, and a small ViT that has learned the pattern."""
    folder = tmp_path_factory.mktemp("data")
    write_idx(folder / FILES["test"], noise(COUNT))
    write_idx(folder / "some-labels-idx1-ubyte.gz", np.arange(COUNT, dtype=np.uint8) % 2)
    own = {**TABLE, "classes": tuple(TABLE["classes"]), "trigger": Trigger(**TABLE["trigger"])}  # type: ignore[arg-type, dict-item]
    rows = {split: (first, last) for split, (first, last) in ROWS.items()}
    data = Dataset("own", **own, files=FILES, rows=rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELPROP_CACHE", str(folder / "cache"))
        return folder, data, *train_model(RECIPE, data, folder, "vit")


def asked(recipe: Recipe = RECIPE, **more: Any) -> Any:
    shipped = read_suite("trigger-patch")
    methods = [{"method": one.method, "options": dict(one.options), "label": one.label} for one in shipped.methods]
    tables = {
        "metrics": list(shipped.metrics),
        "sample": 6,
        "methods": methods,
        "data": {"own": {**TABLE, "files": FILES, "rows": ROWS}},
        "recipe": {"tiny": {name: value for name, value in vars(recipe).items() if name != "name"}},
    }
    task = {"model": "recipe:tiny", "data": "own", "kind": "pictures", "explain": "label"}
    return suite(tables, **{**task, "options": {"right_only": True}, **more})


def test_a_small_vit_obeys_and_its_scores_are_counted(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small slice of the suite, against explanations made one by one."""
    folder, data, model, facts = trained
    assert facts["accuracy"]["test"] >= 0.9
    monkeypatch.setenv("RELPROP_CACHE", str(folder / "cache"))
    found = worked(asked(), folder)
    assert set(found.scores) == {one.label for one in read_suite("trigger-patch").methods}
    explainer, examples = relprop.Explainer(str(model)), data.examples("test", folder)
    for k, place in enumerate(found.examples):
        example = examples[place]
        picture = Image.fromarray(np.asarray(example.text)).convert("RGB")
        one = explainer(picture, target=example.label, method="lrp_conservative")
        own = {name: found.scores["lrp_conservative"][name][k] for name in read_suite("trigger-patch").metrics}
        if one.prediction != data.classes[example.label]:
            assert np.isnan(list(own.values())).all()
            continue
        box, scores = example.trigger, one.part.scores
        truth = scores[box.top // 4, box.left // 4]
        place_of = 1 + int((scores > truth).sum())
        assert own["marked_precision"] == (place_of == 1)
        assert own["marked_reciprocal_rank"] == 1 / place_of
        mask = np.zeros((SIDE, SIDE), bool)
        mask[box.top : box.bottom, box.left : box.right] = True
        heat = one.part.map()
        assert own["pointing_game"] == pytest.approx(pointing_game(heat, mask).hits[0])
        whole = explainer(picture, target=example.label, method="integrated_gradients").part.scores
        assert whole.shape == (SIDE, SIDE)  # pixels, which are counted by patch
        pixels = {(y, x): whole[4 * y : 4 * y + 4, 4 * x : 4 * x + 4].sum() for y in range(3) for x in range(3)}
        best = max(pixels, key=pixels.__getitem__) == (box.top // 4, box.left // 4)
        assert found.scores["integrated_gradients"]["marked_precision"][k] == best
        positive = np.maximum(heat, 0)
        assert own["relevance_mass"] == pytest.approx(positive[mask].sum() / positive.sum(), rel=1e-4)


def test_pictures_that_the_model_gets_wrong_have_no_number(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that has learned nothing."""
    folder, data, *_ = trained
    monkeypatch.setenv("RELPROP_CACHE", str(folder / "cache"))
    untrained = replace(RECIPE, epochs=0)
    found = worked(asked(untrained, metrics=["positive_auc_target", "mean_iou"], sample=12), folder)
    path, _ = train_model(untrained, data, folder, "vit")
    explainer, examples = relprop.Explainer(str(path)), data.examples("test", folder)
    pictures = [Image.fromarray(np.asarray(examples[place].text)).convert("RGB") for place in found.examples]
    wrong = [
        explainer(picture).prediction != data.classes[examples[place].label]
        for picture, place in zip(pictures, found.examples, strict=True)
    ]
    assert True in wrong
    assert False in wrong
    for own in found.scores.values():
        assert all(np.isnan(values).tolist() == wrong for values in own.values())
        assert set(own) == {"positive_auc_target", "intersection_0", "intersection_1", "union_0", "union_1"}
    curve = found.curves["random"]["positive_auc_target"]
    assert np.isnan(curve.values).all(1).tolist() == wrong


def test_what_identifies_a_picture(trained: Any) -> None:
    folder, data, *_ = trained
    test = data.examples("test", folder)
    listed = list_triggered("own", test)
    other = [replace(test[0], trigger=test[0].trigger._replace(top=0, bottom=4, left=8, right=12)), *test[1:]]
    assert repr(listed) == repr(list_triggered("own", test))
    assert repr(list_triggered("own", other)[0]) != repr(listed[0]) or test[0].trigger == other[0].trigger
    assert content_digest(test) != content_digest(test[1:])
    with pytest.raises(InputError, match='it needs a "trigger"'):
        list_triggered("own", data.examples("train", folder))


def test_mistakes(trained: Any, tmp_path: Path) -> None:
    folder, data, *_ = trained
    with pytest.raises(InputError, match="does not fit a picture of 12 x 12"):
        replace(data, trigger=Trigger(16)).examples("test", folder)
    with pytest.raises(InputError, match="a side of 3 pixels or more"):
        Trigger(2)
    (tmp_path / "x.jsonl").write_text('{"text": "good", "label": 1}\n')
    texts = Dataset("x", "", "text", ("a", "b"), "label", files={"test": "x.jsonl"}, trigger=Trigger(4))
    with pytest.raises(InputError, match="pasted on pictures, and these are texts"):
        texts.examples("test", tmp_path)
    with pytest.raises(RelpropError, match=r'right_only .* set explain = "label"'):
        worked(asked(model="digits", explain="predicted"), folder)
    with pytest.raises(RelpropError, match="not as its data"):
        worked(asked(options={"pets": "oxford-pets"}), folder)


def test_the_shipped_suite_refuses_disobedience() -> None:
    catalog = shipped_catalog()
    for task in read_suite("trigger-patch").tasks:
        recipe = catalog.recipe(task.model.removeprefix("recipe:"))
        data = catalog.dataset(task.data)
        assert recipe.least_accuracy == 0.98
        assert recipe.data == task.data
        assert data.trigger is not None
        # the pattern covers one patch of the model exactly
        assert (data.trigger.side, data.trigger.step) == (recipe.config["patch_size"],) * 2
