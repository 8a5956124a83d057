"""Tables 1 to 3 of [Chefer21] on pictures of pets: do maps lie on the animal, and does the model need what they mark?

Pictures are drawn from the test set, those whose species the model predicts rightly; maps explain that species.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

import relprop
from pets import ARCHIVE, SPECIES, read_list
from picture_maps import bar, chunks, explained, logits
from relprop.metrics import Example, Perturbation, Segmentation, merged, normalise, pixel_perturbations, segment
from reporting import Floats, Statistic, mean_of, read_csv

OURS = "transformer_attribution"
AS_PRINTED = {  # and as the paper made them for ViT
    "rollout": "rollout",
    "attention_last": "raw attention",
    "grad_cam:weigh_by=row": "GradCAM",
    "lrp:at=input": "LRP",
    "partial_lrp": "partial LRP",
    OURS: "transformer attribution",
}
ABLATIONS = {
    f"{OURS}:ablate=gradient": "without gradients",
    f"{OURS}:only_block=-1": "block nearest the output only",
    f"{OURS}:only_block=1": "block nearest the input only",  # the second, as in the authors' code
    OURS: "full",
}
IOU, POSITIVE, NEGATIVE = "mIoU", "positive", "negative"


class Pet(NamedTuple):
    """A picture at the model's size, with its masks, and its classes."""

    example: Example
    breed: int
    species: int


def label(explainer: relprop.Explainer, pet: Pet) -> int:
    """The true class, of a model of species or of one of breeds."""
    return pet.species if len(explainer.labels) == len(SPECIES) else pet.breed


class Drawn(NamedTuple):
    pets: list[Pet]
    looked_at: int  # until so many were predicted rightly


def read_pets(data: Path, rows: Sequence[Sequence[str]], size: int) -> list[Pet]:
    """Of rows of the list. The trimap is 1 on the pet, 2 around it, 3 on the border, which does not count."""
    found = []
    with zipfile.ZipFile(data / ARCHIVE) as archive:
        for name, breed, species, _ in rows:
            image = Image.open(io.BytesIO(archive.read(f"images/{name}.jpg"))).convert("RGB")
            trimap = np.asarray(Image.open(io.BytesIO(archive.read(f"trimaps/{name}.png"))))
            example = Example(image, trimap == 1, trimap == 3, name).resized(size, size)
            found.append(Pet(example, int(breed) - 1, int(species) - 1))
    return found


def draw(explainer: relprop.Explainer, data: Path, limit: int, seed: int) -> Drawn:
    """Test pictures in random order, those predicted rightly, until there are enough."""
    rows = read_list(data, "test")
    shuffled = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    right: list[Pet] = []
    looked_at = 0
    for part in chunks(shuffled):
        pets = read_pets(data, part, explainer.model.config.image_size)
        guesses = logits(explainer, [pet.example.image for pet in pets]).argmax(1).tolist()
        for pet, guess in zip(pets, guesses, strict=True):
            looked_at += 1
            right += [pet] if label(explainer, pet) == guess else []
            if len(right) == limit:
                return Drawn(right, looked_at)
    return Drawn(right, looked_at)


def maps_of(explainer: relprop.Explainer, pets: Sequence[Pet], spec: str) -> NDArray[np.float64]:
    return explained(explainer, [pet.example.image for pet in pets], [label(explainer, pet) for pet in pets], spec)


def segmentation(
    explainer: relprop.Explainer, pets: Sequence[Pet], specs: Sequence[str], *, positive: bool = False
) -> dict[str, dict[str, Statistic]]:
    """Table 2 of the paper, by method. `positive` cuts the positive part of each map, not the map as it is."""
    tallies: dict[str, list[Segmentation]] = {spec: [] for spec in specs}
    for part in bar(chunks(pets), "segmentation"):
        true = np.stack([pet.example.foreground for pet in part])
        border = np.stack([pet.example.ignore for pet in part])
        for spec in specs:
            maps = maps_of(explainer, part, spec)
            tallies[spec].append(segment(maps.clip(0) if positive else maps, true, border))
    sizes = np.array([(pet.example.foreground & ~pet.example.ignore).sum() for pet in pets])
    species = np.array([pet.species for pet in pets])
    return {spec: _segmented(merged(parts), sizes, species) for spec, parts in tallies.items()}


def _segmented(tally: Segmentation, sizes: NDArray[np.int64], species: NDArray[np.int64]) -> dict[str, Statistic]:
    """In percent. `precision` is the share of what is cut out that is pet, `recall` the share of the pets cut out."""
    hit, cut = tally.intersection[:, 1], tally.union[:, 1] + tally.intersection[:, 1] - sizes

    def iou(w: Floats) -> Floats:
        inter, union = w @ tally.intersection, w @ tally.union
        each: Floats = np.divide(inter, union, out=np.full(inter.shape, np.nan), where=union > 0)
        mean: Floats = 100 * each.mean(1)
        return mean

    return {
        IOU: iou,
        "pixel accuracy": lambda w: 100 * (w @ tally.correct) / (w @ tally.labelled),
        "mAP": mean_of(100 * tally.average_precision),
        "precision": lambda w: 100 * (w @ hit) / np.maximum(w @ cut, 1),
        "recall": lambda w: 100 * (w @ hit) / (w @ sizes),
        **{f"{IOU}, {name}s": _only(iou, species == k) for k, name in SPECIES.items()},
    }


def _only(statistic: Statistic, these: NDArray[np.bool_]) -> Statistic:
    """Of these pictures alone."""
    return lambda weights: statistic(weights * these)


def perturbation(
    explainer: relprop.Explainer, pets: Sequence[Pet], specs: Sequence[str]
) -> dict[str, dict[str, Statistic]]:
    """Table 1 of the paper, by method. The class explained is both predicted and true, so its two rows are one."""
    found: dict[str, list[Perturbation]] = {spec: [] for spec in specs}
    prepare = normalise(explainer.tokenizer.image_mean, explainer.tokenizer.image_std)
    for part in bar(chunks(pets), "perturbation"):
        maps = [torch.from_numpy(maps_of(explainer, part, spec)) for spec in specs]
        labels = [label(explainer, pet) for pet in part]
        results = pixel_perturbations(explainer.model, _pixels(part), maps, labels, prepare=prepare)
        for spec, result in zip(specs, results, strict=True):
            found[spec].append(result)
    species = np.array([pet.species for pet in pets])
    return {spec: _perturbed(merged(parts), species) for spec, parts in found.items()}


def _pixels(pets: Sequence[Pet]) -> Tensor:
    """[pictures, 3, height, width], from 0 to 1."""
    return torch.from_numpy(np.stack([np.asarray(pet.example.image) for pet in pets])).permute(0, 3, 1, 2) / 255


def _perturbed(result: Perturbation, species: NDArray[np.int64]) -> dict[str, Statistic]:
    """Areas times 100; the positive one also of each species, as the model has its own idea of a black picture."""
    positive, negative = 100 * result.auc("positive", "target"), 100 * result.auc("negative", "target")
    each = {f"{POSITIVE}, {name}s": _only(mean_of(positive), species == k) for k, name in SPECIES.items()}
    return {POSITIVE: mean_of(positive), NEGATIVE: mean_of(negative), **each}


def black(explainer: relprop.Explainer) -> str:
    """What a picture is to the model once all of it is hidden."""
    size = explainer.model.config.image_size
    (found,) = logits(explainer, [Image.new("RGB", (size, size))]).softmax(1)
    return f"{SPECIES[int(found.argmax())]} ({found.max():.2f})"


def published(folder: Path) -> dict[str, dict[str, float]]:
    """Tables 1 and 2 by method and column."""
    lines = {row["metric"]: row for row in read_csv(folder / "chefer21_table2_segmentation.csv")}
    for row in read_csv(folder / "chefer21_table1_perturbation.csv"):
        if row["class"] == "predicted":
            lines[row["perturbation"]] = row
    return {spec: {column: float(row[name]) for column, row in lines.items()} for spec, name in AS_PRINTED.items()}


def published_ablation(folder: Path) -> dict[str, dict[str, float]]:
    """Table 3 by variant and column."""
    rows = {row.pop("variant"): row for row in read_csv(folder / "chefer21_table3_ablation.csv")}
    return {spec: {column: float(value) for column, value in rows[name].items()} for spec, name in ABLATIONS.items()}
