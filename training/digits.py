"""Train relprop's digits model: a tiny ViT that names the one or two digits on a cluttered canvas.

    python training/digits.py --data ../shared/data             # train, 34 minutes on half a core
    python training/digits.py --data ../shared/data --evaluate  # print the embedded model's figures

A canvas holds one or two MNIST digits of different classes among fragments of other digits, after the cluttered MNIST
of Mnih et al. 2014. Where each digit was drawn is known, so a map for one class has a ground truth. The last 5,000
training images make the dev canvases; MNIST's test images are used once, at the end. A small CNN learns first and
teaches the ViT's patches what they see: alone the ViT took three times the steps to the same accuracy.
"""

import gzip
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from transformers import ViTForImageClassification

from vision import (
    Student,
    Teacher,
    as_input,
    distance,
    evidence,
    load_model,
    new_vit,
    options,
    predict,
    save_model,
    share_on,
    train,
)

SIDE, PATCH, WIDTH, LAYERS, HEADS = 56, 7, 96, 4, 4
TILE, EDGE, APART = 28, 4, 22  # MNIST's tile, how far its empty border may hang over, least distance of two digits
FRAGMENTS, FRAGMENT = 6, 8
BATCH, DEV, CANVASES, MAPS = 64, 5000, 5000, 200
WIDTHS = (16, 32, 64)  # of the CNN
MEAN = 0.0  # so that black is zero to the model
Mnist = tuple[np.ndarray, np.ndarray]


class Canvases(NamedTuple):
    """Bytes (n, 56, 56), whether each class is there (n, 10), and where its ink is (n, 10, 56, 56)."""

    images: np.ndarray
    labels: np.ndarray
    masks: np.ndarray


def read_idx(path: Path) -> np.ndarray:
    """MNIST's format: two zero bytes, type, number of dimensions, the dimensions, the bytes."""
    data = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(data, ">i4", count=data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def read_mnist(folder: Path, part: str) -> Mnist:
    return read_idx(folder / f"{part}-images-idx3-ubyte.gz"), read_idx(folder / f"{part}-labels-idx1-ubyte.gz")


def paste(canvas: np.ndarray, tiles: np.ndarray, corners: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a square tile on each canvas where it is brighter; returns the index of the pixels it covers."""
    reach = np.arange(tiles.shape[-1])
    rows, columns = corners[:, 0, None] + reach, corners[:, 1, None] + reach
    place = np.arange(len(canvas))[:, None, None], rows[:, :, None], columns[:, None, :]
    canvas[place] = np.maximum(canvas[place], tiles)
    return place


def fragments(digits: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    """Small squares cut from the inked middle of random digits."""
    chosen = digits[rng.integers(len(digits), size=number)]
    corners = rng.integers(EDGE, TILE - EDGE - FRAGMENT + 1, size=(number, 2))
    reach = np.arange(FRAGMENT)
    rows, columns = corners[:, 0, None] + reach, corners[:, 1, None] + reach
    cut: np.ndarray = chosen[np.arange(number)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return cut


def places(number: int, rng: np.random.Generator) -> np.ndarray:
    """Corners (n, 2 digits, 2) of two tiles whose ink does not overlap: the first fitting pair of 64."""
    pairs = rng.integers(SIDE + 2 * EDGE - TILE + 1, size=(number, 64, 2, 2))
    fits = (np.abs(pairs[:, :, 0] - pairs[:, :, 1]) >= APART).any(-1)
    chosen: np.ndarray = pairs[np.arange(number), fits.argmax(1)]
    return chosen


def canvases(
    digits: np.ndarray, classes: np.ndarray, number: int, rng: np.random.Generator, *, doubles: float = 0.5
) -> Canvases:
    """Cluttered canvases with one digit, or with two of different classes on a share `doubles` of them."""
    pools = [np.flatnonzero(classes == label) for label in range(10)]
    first = rng.integers(10, size=number)
    second = (first + rng.integers(1, 10, size=number)) % 10
    has_second = rng.random(number) < doubles
    side = SIDE + 2 * EDGE
    canvas = np.zeros((number, side, side), np.uint8)
    masks = np.zeros((number, 10, side, side), bool)
    for _ in range(FRAGMENTS):
        corners = rng.integers(EDGE, side - EDGE - FRAGMENT + 1, size=(number, 2))
        paste(canvas, fragments(digits, number, rng), corners)
    corners = places(number, rng)
    for order, labels in enumerate((first, second)):
        tiles = digits[[pools[label][rng.integers(len(pools[label]))] for label in labels]]
        if order == 1:
            tiles = tiles * has_second[:, None, None]
        canvas_index, rows, columns = paste(canvas, tiles, corners[:, order])
        masks[canvas_index, labels[:, None, None], rows, columns] |= tiles > 0
    inside = slice(EDGE, side - EDGE)
    masks = masks[:, :, inside, inside]
    return Canvases(canvas[:, inside, inside], np.any(masks, (2, 3)), masks)


def new_model() -> ViTForImageClassification:
    names = {number: str(number) for number in range(10)}
    problem = "multi_label_classification"
    return new_vit(names, side=SIDE, patch=PATCH, width=WIDTH, layers=LAYERS, heads=HEADS, problem_type=problem)


def logits_of(model: ViTForImageClassification, images: np.ndarray) -> Tensor:
    return predict(model, as_input(images, MEAN))


def exact(logits: Tensor, labels: np.ndarray) -> Tensor:
    """Whether the classes above zero are exactly those on the canvas."""
    return ((logits > 0) == torch.as_tensor(labels)).all(1)


def average_precision(scores: Tensor, wanted: Tensor) -> float:
    """Mean, over the wanted, of the precision at their rank."""
    ranked = wanted[scores.argsort(descending=True)].double()
    precision = ranked.cumsum(0) / torch.arange(1, len(ranked) + 1)
    return (precision * ranked).sum().item() / ranked.sum().item()


def train_teacher(data: Mnist, dev: Canvases, checkpoint: Path, minutes: float, seed: int) -> Teacher:
    def loss_of(model: Teacher, rng: np.random.Generator) -> Tensor:
        drawn = canvases(*data, BATCH, rng)
        with torch.autocast("cpu", torch.bfloat16):
            logits, _ = model(as_input(drawn.images, MEAN))
        return F.binary_cross_entropy_with_logits(logits.float(), torch.as_tensor(drawn.labels).float())

    def score(model: Teacher) -> str:
        with torch.no_grad():
            logits, _ = model(as_input(dev.images, MEAN))
        return f"dev exact {exact(logits, dev.labels).float().mean():.4f}"

    torch.manual_seed(seed)
    model = Teacher(WIDTHS, 10)
    return train(model, loss_of, checkpoint, minutes=minutes, rate=2e-3, decay=0.05, seed=seed, score=score)


def train_student(
    data: Mnist, dev: Canvases, teacher: Teacher, checkpoint: Path, minutes: float, seed: int
) -> ViTForImageClassification:
    """Cross-entropy to the labels, squared error to the teacher's features; the masks are not used."""
    patches = torch.arange((SIDE // PATCH) ** 2)

    def loss_of(model: Student, rng: np.random.Generator) -> Tensor:
        drawn = canvases(*data, BATCH, rng)
        inputs = as_input(drawn.images, MEAN)
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                _, features = teacher(inputs)
            read, guessed = model(inputs, patches)
            logits = model.vit.classifier(read)
        learned = F.binary_cross_entropy_with_logits(logits.float(), torch.as_tensor(drawn.labels).float())
        return learned + distance(guessed, features, patches, SIDE // PATCH)

    def score(model: Student) -> str:
        return f"dev exact {exact(logits_of(model.vit, dev.images), dev.labels).float().mean():.4f}"

    torch.manual_seed(seed)
    model = Student(new_model(), WIDTHS)
    return train(model, loss_of, checkpoint, minutes=minutes, rate=2e-3, decay=0.05, seed=seed, score=score).vit


def figures(model: ViTForImageClassification, digits: np.ndarray, classes: np.ndarray, number: int) -> str:
    """Exact sets on canvases with one and with two digits; AP and recall of every class on both together."""
    lines, everything = [], []
    for name, doubles in (("one digit", 0.0), ("two digits", 1.0)):
        drawn = canvases(digits, classes, number, np.random.default_rng(7), doubles=doubles)
        logits = logits_of(model, drawn.images)
        everything.append((logits, torch.as_tensor(drawn.labels)))
        lines.append(f"{name}: exact {exact(logits, drawn.labels).float().mean():.4f}")
    logits, labels = (torch.cat(parts) for parts in zip(*everything, strict=True))
    for label in range(10):
        wanted = labels[:, label]
        recall = (logits[wanted, label] > 0).float().mean()
        lines.append(f"class {label}: AP {average_precision(logits[:, label], wanted):.4f} recall {recall:.4f}")
    return "\n".join(lines)


def map_figures(model: ViTForImageClassification, digits: np.ndarray, classes: np.ndarray, number: int) -> str:
    """Of two digits, how much of the evidence for one lies on it, and how much on the other."""
    drawn = canvases(digits, classes, number, np.random.default_rng(9), doubles=1.0)
    masks, rows = torch.as_tensor(drawn.masks), torch.arange(number)
    first, second = torch.as_tensor(drawn.labels).nonzero()[:, 1].reshape(number, 2).T
    shares = []
    for one, other in ((first, second), (second, first)):
        found = evidence(model, as_input(drawn.images, MEAN), one)
        shares.append([share_on(found, masks[rows, label]) for label in (one, other)])
    own, others = np.mean(shares, 0)
    return f"evidence for a digit: {own:.4f} on it, {others:.4f} on the other digit"


def write_samples(model: ViTForImageClassification, digits: np.ndarray, classes: np.ndarray, folder: Path) -> None:
    """Three canvases with one digit and three with two, each classified rightly, with labels and masks."""
    folder.mkdir(parents=True, exist_ok=True)
    records: list[dict[str, object]] = []
    for doubles in (0.0, 1.0):
        drawn = canvases(digits, classes, 20, np.random.default_rng((8, int(doubles))), doubles=doubles)
        right = exact(logits_of(model, drawn.images), drawn.labels).nonzero().flatten()[:3]
        for k in right.tolist():
            labels = np.flatnonzero(drawn.labels[k]).tolist()
            name = f"{len(records)}-digits-{'-'.join(map(str, labels))}.png"
            Image.fromarray(drawn.images[k]).save(folder / name)
            masks = {
                str(label): ["".join(".#"[int(ink)] for ink in row) for row in drawn.masks[k, label]]
                for label in labels
            }
            records.append({"file": name, "labels": labels, "masks": masks})
    (folder / "samples.json").write_text(json.dumps(records, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> None:
    parser = options(__doc__.splitlines()[0], "mnist", "src/relprop/models/digits", 30)
    parser.add_argument("--teacher-minutes", type=float, default=4, help="of training the teacher")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    held_out = read_mnist(args.data / "mnist", "t10k")
    if not args.evaluate:
        digits, classes = read_mnist(args.data / "mnist", "train")
        held_in = digits[:-DEV], classes[:-DEV]
        dev = canvases(digits[-DEV:], classes[-DEV:], 1000, np.random.default_rng(6))
        print("teacher", flush=True)
        teacher = train_teacher(held_in, dev, args.work / "teacher.pt", args.teacher_minutes, args.seed)
        print("student", flush=True)
        model = train_student(held_in, dev, teacher, args.work / "student.pt", args.minutes, args.seed)
        save_model(model, args.out, MEAN)
        write_samples(load_model(args.out), *held_out, args.out / "samples")
    model = load_model(args.out)
    print(figures(model, *held_out, CANVASES))
    print(map_figures(model, *held_out, MAPS))


if __name__ == "__main__":
    main()
