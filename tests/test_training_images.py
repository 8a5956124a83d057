"""Small real slices of the image models' training scripts, and the models that they made."""

import gzip
import io
import itertools
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from transformers import AutoImageProcessor, ViTForImageClassification

import digits
import pets
import vision

MODELS = Path(vision.__file__).parents[1] / "src/relprop/models"


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock takes a second, so that the number of steps is known."""
    ticks = itertools.count()
    monkeypatch.setattr(vision.time, "monotonic", lambda: float(next(ticks)))


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """MNIST's files with 20 images of each class: a bar whose place is the class."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    classes = np.tile(np.arange(10, dtype=np.uint8), 20)
    images = np.zeros((200, 28, 28), np.uint8)
    for image, label in zip(images, classes, strict=True):
        image[4 + 2 * label : 6 + 2 * label, 4:24] = 255
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", images), ("labels-idx1", classes)):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))
    return folder


@pytest.fixture
def oxford(tmp_path: Path) -> Path:
    """The Pets' files with two breeds of reddish cats and two of bluish dogs, 16 pictures each, half of them test."""
    folder = tmp_path / "oxford-pets"
    folder.mkdir()
    lines: dict[str, list[str]] = {"trainval": [], "test": []}
    rng = np.random.default_rng(0)
    with (
        zipfile.ZipFile(folder / "pets_96px_all.zip", "w") as small,
        zipfile.ZipFile(folder / "pets_224px_6perclass.zip", "w") as large,
    ):
        for breed, number in itertools.product(range(4), range(16)):
            colour = np.array([[200, 60, 60], [60, 60, 200]][breed // 2])
            picture = (colour + rng.integers(-40, 40, (96, 96, 3))).astype(np.uint8)
            trimap = np.full((96, 96), 2, np.uint8)
            trimap[30:60, 30:60] = 1
            name = f"breed{breed}_{number}"
            small.writestr(f"images/{name}.jpg", encoded(picture, "JPEG"))
            small.writestr(f"trimaps/{name}.png", encoded(trimap, "PNG"))
            large.writestr(f"images/{name}.jpg", encoded(picture, "JPEG"))
            lines["test" if number % 2 else "trainval"].append(f"{name} {breed + 1} {breed // 2 + 1} 1")
    for part, rows in lines.items():
        (folder / f"{part}.txt").write_text("\n".join(rows) + "\n")
    return folder


def encoded(pixels: np.ndarray, kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def test_canvases_know_where_their_digits_are(mnist: Path) -> None:
    """One or two classes a canvas, each with its own ink, apart; clutter besides; the seed repeats."""
    images, classes = digits.read_mnist(mnist, "train")
    drawn = digits.canvases(images, classes, 50, np.random.default_rng(0))
    assert set(drawn.labels.sum(1)) == {1, 2}
    assert (drawn.masks.any((2, 3)) == drawn.labels).all()
    assert (drawn.masks.sum(1) <= 1).all()
    anywhere = drawn.masks.any(1)
    assert (drawn.images[anywhere] == 255).all()
    clutter = (drawn.images > 0) & ~anywhere
    assert clutter.any((1, 2)).mean() > 0.5
    again = digits.canvases(images, classes, 50, np.random.default_rng(0))
    assert all((a == b).all() for a, b in zip(drawn, again, strict=True))
    for doubles in (0, 1):
        drawn = digits.canvases(images, classes, 20, np.random.default_rng(0), doubles=doubles)
        assert (drawn.labels.sum(1) == 1 + doubles).all()


def test_a_digit_is_drawn_whole(mnist: Path) -> None:
    """The mask of a class has its digit's shape: here a bar of 2 x 20, at most its border over the edge."""
    drawn = digits.canvases(*digits.read_mnist(mnist, "train"), 200, np.random.default_rng(1), doubles=0)
    assert (drawn.masks.sum((1, 2, 3)) == 40).all()


def test_average_precision_of_a_ranking() -> None:
    """Wanted at ranks 1 and 3: the mean of 1/1 and 2/3."""
    scores, wanted = torch.tensor([0.1, 0.9, 0.5, 0.3]), torch.tensor([False, True, False, True])
    assert digits.average_precision(scores, wanted) == pytest.approx((1 + 2 / 3) / 2)


def test_digits_script_trains_saves_and_evaluates(
    mnist: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ticking: None
) -> None:
    for name, value in {"WIDTH": 16, "LAYERS": 3, "BATCH": 8, "DEV": 100, "CANVASES": 20, "MAPS": 5}.items():
        monkeypatch.setattr(digits, name, value)
    out = mnist.parent / "out"
    options = ["--data", str(mnist.parent), "--out", str(out), "--work", str(out / "work")]
    digits.main([*options, "--minutes", "0.1", "--teacher-minutes", "0.05"])
    printed = capsys.readouterr().out
    assert "step 6: loss" in printed
    digits.main([*options, "--evaluate"])
    assert capsys.readouterr().out in printed
    check_loads(out, np.zeros((40, 40), np.uint8), vision.as_input(np.zeros((1, 56, 56), np.uint8), digits.MEAN))


def test_pets_script_teaches_and_distils(
    oxford: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ticking: None
) -> None:
    """Red cats and blue dogs are told apart, and the model that is saved is the one that was trained."""
    sizes = {"WIDTH": 32, "HEADS": 2, "LAYERS": 3, "BATCH": 8, "DEV": 2}
    for name, value in {**sizes, "SAMPLES": ("breed0_1", "breed3_3")}.items():
        monkeypatch.setattr(pets, name, value)
    out = oxford.parent / "out"
    options = ["--data", str(oxford.parent), "--out", str(out), "--work", str(out / "work")]
    pets.main([*options, "--minutes", "0.8", "--teacher-minutes", "0.3"])
    printed = capsys.readouterr().out
    assert "\ntest: 1.0000 (cats 1.0000, dogs 1.0000, mean 1.0000)" in printed
    pets.main([*options, "--minutes", "0.8", "--teacher-minutes", "0.3"])  # all is done: only evaluates
    assert "going on at step 48" in capsys.readouterr().out
    samples = json.loads((out / "samples/samples.json").read_text())
    assert samples == [{"file": "breed0_1.jpg", "label": "cat"}, {"file": "breed3_3.jpg", "label": "dog"}]
    check_loads(out, np.full((96, 96, 3), 90, np.uint8), vision.as_input(np.full((1, 96, 96, 3), 90, np.uint8)))


def check_loads(folder: Path, picture: np.ndarray, expected: Tensor) -> None:
    """A user's processor turns a picture into what the model was trained on, and the model computes in float32."""
    processor = AutoImageProcessor.from_pretrained(folder)
    pixels = processor(Image.fromarray(picture), return_tensors="pt")["pixel_values"]
    assert torch.allclose(pixels, expected, atol=1e-6)
    model = ViTForImageClassification.from_pretrained(folder)
    assert model.dtype == torch.float32
    assert model(pixels).logits.isfinite().all()


def test_species_add_up_the_breeds() -> None:
    is_dog = torch.tensor([False, True, True])
    logits = torch.randn(4, 3)
    both = pets.species_of(logits, is_dog).softmax(1)
    assert torch.allclose(both, pets.to_two(logits.softmax(1), is_dog), atol=1e-6)


def test_mixed_targets_are_the_pictures_shares() -> None:
    """Of pictures of one value each, the mean of a mixed picture tells the shares, and so must its target."""
    images, targets = torch.arange(4.0)[:, None, None, None].expand(4, 3, 96, 96), torch.eye(4)
    for seed in range(20):
        mixed, wanted = pets.mix(images, targets, np.random.default_rng(seed))
        assert torch.allclose(mixed.mean((1, 2, 3)), wanted @ torch.arange(4.0), atol=1e-4)
        assert torch.allclose(wanted.sum(1), torch.ones(4))


def test_student_sees_what_the_saved_model_sees() -> None:
    """With all patches the student reads what the ViT's classifier reads; patches left out have no say."""
    torch.manual_seed(0)
    student = pets.PetStudent().eval()
    x = torch.rand(2, 3, 96, 96)
    with torch.no_grad():
        whole, guessed = student(x, torch.arange(64))
        assert torch.allclose(student.vit.classifier(whole), student.vit(x).logits, atol=1e-5)
        assert [guess.shape for guess in guessed] == [(2, 64, size) for size in pets.WIDTHS[-2:]]
        kept = torch.arange(32)  # the upper half
        other = torch.cat([x[:, :, :48], torch.rand(2, 3, 48, 96)], 2)
        assert torch.equal(student(x, kept)[0], student(other, kept)[0])
        assert not torch.allclose(student(x, kept)[0], whole)


def test_guidance_compares_the_same_places() -> None:
    """A guess that is the teacher's features, patch for patch, has no distance; one of other patches has."""
    features = [torch.randn(2, 8, 4, 4)]
    patches = torch.tensor([5, 2])
    placed = torch.nn.functional.layer_norm(features[0].flatten(2).transpose(1, 2), (8,))
    assert vision.distance([placed[:, patches]], features, patches, 4) == pytest.approx(0.0, abs=1e-6)
    assert vision.distance([placed[:, [2, 5]]], features, patches, 4) > 0.5


class StoppedError(Exception):
    pass


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, ticking: None) -> None:
    def run(folder: str, stop: int | None = None) -> nn.Linear:
        torch.manual_seed(0)
        calls = itertools.count()

        def loss_of(model: nn.Linear, rng: np.random.Generator) -> Tensor:
            if next(calls) == stop:
                raise StoppedError
            noise = torch.rand(3)
            return ((model(torch.from_numpy(rng.random(2)).float()) - noise) ** 2).sum()

        where = tmp_path / folder / "checkpoint.pt"
        return vision.train(nn.Linear(2, 3), loss_of, where, minutes=0.5, rate=0.1, decay=0.1, seed=3, every=10)

    with pytest.raises(StoppedError):
        run("stopped", stop=17)
    assert torch.load(tmp_path / "stopped/checkpoint.pt", weights_only=True)["step"] == 10
    assert torch.equal(run("stopped").weight, run("whole").weight)


def test_evidence_of_a_linear_model() -> None:
    """Value times weight of the wanted class, where positive; its share on marked places."""

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2, bias=False)
            self.head.weight.data = torch.tensor([[1.0, -2.0, 3.0, 0.0], [0.0, 1.0, 1.0, 1.0]])

        def forward(self, x: Tensor) -> Any:
            return SimpleNamespace(logits=self.head(x.flatten(1)))

    pictures = torch.tensor([[1.0, 1.0], [1.0, 2.0]]).expand(2, 1, 2, 2)
    found = vision.evidence(Linear(), pictures, torch.tensor([0, 1]))
    assert torch.equal(found, torch.tensor([[[1.0, 0.0], [3.0, 0.0]], [[0.0, 1.0], [1.0, 2.0]]]))
    marked = torch.tensor([[True, True], [False, False]]).expand(2, 2, 2)
    assert vision.share_on(found, marked) == pytest.approx((1 / 4 + 1 / 4) / 2)


def test_rate_warms_up_and_ends_at_zero() -> None:
    assert vision.schedule(0.0) == 0.0
    assert vision.schedule(1.0) == pytest.approx(0.0)
    assert vision.schedule(vision.WARM_UP / 2) < vision.schedule(vision.WARM_UP) > vision.schedule(0.5)


@pytest.mark.parametrize(("name", "megabytes"), [("digits", 1), ("pets", 6)])
def test_shipped_model_is_small_and_right_about_its_samples(name: str, megabytes: float) -> None:
    folder = MODELS / name
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) <= megabytes * 2**20
    processor = AutoImageProcessor.from_pretrained(folder)
    model: Any = ViTForImageClassification.from_pretrained(folder).eval()
    names = model.config.id2label
    samples = json.loads((folder / "samples/samples.json").read_text())
    assert 4 <= len(samples) <= 7
    for sample in samples:
        pixels = processor(Image.open(folder / "samples" / sample["file"]), return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            logits = model(pixels).logits[0]
        if name == "digits":
            assert [int(names[k]) for k in (logits > 0).nonzero().flatten().tolist()] == sample["labels"]
        else:
            assert names[int(logits.argmax())] in sample.get("labels", [sample.get("label")])


def test_shipped_masks_are_where_the_ink_is() -> None:
    folder = MODELS / "digits/samples"
    for sample in json.loads((folder / "samples.json").read_text()):
        pixels = np.asarray(Image.open(folder / sample["file"]))
        assert sorted(sample["masks"]) == [str(label) for label in sample["labels"]]
        for rows in sample["masks"].values():
            mask = np.array([[ink == "#" for ink in row] for row in rows])
            assert mask.shape == pixels.shape
            assert mask.any()
            assert (pixels[mask] > 0).all()
