"""The experiments on images measure what they say, on a small real slice; the tables themselves take minutes."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification

import cost
import on_breeds
import on_digits
import pets as pets_training
import relprop
import vision_experiments
from picture_maps import parsed
from relprop import explanation
from relprop.bench.kinds.picture_data import ARCHIVE
from relprop.bootstrap import Floats, Statistic, mean
from relprop.metrics import normalise, pixel_perturbation, segment
from reporting import Number, Table, less, markdown, numbers

DIGITS = Path(relprop.__file__).parent / "models/digits/samples"
SPECS = ["transformer_attribution", "attention_last", "lrp_ah_ln", "grad_cam:weigh_by=row"]


def once(statistic: Statistic, examples: int) -> float:
    """The number itself: every example has weight 1."""
    return float(statistic(np.ones((1, examples)))[0])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty pictures of noise with a bright pet somewhere, and its trimap; every third is a dog."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "oxford-pets").mkdir()
    rng = np.random.default_rng(0)
    rows = []
    with zipfile.ZipFile(folder / "oxford-pets" / ARCHIVE, "w") as archive:
        for number in range(40):
            pixels = rng.integers(0, 120, (32, 32, 3), dtype=np.uint8)
            trimap = np.full((32, 32), 2, np.uint8)
            top, left = rng.integers(2, 14, 2)
            trimap[top - 1 : top + 13, left - 1 : left + 13] = 3
            trimap[top : top + 12, left : left + 12] = 1
            pixels[trimap == 1] += 130
            for kind, array, ending in (("images", pixels, "jpg"), ("trimaps", trimap, "png")):
                file = io.BytesIO()
                Image.fromarray(array).save(file, {"jpg": "JPEG", "png": "PNG"}[ending])
                archive.writestr(f"{kind}/pet_{number}.{ending}", file.getvalue())
            rows.append(f"pet_{number} 1 {1 + (number % 3 == 0)} 1")
    (folder / "oxford-pets" / "test.txt").write_text("\n".join(rows))
    return folder


def test_an_options_value_is_a_literal_or_a_word() -> None:
    assert parsed("lrp") == ("lrp", {})
    assert parsed("transformer_attribution:only_block=-1,ablate=gradient") == (
        "transformer_attribution",
        {"only_block": -1, "ablate": "gradient"},
    )


@pytest.fixture
def student(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pets_training.PetStudent:
    """A checkpoint of a tiny student who takes every pet for the first breed."""
    for name, value in {"SIDE": 24, "PATCH": 8, "WIDTH": 32, "LAYERS": 3, "HEADS": 2}.items():
        monkeypatch.setattr(pets_training, name, value)
    torch.manual_seed(0)
    student = pets_training.PetStudent().eval()
    student.breeds.bias.data[0] += 10
    torch.save({"slow": student.state_dict()}, tmp_path / "student.pt")
    return student


def test_two_heads_of_one_trunk(student: pets_training.PetStudent, data: Path, tmp_path: Path) -> None:
    heads = on_breeds.two_heads(tmp_path / "student.pt")
    pets = on_breeds.draw_both(heads, data, 15, 0)
    assert 0 < len(pets) < 15  # the breed is right of 15, the species of some
    examples = [things[0].example.resized(24, 24) for things in pets[0].open_pictures(pets, {})]
    images = [one.image for one in examples]
    inputs = heads.species.inputs(images)["pixel_values"]
    with torch.no_grad():
        read, _ = student(inputs, torch.arange(9))
        for head, layer in zip(heads, (student.vit.classifier, student.breeds), strict=True):
            torch.testing.assert_close(head.model(inputs).logits, layer(read), rtol=0.01, atol=0.02)
    species = [int(int(one.name.removeprefix("pet_")) % 3 == 0) for one in pets]
    assert heads.species.model(inputs).logits.argmax(1).tolist() == species
    found = on_breeds.by_head(heads, pets, ["attention_last", "transformer_attribution"])
    two, many = (
        [once(own[f"mIoU, {head}"], len(pets)) for own in found.values()] for head in ("2 species", "37 breeds")
    )
    assert two[0] == many[0]  # attention does not know what it is asked
    assert two[1] != many[1]
    less = found["attention_last"]["breeds, less that of `transformer_attribution` in mIoU"]
    assert once(less, len(pets)) == pytest.approx(many[0] - many[1])
    maps = np.stack([one.part.map() for one in heads.species(images, target=species, method="transformer_attribution")])
    true, border = np.stack([one.foreground for one in examples]), np.stack([one.ignore for one in examples])
    assert two[1] == pytest.approx(100 * segment(maps, true, border).summary()["mean_iou"])
    pixels = torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 for image in images])
    prepare = normalise([0.5] * 3, [0.5] * 3)
    hidden = pixel_perturbation(heads.species.model, pixels, torch.from_numpy(maps), species, prepare=prepare)
    positive = once(found["transformer_attribution"]["positive, 2 species"], len(pets))
    assert positive == pytest.approx(100 * hidden.summary()["positive_auc_target"])


def test_other_pictures_with_another_seed(student: pets_training.PetStudent, data: Path, tmp_path: Path) -> None:
    heads = on_breeds.two_heads(tmp_path / "student.pt")
    first, again, other = ([one.name for one in on_breeds.draw_both(heads, data, 15, seed)] for seed in (0, 0, 1))
    assert first == again != other


def test_shares_of_maps_with_known_places() -> None:
    ink = np.zeros((3, 2, 8, 8), bool)
    ink[:, 0, :2, :4], ink[:, 1, 4:, 4:] = True, True
    own = ink.astype(float)
    even, both = np.ones_like(own), own + own[:, ::-1]
    for maps, of_both, of_canvas, alike in (
        (own, 100, 100, -100 * (8 / 56 * 16 / 48) ** 0.5),
        (own[:, ::-1] - 2 * own, 0, 0, None),
        (both, 50, 50, 100),
        (even, 50, 18.75, np.nan),
    ):
        found = [once(one, 3) for one in on_digits.shares(maps, ink).values()]
        expected = (8 + 16) / 2 / 24 * 100 if maps is both else of_canvas
        assert found[1] == pytest.approx(expected)
        assert alike is None or found[2] == pytest.approx(alike, nan_ok=True)
        if maps is not both and maps is not even:
            assert found[0] == pytest.approx(of_both)
    silent = own.copy()
    silent[0, 0] = -1  # has nothing to share: left out
    assert once(on_digits.shares(silent, ink)["own digit / both digits"], 3) == 100
    silent[0] = 0
    assert once(on_digits.shares(silent, ink)["own digit / canvas"], 3) == 100


def test_each_class_lies_on_its_own_digit() -> None:
    """On the model's sample canvases: maps that know the class find its digit, those that do not give half each."""
    records = [one for one in json.loads((DIGITS / "samples.json").read_text()) if len(one["labels"]) == 2]
    images = [Image.open(DIGITS / one["file"]) for one in records]
    ink = np.array([[[[c == "#" for c in row] for row in mask] for mask in one["masks"].values()] for one in records])
    pairs = on_digits.Pairs(images, np.array([one["labels"] for one in records]), ink, len(records))
    found = on_digits.on_own_digit(relprop.Explainer("digits"), pairs, SPECS)
    of_both = {spec: once(own["own digit / both digits"], len(records)) for spec, own in found.items()}
    assert of_both["attention_last"] == pytest.approx(50, abs=1e-3)
    assert min(of_both[spec] for spec in ("transformer_attribution", "lrp_ah_ln", "(ink in each patch)")) > 90
    assert once(found["lrp_ah_ln"]["correlation of the two maps"], len(records)) < 0


def test_canvases_are_those_read_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits of the samples' own ink stand in for MNIST's: whatever is drawn, all classes above 0 are on the canvas."""
    record = json.loads((DIGITS / "samples.json").read_text())
    tiles, classes = [], []
    for one in record:
        pixels = np.asarray(Image.open(DIGITS / one["file"]))
        for label, mask in one["masks"].items():
            there = np.array([[c == "#" for c in row] for row in mask])
            top, left = (np.flatnonzero(there.any(axis))[0] for axis in (1, 0))
            cut = np.pad(np.where(there, pixels, 0), (0, 28))[top : top + 20, left : left + 20]
            tiles.append(np.pad(cut, 4))
            classes.append(int(label))
    for missing in set(range(10)) - set(classes):
        tiles.append(np.pad(np.full((2, 20), 255, np.uint8), ((9, 17), (4, 4))))  # a bar, which is no digit
        classes.append(missing)
    monkeypatch.setattr(on_digits, "read_mnist", lambda *_: (np.array(tiles), np.array(classes)))
    explainer = relprop.Explainer("digits")
    pairs = on_digits.draw(explainer, Path(), 6, 0)
    assert pairs.ink.shape == (6, 2, 56, 56)
    for image, labels in zip(pairs.images, pairs.classes, strict=True):
        logits = explainer.model(**explainer.inputs([image])).logits[0]
        assert (logits > 0).nonzero().flatten().tolist() == labels.tolist()


def test_numbers_are_bootstrapped_and_paired() -> None:
    """The difference of two alike has no width; what is not defined is left out."""
    values = np.random.default_rng(0).normal(3, 2, 400)
    found = numbers({"lrp": {"mean": mean(values), "more": less(mean(values + 1), mean(values))}}, 400, 0)["lrp"]
    error = values.std() / 20
    assert found["mean"].value == pytest.approx(values.mean())
    assert found["mean"].low == pytest.approx(values.mean() - 1.96 * error, abs=0.25 * error)
    assert found["mean"].high == pytest.approx(values.mean() + 1.96 * error, abs=0.25 * error)
    assert [found["more"].low, found["more"].high] == pytest.approx([1, 1])
    holes: Floats = np.array([1.0, np.nan, 3.0])
    nothing = np.full(3, np.nan)
    assert list(numbers({"lrp": {"some": mean(holes), "none": mean(nothing)}}, 3, 0)["lrp"]) == ["some"]


def test_table_in_markdown() -> None:
    rows = {
        "lrp": {"mIoU": Number(41.26, 38.1, 44.3), "mAP": Number(50, 50, 50)},
        "gae": {"mIoU": Number(1, 0, 2)},
    }
    assert markdown(Table("heads", "python x.py", {"seed": 0, "images": 3}, rows)) == (
        "    python x.py\n\nseed 0, images 3.\n\n"
        "| heads | mIoU | mAP |\n|---|---|---|\n"
        "| `lrp` | 41.3 ± 3.1 | 50.00 |\n| `gae` | 1.0 ± 1.0 |  |\n"
    )


def test_the_command_prints_and_saves_its_table(
    student: pets_training.PetStudent, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["heads", "--data", str(data), "--checkpoint", str(tmp_path / "student.pt"), "--limit", "6"]
    methods = ["transformer_attribution", "transformer_attribution:only_block=-1"]
    vision_experiments.main([*given, "--methods", *methods, "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert printed.strip() == (tmp_path / "vision_heads.md").read_text().strip()
    assert "| `transformer_attribution:only_block=-1` |" in printed
    saved = json.loads((tmp_path / "vision_heads.json").read_text())
    assert saved["command"].startswith("python benchmarks/vision_experiments.py heads --data")
    assert list(saved["rows"]) == methods


def test_the_picture_shows_pets_and_both_classes_of_a_canvas(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(data / "oxford-pets" / "pets_224px_6perclass.zip", "w") as archive:
        file = io.BytesIO()
        Image.new("RGB", (60, 40), "green").save(file, "JPEG")
        archive.writestr("images/pet_1.jpg", file.getvalue())
    canvas = Image.open(DIGITS / "3-digits-5-8.png")
    pair = on_digits.Pairs([canvas], np.array([[5, 8]]), np.zeros((1, 2, 56, 56), bool), 1)
    monkeypatch.setattr(on_digits, "draw", lambda *_: pair)
    drawn = []
    keep = explanation.save
    monkeypatch.setattr(explanation, "save", lambda every, path: (drawn.extend(every), keep(every, path)))
    given = ["picture", "--data", str(data), "--out", str(tmp_path / "grid.png")]
    vision_experiments.main([*given, "--pets", "pet_1", "--methods", "rollout", "attn_lrp"])
    assert [one.method for one in drawn] == ["rollout", "attn_lrp"] * 3
    assert [one.target for one in drawn[2:]] == ["5", "5", "8", "8"]
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.format == "PNG"
        assert np.asarray(grid).std() > 10


def test_cost_compares_like_with_like(monkeypatch: pytest.MonkeyPatch) -> None:
    """Input times gradient runs every block as often as the plain pass does. Time is counted in blocks."""
    config = ViTConfig(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, image_size=64)
    model = ViTForImageClassification(config).eval()
    blocks: list[int] = []
    for layer in model.vit.layers:
        layer.register_forward_hook(lambda *_: blocks.append(1))

    def duration(run: Callable[[], None]) -> float:
        before = len(blocks)
        run()
        return len(blocks) - before

    monkeypatch.setattr(cost, "seconds", duration)
    assert vision_experiments.time_ratio(model, "gradient_x_input", 4, 9) == 1


@pytest.mark.slow
def test_a_batch_of_images_costs_no_more_than_a_gradient() -> None:
    """ViT-B, 8 images of 224 pixels: at most 1.0 of plain forward + backward."""
    model = ViTForImageClassification(ViTConfig(attn_implementation="sdpa", num_labels=1000)).eval()
    assert vision_experiments.time_ratio(model, "lrp_ah_ln", 8, 9) <= 1.0
