"""Pictures of ImageNet's classes: their boxes as masks, two side by side, pets of its breeds, and what is refused."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

from relprop.bench.kinds import boxed_pictures, pictures
from relprop.bench.kinds.picture_data import list_pictures
from relprop.bench.suites import SuiteTask
from relprop.errors import InputError, RelpropError
from test_bench_kinds import suite, worked

NAMES = {number: str(number) for number in range(1000)}
BOXES = ("2 4 10 12", "0 0 3 3;8 8 16 16", "", "1 1 5 9", "3 2 9 6", "4 4 12 12")


def jpeg(seed: int, side: int = 16) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six pictures of which one has no box, four pets of which two are of a breed of ImageNet, and a tiny ViT."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "imagenet-val").mkdir()
    (folder / "oxford-pets").mkdir()
    lines = [f"file,label,wnid,{boxed_pictures.BOXES}"]
    with zipfile.ZipFile(folder / "imagenet-val" / "part.zip", "w") as archive:
        for number, boxes in enumerate(BOXES):
            archive.writestr(f"{number}.jpg", jpeg(number))
            lines.append(f"{number}.jpg,{100 + number // 2},n0,{boxes}")
    (folder / "imagenet-val" / "part.csv").write_text("\n".join(lines) + "\n")
    table = 'pet_breed,imagenet_index,wnid,imagenet_names\nPersian,283,n0,"Persian cat"\n'
    (folder / "imagenet-val" / boxed_pictures.PET_CLASSES).write_text(table)
    with zipfile.ZipFile(folder / "oxford-pets" / boxed_pictures.PETS_224, "w") as archive:
        for number, name in enumerate(("Persian_1", "Persian_22", "beagle_3", "Sphynx_4")):
            trimap = np.full((16, 16), 2, np.uint8)
            trimap[4:12, 4:12], trimap[4, 4:12] = 1, 3
            file = io.BytesIO()
            Image.fromarray(trimap).save(file, "PNG")
            archive.writestr(f"images/{name}.jpg", jpeg(10 + number))
            archive.writestr(f"trimaps/{name}.png", file.getvalue())
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = ViTConfig(image_size=16, patch_size=4, num_labels=1000, **sizes)
    ViTForImageClassification(config).save_pretrained(folder / "vit")
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder / "vit")
    return folder


def listed(data: Path, split: str = "test", **options: str) -> Any:
    return list_pictures(SuiteTask("made up", "vit", kind="pictures", split=split, options=options), data)


def test_boxes_are_masks(data: Path) -> None:
    every = listed(data, boxes="imagenet-val")
    assert [one.name for one in every] == ["0.jpg", "1.jpg", "3.jpg", "4.jpg", "5.jpg"]  # the third has no box
    first, second = (objects[0] for objects in every[0].open_pictures(every[:2], NAMES))
    assert (first.label, second.label) == (100, 100)
    assert first.example.foreground.sum() == 64
    assert first.example.foreground[4:12, 2:10].all()
    assert second.example.foreground.sum() == 9 + 64
    assert every[0].open_pictures(every[:1], {0: "cat", 1: "dog"})[0][0].label is None  # of another model


def test_the_parts_share_no_picture(data: Path) -> None:
    dev, confirm = ({one.name for one in listed(data, split, boxes="imagenet-val")} for split in ("dev", "confirm"))
    assert dev == {"0.jpg", "4.jpg"}
    assert confirm == {"1.jpg", "3.jpg", "5.jpg"}


def test_pairs_are_two_classes_side_by_side(data: Path) -> None:
    """Neighbours of one class are left out."""
    every = listed(data, pairs="imagenet-val")
    assert [one.name for one in every] == ["1.jpg 2.jpg", "3.jpg 4.jpg"]
    left, right = every[0].open_pictures(every[:1], NAMES)[0]
    assert (left.label, right.label) == (100, 101)
    assert left.example.image.size == (32, 16)
    halves = np.asarray(left.example.image)
    alone = [np.asarray(Image.open(io.BytesIO(jpeg(number)))) for number in (1, 2)]
    assert np.array_equal(halves, np.concatenate(alone, 1))
    assert left.example.foreground[:, :16].all()
    assert np.array_equal(left.example.foreground, ~right.example.foreground)


def test_pets_of_breeds_that_imagenet_has(data: Path) -> None:
    every = listed(data, imagenet_pets="oxford-pets", classes="imagenet-val")
    assert [one.name for one in every] == ["Persian_1", "Persian_22"]
    (found,) = every[0].open_pictures(every[1:], NAMES)[0]
    assert found.label == 283
    assert found.example.foreground.sum() == 56
    assert found.example.ignore.sum() == 8


def test_relevance_mass_is_the_share_on_the_object(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the maps themselves, negative relevance left out."""
    maps = []
    real = pictures._add_mass

    def keeping(job: Any, whole: Any, label: str, own: Any, loaded: Any, metric: str) -> None:
        maps.append((own, loaded))
        real(job, whole, label, own, loaded, metric)

    monkeypatch.setattr(pictures, "_add_mass", keeping)
    for option, explained in (({"boxes": "imagenet-val"}, "predicted"), ({"pairs": "imagenet-val"}, "label")):
        tables = {"metrics": ["relevance_mass", "pointing_game"], "methods": ["lrp_conservative"]}
        task = {"model": "vit", "kind": "pictures", "options": option, "explain": explained}
        maps.clear()
        found = worked(suite(tables, **task), data)
        own, loaded = maps[-1]
        expected = []
        for each, objects in zip(own, loaded.objects, strict=True):
            shares = [one[mask & (one > 0)].sum() / one[one > 0].sum() for one, mask in zip(each, objects, strict=True)]
            expected.append(np.mean(shares))
        assert found.scores["lrp_conservative"]["relevance_mass"][-len(expected) :] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "split", "message"),
    [
        ({"boxes": "elsewhere"}, "test", "should hold one .csv with a .zip of the same name, and holds 0"),
        ({"boxes": "imagenet-val"}, "train", 'split "train" is unknown'),
        ({"imagenet_pets": "oxford-pets"}, "test", 'needs "classes" beside it'),
    ],
)
def test_mistakes(options: dict[str, str], split: str, message: str, data: Path) -> None:
    with pytest.raises(RelpropError, match=message):
        listed(data, split, **options)


def test_a_table_without_boxes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    zipfile.ZipFile(tmp_path / "own" / "a.zip", "w").close()
    for text, message in (
        ("file,label\nx.jpg,1\n", "KeyError"),
        (f"file,label,{boxed_pictures.BOXES}\nx,1,1 2\n", "four"),
    ):
        (tmp_path / "own" / "a.csv").write_text(text)
        with pytest.raises(InputError, match=f"is not a table with boxes: .*{message}"):
            listed(tmp_path, boxes="own")
