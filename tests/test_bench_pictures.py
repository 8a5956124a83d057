"""The pictures kind measures what relprop.metrics measures, and its suites reproduce what they say."""

import base64
import gzip
import io
import json
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

import digits as digits_training
import relprop
import vision
from relprop.bench.cell_work import CellWork
from relprop.bench.kinds import canvases, picture_data, pictures, task_kind
from relprop.bench.measurements import Measurements, join_measurements
from relprop.bench.report.metric_statistics import metric_statistic
from relprop.bench.report.published import fill_template, read_published
from relprop.bench.suite_plan import check_tasks, plan_suite
from relprop.bench.suites import Method, Suite, SuiteTask, read_suite, suite_from
from relprop.errors import InputError, RelpropError, UnknownNameError
from relprop.metrics import (
    METRICS,
    SegmentedPicture,
    class_sensitivity,
    normalise,
    pixel_perturbation,
    pointing_game,
    read_folder,
    read_imagenet_segmentation,
    segment,
)

SIDE = 24
SUITES = ("chefer21-pets", "chefer21-pets-ablation", "chefer21-figures")
ON_IMAGENET = ("chefer21-imagenet", "chefer21-imagenet-ablation", "chefer21-imagenet-others")
METHODS = (
    "attention_last",
    "lrp_ah_ln",
    {"method": "transformer_attribution", "options": {"only_block": 1}, "label": "second block"},
)
PETS = {"pets": "oxford-pets"}


def png(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten pictures of noise with a bright pet, as the Pets and as folders; and hand-made digits as MNIST."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("oxford-pets", "images", "masks", "mnist"):
        (folder / name).mkdir()
    rng = np.random.default_rng(0)
    rows = []
    with zipfile.ZipFile(folder / "oxford-pets" / picture_data.ARCHIVE, "w") as archive:
        for number in range(10):
            pixels = rng.integers(0, 120, (32, 32, 3), dtype=np.uint8)
            trimap = np.full((32, 32), 2, np.uint8)
            top, left = rng.integers(2, 14, 2)
            trimap[top - 1 : top + 13, left - 1 : left + 13] = 3
            if number != 7:  # whose pet is all border
                trimap[top : top + 12, left : left + 12] = 1
            pixels[trimap == 1] += 130
            name = f"{'beagle' if number % 3 else 'Maine_Coon'}_{number}"
            archive.writestr(f"images/{name}.jpg", png(pixels))
            archive.writestr(f"trimaps/{name}.png", png(trimap))
            (folder / "images" / f"{number}.png").write_bytes(png(pixels))
            (folder / "masks" / f"{number}.png").write_bytes(png(trimap))
            rows.append(f"{name} {5 if number % 3 else 21} {1 + (number % 3 > 0)} 1")
    (folder / "oxford-pets" / "test.txt").write_text("\n".join(rows))
    tiles = np.zeros((20, 28, 28), np.uint8)
    tiles[:, 4:24, 4:24] = rng.integers(0, 2, (20, 20, 20)) * 255
    tiles[:, 4:24, 10] = 255  # some ink in every row and digit
    for name, array in (("images-idx3", tiles), ("labels-idx1", np.arange(20, dtype=np.uint8) % 10)):
        head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}i", *array.shape)
        (folder / "mnist" / f"t10k-{name}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))
    return folder


def saved(folder: Path, names: dict[int, str]) -> str:
    torch.manual_seed(len(names))
    vision.save_model(vision.new_vit(names, side=SIDE, patch=8, width=32, layers=3, heads=2).eval(), folder)
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tiny, random, and with its classes the other way round than the data has them."""
    return saved(tmp_path_factory.mktemp("model"), {0: "dog", 1: "cat"})


def suite_of(task: dict[str, Any], **more: Any) -> Suite:
    task = {"name": "some", "kind": "pictures", "chunk": 4, **task}
    return suite_from({"title": "t", "methods": list(METHODS), "sample": 100, **more, "tasks": [task]}, "s", "s")


def run(suite: Suite, data: Path) -> Measurements:
    """Planned, checked, and every cell's spec and numbers through JSON, as in a run."""
    plan = plan_suite(suite, data)
    check_tasks(plan, plan.tasks)
    work = CellWork(plan.locations)
    cells = [json.loads(json.dumps(work(json.loads(json.dumps(spec))))) for spec in plan.specs]
    return join_measurements([Measurements.from_dict(cell) for cell in cells])


def maps_of(explainer: relprop.Explainer, images: list[Image.Image], target: Any, method: Method) -> Any:
    found = explainer(images, target=target, method=method.method, **method.options)
    return np.stack([one.part.map() for one in found])


def seen(data: Path, **values: Any) -> list[SegmentedPicture]:
    """The pictures at the model's size, by relprop.metrics alone."""
    values = values or {"foreground": {1}, "ignore": {3}}
    return [one.resized(SIDE, SIDE) for one in read_folder(data / "images", data / "masks", **values)]


SPECIES = [0 if number % 3 else 1 for number in range(10)]  # as the model numbers them


@pytest.mark.parametrize("explain", ["label", "predicted"])
def test_numbers_are_the_metrics_own(data: Path, model: str, explain: str) -> None:
    """Whatever the cells: tables 1 and 2 of direct calls on all pictures at once."""
    asked = [*pictures.PERTURBATION, *pictures.SEGMENTATION, *pictures.CLASSES]
    suite = suite_of({"model": model, "options": PETS, "explain": explain, "metrics": asked, "batch_size": 3})
    found = run(suite, data)
    assert found.examples == list(range(10))
    explainer, every = relprop.Explainer(model), seen(data)
    images = [one.image for one in every]
    pixels = torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 for image in images])
    guesses = explainer.model(normalise([0.5] * 3, [0.5] * 3)(pixels)).logits.argmax(1).tolist()
    assert guesses != SPECIES  # else this test could not tell "label" from "predicted"
    own = SPECIES if explain == "label" else guesses
    true, border = np.stack([one.foreground for one in every]), np.stack([one.ignore for one in every])
    for method in suite.methods:
        maps, others = (maps_of(explainer, images, t, method) for t in (own, [1 - one for one in own]))
        expected: dict[str, float] = {}
        prepare = normalise([0.5] * 3, [0.5] * 3)
        result = pixel_perturbation(explainer.model, pixels, torch.from_numpy(maps), SPECIES, prepare=prepare)
        for one in (result, segment(maps, true, border), class_sensitivity(maps, others)):
            expected |= one.summary()
        assert set(expected) == set(asked)
        columns = found.scores[method.label]
        for metric, value in expected.items():
            statistic = metric_statistic(metric, columns)
            assert statistic is not None
            # rounding differs between sizes of batches, and the mean AP sees when two pixels swap
            close = 1e-4 if metric == "mean_ap" else 1e-5
            assert statistic(np.ones((1, 10)))[0] == pytest.approx(value, abs=close), metric
        curve = found.curves[method.label]["negative_auc_target"]
        assert np.mean(curve.values, 0) == pytest.approx(result.accuracy("negative", "target"))
        assert curve.at == list(result.fractions)
    assert set(found.seconds) == {method.label for method in suite.methods}


def test_numbers_of_the_true_class_beside_those_of_the_predicted(data: Path, model: str) -> None:
    """They are those of a task that explains the true class, which has no such numbers beside its own."""
    own = ("positive_auc_target", "negative_auc_target", "relevance_mass", "pointing_game")
    both = [*own, *(f"label_{one}" for one in own)]
    common = {"model": model, "options": PETS, "batch_size": 3}
    predicted, label = (
        run(suite_of({**common, "explain": one, "metrics": own}), data) for one in ("predicted", "label")
    )
    found = run(suite_of({**common, "metrics": both}), data)
    assert predicted.scores != label.scores  # else this test could not tell one class from the other
    for method, columns in found.scores.items():
        for metric in own:
            assert columns[metric] == pytest.approx(predicted.scores[method][metric], abs=1e-5, nan_ok=True)
            assert columns[f"label_{metric}"] == pytest.approx(label.scores[method][metric], abs=1e-5, nan_ok=True)
        curves = found.curves[method]
        assert curves["label_positive_auc_target"].values == label.curves[method]["positive_auc_target"].values
    with pytest.raises(InputError, match='"label_relevance_mass" stands beside numbers of the predicted class'):
        run(suite_of({**common, "explain": "label", "metrics": ["label_relevance_mass"]}), data)


def test_pointing_leaves_out_what_has_no_object(data: Path, model: str) -> None:
    suite = suite_of({"model": model, "options": PETS, "explain": "label", "metrics": ["pointing_game"]})
    found = run(suite, data)
    every = [one for number, one in enumerate(seen(data)) if number != 7]
    own = [label for number, label in enumerate(SPECIES) if number != 7]
    for method in suite.methods:
        maps = maps_of(relprop.Explainer(model), [one.image for one in every], own, method)
        hits = pointing_game(maps, np.stack([e.foreground for e in every]), np.stack([e.ignore for e in every])).hits
        values = np.array(found.scores[method.label]["pointing_game"])
        assert np.flatnonzero(np.isnan(values)).tolist() == [7]
        assert np.delete(values, 7) == pytest.approx(hits)


def test_breeds_by_name_by_number_or_not_at_all(data: Path) -> None:
    """A model of 37 classes is one of breeds; one of 5 has no class of the data."""
    task = SuiteTask("t", "m", kind="pictures", options=PETS)
    every = picture_data.list_pictures(task, data)[:2]
    breeds = {number: f"other {number}" for number in range(37)}

    def labels(names: dict[int, str]) -> list[int | None]:
        return [things[0].label for things in every[0].open_pictures(every, names)]

    assert labels(breeds) == [20, 4]
    assert labels(breeds | {0: "Beagle", 1: "maine coon"}) == [1, 0]
    assert labels({number: str(number) for number in range(5)}) == [None, None]
    assert labels({0: "LABEL_0", 1: "LABEL_1"}) == [0, 1]
    with pytest.raises(InputError, match='but not "Maine_Coon"'):
        labels(breeds | {0: "beagle"})


def test_folders_have_masks_but_no_classes(data: Path, model: str) -> None:
    options = {"images": "images", "masks": "masks", "foreground": [1], "ignore": [3]}
    both = [
        run(suite_of({"model": model, "options": one, "metrics": ["mean_iou", "positive_auc_predicted"]}), data)
        for one in (options, PETS)
    ]
    for label, columns in both[1].scores.items():
        for name, values in columns.items():
            assert both[0].scores[label][name] == pytest.approx(values)
    with pytest.raises(InputError, match=r"needs true classes, and the data has none"):
        run(suite_of({"model": model, "options": options, "metrics": ["positive_auc_target"]}), data)
    with pytest.raises(InputError, match='explain = "label" needs true classes'):
        run(suite_of({"model": model, "options": options, "explain": "label", "metrics": ["mean_ap"]}), data)


def test_imagenet_segmentation_by_index(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "some.mat", "w") as file:
        for name in ("img", "gt"):
            file.create_dataset(f"value/{name}", (3, 1), dtype=h5py.ref_dtype)
        for k in range(3):
            image = file.create_dataset(f"i{k}", data=rng.integers(0, 255, (3, 30 + k, 20), dtype=np.uint8))
            mask = file.create_dataset(f"m{k}", data=rng.integers(0, 2, (30 + k, 20), dtype=np.uint8))
            cell = file.create_dataset(f"c{k}", (1, 1), dtype=h5py.ref_dtype)
            cell[0, 0] = mask.ref
            file["value/img"][k, 0], file["value/gt"][k, 0] = image.ref, cell.ref
    task = SuiteTask("t", "m", kind="pictures", options={"imagenet_segmentation": "some.mat"})
    every = picture_data.list_pictures(task, tmp_path)
    wanted = list(read_imagenet_segmentation(tmp_path / "some.mat"))
    assert len(every) == 3
    (last,) = every[2].open_pictures(every[2:], {})
    assert last[0].example.image.tobytes() == wanted[2].image.tobytes()
    assert (last[0].example.foreground == wanted[2].foreground).all()


def test_two_digits_are_explained_for_their_own_classes(data: Path) -> None:
    """The numbers of the two maps of a canvas, by hand; and both maps are kept to look at."""
    metrics = ["class_pearson", "mean_ap", "pixel_accuracy", "pointing_game"]
    task = {"model": "digits", "options": {"digits": "mnist"}, "explain": "label", "metrics": metrics, "show": 2}
    suite = suite_of({**task, "sample": 3})
    found = run(suite, data)
    mnist = canvases.Mnist.read(*(data / "mnist" / f"t10k-{k}-ubyte.gz" for k in ("images-idx3", "labels-idx1")))
    drawn = [canvases.draw_canvas(mnist, number) for number in found.examples]
    explainer = relprop.Explainer("digits")
    images = [Image.fromarray(one.image) for one in drawn]
    for method in suite.methods:
        maps = [maps_of(explainer, images, [one.classes[k] for one in drawn], method) for k in (0, 1)]
        ink = [np.stack([one.ink[k] for one in drawn]) for k in (0, 1)]
        tallies = [segment(maps[k], ink[k]) for k in (0, 1)]
        own = found.scores[method.label]
        assert own["class_pearson"] == pytest.approx(class_sensitivity(*maps).pearson, nan_ok=True, abs=1e-5)
        assert own["correct"] == (tallies[0].correct + tallies[1].correct).tolist()
        assert own["mean_ap"] == pytest.approx((tallies[0].average_precision + tallies[1].average_precision) / 2)
        hits = [pointing_game(maps[k], ink[k]).hits for k in (0, 1)]
        assert own["pointing_game"] == pytest.approx((hits[0] + hits[1]) / 2)
    assert len(found.exhibits) == 2 * len(METHODS)
    first = found.exhibits[0]
    assert first["target"] == ", ".join(map(str, drawn[0].classes))
    with Image.open(io.BytesIO(base64.b64decode(first["png"]))) as shown:
        assert shown.size == (200, 400)
    with pytest.raises(InputError, match="is for pictures with one object"):
        run(suite_of({**task, "metrics": ["positive_auc_target"]}), data)
    with pytest.raises(InputError, match=r'each picture has two objects.*explain = "label"'):
        run(suite_of({**task, "explain": "predicted"}), data)


def test_canvases_are_like_those_that_the_model_learned(data: Path) -> None:
    """Two classes, ink of each within the canvas and apart, the rest fragments; as much ink as in training."""
    folder = data / "mnist"
    mnist = canvases.Mnist.read(*(folder / f"t10k-{k}-ubyte.gz" for k in ("images-idx3", "labels-idx1")))
    ours = [canvases.draw_canvas(mnist, number) for number in range(200)]
    theirs = digits_training.canvases(
        *digits_training.read_mnist(folder, "t10k"), 200, np.random.default_rng(0), doubles=1
    )
    for one in ours:
        assert one.image.shape == (56, 56)
        assert one.classes[0] != one.classes[1]
        assert not (one.ink[0] & one.ink[1]).any()
        assert (one.image[one.ink[0] | one.ink[1]] > 0).all()
    for a, b in (
        ([one.image.mean() for one in ours], theirs.images.mean((1, 2))),
        ([one.ink[0].sum() + one.ink[1].sum() for one in ours], theirs.masks.sum((1, 2, 3))),
    ):
        assert np.mean(a) == pytest.approx(np.mean(b), rel=0.02)
    again = canvases.draw_canvas(mnist, 3)
    assert (again.image == ours[3].image).all()
    assert (ours[4].image != ours[3].image).any()


def test_first_pictures_are_kept_to_look_at(data: Path, model: str) -> None:
    suite = suite_of({"model": model, "options": PETS, "metrics": ["mean_ap"], "show": 5})
    found = run(suite, data)
    assert [one["example"] for one in found.exhibits if one["method"] == "lrp_ah_ln"] == [0, 1, 2, 3, 4]
    for one in found.exhibits:
        assert set(one) == {"kind", "example", "method", "target", "png"}
        assert one["kind"] == "image"
        with Image.open(io.BytesIO(base64.b64decode(one["png"]))) as shown:
            assert shown.size == (200, 200)
            assert len(one["png"]) < 60_000


def test_examples_are_told_by_content_not_by_place(data: Path, tmp_path: Path) -> None:
    """What is hashed: the same for the same archive elsewhere, another for other pixels of the same name."""
    task = SuiteTask("t", "m", kind="pictures", options=PETS)
    there = picture_data.list_pictures(task, data)
    source, copy = data / "oxford-pets", tmp_path / "oxford-pets"
    copy.mkdir()
    for name in ("test.txt", picture_data.ARCHIVE):
        (copy / name).write_bytes((source / name).read_bytes())
    assert repr(picture_data.list_pictures(task, tmp_path)) == repr(there)
    with (
        zipfile.ZipFile(source / picture_data.ARCHIVE) as old,
        zipfile.ZipFile(copy / picture_data.ARCHIVE, "w") as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name) if "_4" not in name else png(np.zeros((32, 32), np.uint8)))
    changed = [repr(a) == repr(b) for a, b in zip(picture_data.list_pictures(task, tmp_path), there, strict=True)]
    assert changed == [number != 4 for number in range(10)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'by one of "pets", "digits", "images", .*"imagenet_segmentation"'),
        ({"pets": "oxford-pets", "digits": "mnist"}, "by one of"),
        ({"pets": "oxford-pets", "ignore": [3]}, 'option "ignore" is unknown; known: pets'),
        ({"images": "images"}, 'the option "images" needs "masks" beside it'),
        ({"images": "images", "masks": "nowhere"}, "there is no folder .*nowhere"),
        ({"pets": "cats"}, 'there is no ".*cats/test.txt"; --data names the folder that holds "cats"'),
        ({"digits": "oxford-pets"}, 'there is no ".*t10k-images-idx3-ubyte.gz"; --data names'),
        ({"imagenet_segmentation": "x.mat"}, 'there is no ".*x.mat"; --data names the folder'),
        ({"imagenet_segmentation": "oxford-pets/test.txt"}, "is no MATLAB 7.3 file"),
    ],
)
def test_wrong_options_are_said(data: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        plan_suite(suite_of({"model": "pets", "options": options, "metrics": ["mean_ap"]}), data)


def test_broken_archives_are_said(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "oxford-pets"
    folder.mkdir()
    (folder / "test.txt").write_text("beagle_1 5 2 1")
    task = SuiteTask("t", "m", kind="pictures", options=PETS)
    with pytest.raises(InputError, match=r'there is no ".*pets_96px_all.zip"; --data names the folder'):
        picture_data.list_pictures(task, tmp_path)
    (folder / picture_data.ARCHIVE).write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"pets_96px_all.zip\" cannot be read"):
        picture_data.list_pictures(task, tmp_path)
    with zipfile.ZipFile(folder / picture_data.ARCHIVE, "w") as archive:
        archive.writestr("images/other_1.jpg", b"")
    with pytest.raises(InputError, match=r'has no "images/beagle_1.jpg", which "test.txt" lists'):
        picture_data.list_pictures(task, tmp_path)
    with pytest.raises(InputError, match="is no file of MNIST"):
        canvases.Mnist.read(folder / "test.txt", folder / "test.txt")


def test_models_of_texts_and_other_metrics_are_refused(data: Path, model: str) -> None:
    with pytest.raises(InputError, match='about pictures, but "sentiment" is a model of texts'):
        run(suite_of({"model": "sentiment", "options": PETS, "metrics": ["mean_ap"]}), data)
    with pytest.raises(InputError, match=r"the metrics of pictures are positive_auc_target, .*; got auac"):
        run(suite_of({"model": model, "options": PETS, "metrics": ["auac"]}), data)
    assert set(pictures.PictureMaps.metrics) <= set(METRICS)


def test_a_changed_archive_is_noticed(data: Path, model: str) -> None:
    """The kind's examples go through the runner's own check of content."""
    plan = plan_suite(suite_of({"model": model, "options": PETS, "metrics": ["mean_ap"], "sample": 2}), data)
    with pytest.raises(RelpropError, match="not those that were planned"):
        CellWork(plan.locations)({**plan.specs[0], "content": "0" * 16})


@pytest.mark.parametrize("name", [*SUITES, *ON_IMAGENET])
def test_shipped_suites_name_what_is_there(name: str) -> None:
    """Every table has a number of the paper for each of its printed methods, and every metric is measured."""
    suite = read_suite(name)
    printed = [one.printed for one in suite.methods if one.printed != one.label]
    for table in suite.tables:
        tasks = [task for task in suite.tasks if not table.tasks or task.name in table.tasks]
        assert any(table.metric in (task.metrics or suite.metrics) for task in tasks)
        if table.published:
            cells = read_published(table.published)
            for task in tasks:
                at = [
                    (fill_template(table.row, one, task.name), fill_template(table.column, one, task.name))
                    for one in printed
                ]
                has = [one for one, where in zip(printed, at, strict=True) if where in cells]
                no_class = ("rollout", "raw attention") if "target" in (task.name, *table.row.split()) else ()
                assert has == [one for one in printed if one not in no_class]
    for task in suite.tasks:
        assert isinstance(task_kind(task.kind), pictures.PictureMaps)
        assert set(task.metrics or suite.metrics) <= set(pictures.PictureMaps.metrics)


@pytest.mark.parametrize("name", SUITES)
def test_shipped_suites_run(name: str, data: Path) -> None:
    """On the embedded models and two made-up pictures a task."""
    suite = read_suite(name, sample=2)
    found = run(replace(suite, tasks=suite.tasks[-1:]), data)
    assert set(found.scores) == {one.label for one in suite.methods_of(suite.tasks[-1])}


def test_a_method_that_does_not_suit_is_found_with_one_picture(data: Path, model: str) -> None:
    nine = {"method": "transformer_attribution", "options": {"only_block": 9}}
    plan = plan_suite(suite_of({"model": model, "options": PETS, "metrics": ["mean_ap"]}, methods=[nine]), data)
    with pytest.raises(RelpropError, match="only_block"):
        check_tasks(plan, plan.tasks)
