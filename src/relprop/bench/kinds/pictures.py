"""Do maps of pictures lie on what the model names, and does the model need what they mark? [Chefer21], tables 1 to 3.

Pictures are brought to the size that the model reads, whole, and the maps to the same. All count, also those that the
model gets wrong. With `explain = "predicted"` the likeliest class is explained, with "label" the true one; two things
on a picture are explained each for its own. Figures 2 and 3 are the maps of the first pictures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from relprop.attribution import attribute
from relprop.bench.kinds import exhibits
from relprop.bench.kinds.kind import Job
from relprop.bench.kinds.picture_data import Listed, listed
from relprop.bench.measured import Measured
from relprop.bench.suites import Method, Suite, Task
from relprop.domains.image import Frame, pixels
from relprop.errors import InputError
from relprop.image_explanation import ImageExplanation
from relprop.images import Images, Pixels
from relprop.metrics import class_sensitivity, pixel_perturbations, pointing_game, segment
from relprop.metrics.pixel_perturbation import Against, Order
from relprop.metrics.score_arrays import Bools, Floats, Ints
from relprop.registry import METHODS

PERTURBATION: dict[str, tuple[Order, Against]] = {
    "positive_auc_target": ("positive", "target"),
    "negative_auc_target": ("negative", "target"),
    "positive_auc_predicted": ("positive", "predicted"),
    "negative_auc_predicted": ("negative", "predicted"),
}
SEGMENTATION = ("mean_iou", "pixel_accuracy", "mean_ap")
CLASSES = ("class_pearson", "class_spearman")
POINTING = "pointing_game"
KNOWN = (*PERTURBATION, *SEGMENTATION, *CLASSES, POINTING)


@dataclass(frozen=True, eq=False)
class Seen:
    """Some pictures as the model reads them, with their things."""

    rows: list[Pixels]
    pixels: Tensor  # [pictures, 3, height, width], from 0 to 1
    prepare: Callable[[Tensor], Tensor]  # makes the model's input of them
    objects: Bools  # [pictures, things, height, width]
    ignore: Bools  # [pictures, height, width]
    labels: Ints | None  # [pictures, things], the true classes


def examples(suite: Suite, task: Task, folder: Path | None) -> Sequence[Listed]:
    return listed(task, folder)


def check(job: Job) -> None:
    """One picture through everything."""
    images = images_of(job)
    unknown = [metric for metric in job.metrics if metric not in KNOWN]
    if unknown:
        raise InputError(f"of pictures the metrics are {', '.join(KNOWN)}; got {', '.join(unknown)}")
    seen = opened(images, job.examples, job.explainer.labels)
    targets = [metric for metric in job.metrics if metric.endswith("_target")]
    if seen.labels is None and (targets or job.task.explain == "label"):
        wanted = f'the metric "{targets[0]}"' if targets else 'explain = "label"'
        raise InputError(
            f'{wanted} needs true classes, and the data has none for "{job.task.model}", which knows '
            f'{len(job.explainer.labels)} classes; ask for predicted ones: explain = "predicted", "..._auc_predicted"'
        )
    if seen.objects.shape[1] > 1:
        if job.task.explain != "label":
            raise InputError('there are two things on each picture, explained for their own classes: explain = "label"')
        if hiding := [metric for metric in job.metrics if metric in PERTURBATION]:
            raise InputError(f'"{hiding[0]}" is for pictures of one class; these have two things on each')
    measure(job)


def measure(job: Job) -> Measured:
    images = images_of(job)
    seen = opened(images, job.examples, job.explainer.labels)
    classes = explained_classes(job, images, seen)
    whole = Measured(list(job.places))
    maps = {}
    for method in job.methods:
        found = [explained(images, seen.rows, list(own), method, job.task.batch_size, whole) for own in classes.T]
        maps[method.label] = np.stack([[one.map() for one in column] for column in found], 1)
        for k, place in enumerate(job.places[: job.shown]):
            whole.exhibits.append(exhibits.images([column[k] for column in found], place, method.label))
    for label, own in maps.items():
        _add_segmentation(job, whole, label, own, seen)
        _add_pointing(job, whole, label, own, seen)
        _add_classes(job, whole, label, own)
    _add_perturbation(job, whole, maps, images, seen)
    return whole


def images_of(job: Job) -> Images:
    domain = job.explainer.domain
    if not isinstance(domain, Images):
        raise InputError(f'task "{job.task.name}" is about pictures, but "{job.task.model}" is a model of texts')
    return domain


def opened(images: Images, wanted: Sequence[Listed], names: dict[int, str]) -> Seen:
    """Pictures at the size that the processor makes of a square one: it may crop, and here all of them is read."""
    square = 512, 512
    black, white = (pixels(images.processor, Image.new("RGB", square, colour)) for colour in ("black", "white"))
    channels, height, width = black.shape
    if channels != 3:
        raise InputError(f"pictures of three colours are needed, the model reads {channels}")

    def prepare(values: Tensor) -> Tensor:
        return (black + (white - black) * values).to(next(images.model.parameters()))

    every = [
        [thing._replace(example=thing.example.resized(height, width)) for thing in things]
        for things in wanted[0].source.opened(wanted, names)
    ]
    first = [things[0].example for things in every]
    values = torch.from_numpy(np.stack([np.asarray(one.image) for one in first])).permute(0, 3, 1, 2) / 255
    frame = Frame(0, 0, width, height)
    rows = [Pixels(one.image, own, frame, one.name) for one, own in zip(first, prepare(values), strict=True)]
    labels = [[thing.label for thing in things] for things in every]
    return Seen(
        rows,
        values,
        prepare,
        objects=np.stack([[thing.example.foreground for thing in things] for things in every]),
        ignore=np.stack([one.ignore for one in first]),
        labels=None if any(None in own for own in labels) else np.array(labels, np.int64),
    )


def explained_classes(job: Job, images: Images, seen: Seen) -> Ints:
    """[pictures, columns]: one for each thing; to compare the maps of two classes where there is one, also the next."""
    size = job.task.batch_size
    with torch.no_grad():
        parts = [images.model(**images.inputs(seen.rows[k : k + size])).logits for k in range(0, len(seen.rows), size)]
    logits = torch.cat(parts).float().cpu().numpy()
    own: Ints = logits.argmax(1)[:, None] if job.task.explain == "predicted" or seen.labels is None else seen.labels
    if own.shape[1] == 1 and any(metric in CLASSES for metric in job.metrics):
        np.put_along_axis(logits, own, -np.inf, 1)
        return np.concatenate([own, logits.argmax(1)[:, None]], 1)
    return own


def explained(
    images: Images, rows: list[Pixels], targets: list[Any], method: Method, batch_size: int, whole: Measured
) -> list[ImageExplanation]:
    """A method's scores on each picture, and how long it took."""
    done = []
    for k in range(0, len(rows), batch_size):
        part = rows[k : k + batch_size]
        inputs = images.inputs(part)
        settled = images.options(METHODS[method.method].options, dict(method.options), part, inputs)
        start = time.perf_counter()
        found = attribute(
            images.model, inputs, [int(one) for one in targets[k : k + batch_size]], method.method, **settled
        )
        whole.took(method.label, time.perf_counter() - start)
        done += [images.explanation(None, row, found, number) for number, row in enumerate(part)]
    return done


def _add_segmentation(job: Job, whole: Measured, label: str, maps: Floats, seen: Seen) -> None:
    """Pixels are counted over all things of all pictures, so they are kept as counts."""
    if not any(metric in SEGMENTATION for metric in job.metrics):
        return
    tallies = [segment(maps[:, k], seen.objects[:, k], seen.ignore) for k in range(seen.objects.shape[1])]
    counts: dict[str, list[Ints]] = {}
    if "mean_iou" in job.metrics:
        for k in (0, 1):
            counts[f"intersection_{k}"] = [one.intersection[:, k] for one in tallies]
            counts[f"union_{k}"] = [one.union[:, k] for one in tallies]
    if "pixel_accuracy" in job.metrics:
        counts["correct"] = [one.correct for one in tallies]
        counts["labelled"] = [one.labelled for one in tallies]
    for name, each in counts.items():
        whole.add(label, name, np.sum(each, 0).tolist())
    if "mean_ap" in job.metrics:
        whole.add(label, "mean_ap", np.mean([one.average_precision for one in tallies], 0).tolist())


def _add_pointing(job: Job, whole: Measured, label: str, maps: Floats, seen: Seen) -> None:
    """The share of a picture's things that are hit; none is where one of them has no pixel that counts."""
    if POINTING not in job.metrics:
        return
    there: Bools = np.all((seen.objects & ~seen.ignore[:, None]).any((2, 3)), 1)
    hits = np.full(len(maps), np.nan)
    if there.any():
        things = range(seen.objects.shape[1])
        each = [pointing_game(maps[there, k], seen.objects[there, k], seen.ignore[there]).hits for k in things]
        hits[there] = np.mean(each, 0)
    whole.add(label, POINTING, hits.tolist())


def _add_classes(job: Job, whole: Measured, label: str, maps: Floats) -> None:
    asked = [metric for metric in job.metrics if metric in CLASSES]
    if asked:
        alike = class_sensitivity(maps[:, 0], maps[:, 1])
        for metric in asked:
            whole.add(label, metric, getattr(alike, metric.removeprefix("class_")).tolist())


def _add_perturbation(job: Job, whole: Measured, maps: dict[str, Floats], images: Images, seen: Seen) -> None:
    """All methods share their perturbed pictures. A curve is whether the class stands, by the share that is hidden."""
    asked = [metric for metric in job.metrics if metric in PERTURBATION]
    if not asked:
        return
    labels = None if seen.labels is None else seen.labels[:, 0]
    scores = [torch.from_numpy(own[:, 0]) for own in maps.values()]
    size = job.task.batch_size
    results = pixel_perturbations(images.model, seen.pixels, scores, labels, prepare=seen.prepare, batch_size=size)
    for label, result in zip(maps, results, strict=True):
        for metric in asked:
            whole.add(label, metric, result.auc(*PERTURBATION[metric]).tolist())
            whole.add_curve(label, metric, result.fractions, result.hits(*PERTURBATION[metric]).tolist())
