"""Do maps of pictures lie on what the model names, and does the model need what they mark? [Chefer21] Tables 1 to 3.

Pictures are resized whole to the size that the model reads, and so are the maps. All pictures count, also those that
the model gets wrong, unless the task sets `right_only`. With `explain = "predicted"` the predicted class is explained,
with "label" the true one; of two objects on a picture each is explained for its own class. A task of predicted classes
may also ask for numbers of the true class's map (`label_...`), which share passes with the others. Figures 2 and 3 are
the maps of the first pictures. The `marked_...` metrics count patches of the model: those that hold a pixel of the
object are marked, and scores of pixels are summed over each patch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from relprop.attribution import attribute
from relprop.bench.catalog import Catalog
from relprop.bench.kinds.exhibits import image_exhibit
from relprop.bench.kinds.listed_pictures import Listed
from relprop.bench.kinds.picture_data import list_pictures
from relprop.bench.kinds.task_kind import CellJob, TaskKind
from relprop.bench.kinds.triggered_pictures import list_triggered
from relprop.bench.measurements import MARKED, Measurements
from relprop.bench.suites import Method, SuiteTask
from relprop.errors import InputError
from relprop.explanation import Explanation
from relprop.metrics import class_sensitivity, marked_words, pixel_perturbations, pointing_game, segment
from relprop.metrics.pixel_perturbation import AgainstClass, Order
from relprop.metrics.score_arrays import Bools, Floats, Ints
from relprop.model_config import config_value
from relprop.readers.image import ImageReader, PixelRow
from relprop.readers.picture import pixels
from relprop.registry import METHODS
from relprop.render.image.part import Frame
from relprop.tasks import Query

PERTURBATION: dict[str, tuple[Order, AgainstClass]] = {
    "positive_auc_target": ("positive", "target"),
    "negative_auc_target": ("negative", "target"),
    "positive_auc_predicted": ("positive", "predicted"),
    "negative_auc_predicted": ("negative", "predicted"),
}
SEGMENTATION = ("mean_iou", "pixel_accuracy", "mean_ap")
CLASSES = ("class_pearson", "class_spearman")
POINTING = "pointing_game"
MASS = "relevance_mass"
OF_LABEL = "label_"  # begins the names of metrics of the true class's map, where predicted classes are explained
RIGHT_ONLY = "right_only"


@dataclass(frozen=True, eq=False)
class LoadedPictures:
    """Some pictures at the size that the model reads, with the masks of their objects."""

    rows: list[PixelRow]
    pixels: Tensor  # [pictures, 3, height, width], from 0 to 1
    prepare: Callable[[Tensor], Tensor]  # from these pixels to the model's input
    objects: Bools  # [pictures, objects, height, width]
    ignore: Bools  # [pictures, height, width]
    labels: Ints | None  # [pictures, objects], the true classes


class PictureMaps(TaskKind):
    metrics = (
        *PERTURBATION, *SEGMENTATION, *CLASSES, POINTING, MASS, *MARKED,
        *(OF_LABEL + one for one in ("positive_auc_target", "negative_auc_target", POINTING, MASS)),
    )  # fmt: skip
    needs_metrics = False

    def examples(self, catalog: Catalog, task: SuiteTask, folder: Path | None) -> Sequence[Listed]:
        """Pictures with a trigger are a dataset; others are named in the task's options."""
        own = {name: value for name, value in task.options.items() if name != RIGHT_ONLY}
        if task.data and not own:
            return list_triggered(task.data, super().examples(catalog, task, folder))
        return list_pictures(replace(task, options=own), folder)

    def check(self, job: CellJob) -> None:
        loaded = load_pictures(image_reader(job), job.examples, job.explainer.labels)
        targets = [one for one in job.metrics if one.endswith("_target") or one.startswith(OF_LABEL)]
        if job.task.options.get(RIGHT_ONLY) and (job.task.explain != "label" or loaded.objects.shape[1] > 1):
            raise InputError('right_only is about the one class that the data says: set explain = "label"')
        if loaded.labels is None and (targets or job.task.explain == "label"):
            wanted = f'the metric "{targets[0]}"' if targets else 'explain = "label"'
            raise InputError(
                f'{wanted} needs true classes, and the data has none for "{job.task.model}", which knows '
                f"{len(job.explainer.labels)} classes; ask for predicted ones: "
                'explain = "predicted", "..._auc_predicted"'
            )
        if job.task.explain == "label" and (own := [one for one in job.metrics if one.startswith(OF_LABEL)]):
            raise InputError(f'"{own[0]}" stands beside numbers of the predicted class: set explain = "predicted"')
        if loaded.objects.shape[1] > 1:
            if job.task.explain != "label":
                raise InputError('each picture has two objects, explained for their own classes: set explain = "label"')
            if hiding := [metric for metric in job.metrics if metric in PERTURBATION]:
                raise InputError(f'"{hiding[0]}" is for pictures with one object; these have two')
        super().check(job)

    def measure(self, job: CellJob) -> Measurements:
        images = image_reader(job)
        loaded = load_pictures(images, job.examples, job.explainer.labels)
        logits = class_logits(job, images, loaded)
        classes = classes_to_explain(job, logits, loaded)
        whole = Measurements(list(job.places))
        asked_of_label = any(metric.startswith(OF_LABEL) for metric in job.metrics)
        maps, maps_of_label = {}, {}
        for method in job.methods:
            found = [explain_pictures(job, images, loaded.rows, list(own), method, whole) for own in classes.T]
            maps[method.label] = np.stack([[one.part.map() for one in column] for column in found], 1)
            if asked_of_label and loaded.labels is not None:
                own = maps[method.label], classes, loaded.labels
                maps_of_label[method.label] = _maps_of_labels(job, images, loaded.rows, method, whole, *own)
            _add_marked(job, whole, method.label, found, loaded)
            for k, place in enumerate(job.places[: job.shown]):
                whole.exhibits.append(image_exhibit([column[k] for column in found], place, method.label))
        for label, own_maps in maps.items():
            _add_segmentation(job, whole, label, own_maps, loaded)
            _add_classes(job, whole, label, own_maps)
        for begin, each in (("", maps), (OF_LABEL, maps_of_label)):
            for label, own_maps in each.items():
                _add_pointing(job, whole, label, own_maps, loaded, begin + POINTING)
                _add_mass(job, whole, label, own_maps, loaded, begin + MASS)
        _add_perturbation(job, whole, {"": maps, OF_LABEL: maps_of_label}, images, loaded)
        if job.task.options.get(RIGHT_ONLY) and loaded.labels is not None:
            whole.leave_out((logits.argmax(1) != loaded.labels[:, 0]).tolist())
        return whole


def image_reader(job: CellJob) -> ImageReader:
    reader = job.explainer.reader
    if not isinstance(reader, ImageReader):
        raise InputError(f'task "{job.task.name}" is about pictures, but "{job.task.model}" is a model of texts')
    return reader


def load_pictures(images: ImageReader, wanted: Sequence[Listed], names: dict[int, str]) -> LoadedPictures:
    """Whole pictures at the size that the processor gives a square one; the processor itself might crop them."""
    square = 512, 512
    black, white = (pixels(images.processor, Image.new("RGB", square, colour)) for colour in ("black", "white"))
    channels, height, width = black.shape
    if channels != 3:
        raise InputError(f"pictures of three colours are needed, the model reads {channels}")

    def prepare(values: Tensor) -> Tensor:
        return (black + (white - black) * values).to(next(images.model.parameters()))

    every = [
        [one._replace(example=one.example.resized(height, width)) for one in objects]
        for objects in wanted[0].open_pictures(wanted, names)
    ]
    first = [objects[0].example for objects in every]
    values = torch.from_numpy(np.stack([np.asarray(one.image) for one in first])).permute(0, 3, 1, 2) / 255
    frame = Frame(0, 0, width, height)
    rows = [PixelRow(one.image, own, frame, one.name) for one, own in zip(first, prepare(values), strict=True)]
    labels = [[one.label for one in objects] for objects in every]
    return LoadedPictures(
        rows,
        values,
        prepare,
        objects=np.stack([[one.example.foreground for one in objects] for objects in every]),
        ignore=np.stack([one.ignore for one in first]),
        labels=None if any(None in own for own in labels) else np.array(labels, np.int64),
    )


def class_logits(job: CellJob, images: ImageReader, loaded: LoadedPictures) -> Floats:
    """[pictures, classes]: what the model says of the whole pictures."""
    size = job.task.batch_size
    with torch.no_grad():
        parts = [
            images.model(**images.inputs(loaded.rows[k : k + size])).logits for k in range(0, len(loaded.rows), size)
        ]
    logits: Floats = torch.cat(parts).float().cpu().numpy()
    return logits


def classes_to_explain(job: CellJob, logits: Floats, loaded: LoadedPictures) -> Ints:
    """[pictures, columns]: one class per object; to compare maps of two classes, also the second most likely one."""
    own: Ints = logits.argmax(1)[:, None] if job.task.explain == "predicted" or loaded.labels is None else loaded.labels
    if own.shape[1] == 1 and any(metric in CLASSES for metric in job.metrics):
        rest = logits.copy()
        np.put_along_axis(rest, own, -np.inf, 1)
        return np.concatenate([own, rest.argmax(1)[:, None]], 1)
    return own


def explain_pictures(
    job: CellJob, images: ImageReader, rows: list[PixelRow], targets: list[int], method: Method, whole: Measurements
) -> list[Explanation]:
    """A method's explanation of each picture; its time is added to the measurements."""
    size, done = job.task.batch_size, []
    for k in range(0, len(rows), size):
        part = rows[k : k + size]
        inputs = images.inputs(part)
        options = images.options(METHODS[method.method].options, dict(method.options), part, inputs)
        chosen = [int(one) for one in targets[k : k + size]]
        with whole.timed(method.label):
            found = attribute(images.model, inputs, chosen, method.method, **options)
        done += [job.explainer.explanation(Query(row, None), found, number) for number, row in enumerate(part)]
    return done


def _maps_of_labels(
    job: CellJob,
    images: ImageReader,
    rows: list[PixelRow],
    method: Method,
    whole: Measurements,
    maps: Floats,
    classes: Ints,
    labels: Ints,
) -> Floats:
    """The maps [pictures, 1, height, width] of the true classes: new ones where another class was explained."""
    other = np.flatnonzero(classes[:, 0] != labels[:, 0])
    own = maps[:, :1].copy()
    if other.size:
        found = explain_pictures(job, images, [rows[k] for k in other], list(labels[other, 0]), method, whole)
        own[other, 0] = [one.part.map() for one in found]
    return own


def _add_segmentation(job: CellJob, whole: Measurements, label: str, maps: Floats, loaded: LoadedPictures) -> None:
    """Pixels are pooled over all objects of all pictures, so their counts are kept."""
    if not any(metric in SEGMENTATION for metric in job.metrics):
        return
    tallies = [segment(maps[:, k], loaded.objects[:, k], loaded.ignore) for k in range(loaded.objects.shape[1])]
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


def _add_pointing(
    job: CellJob, whole: Measurements, label: str, maps: Floats, loaded: LoadedPictures, metric: str
) -> None:
    """The share of a picture's objects that are hit; NaN where one of them has no pixel that counts."""
    if metric not in job.metrics:
        return
    visible: Bools = np.all((loaded.objects & ~loaded.ignore[:, None]).any((2, 3)), 1)
    hits = np.full(len(maps), np.nan)
    if visible.any():
        ignore = loaded.ignore[visible]
        each = [
            pointing_game(maps[visible, k], loaded.objects[visible, k], ignore).hits
            for k in range(loaded.objects.shape[1])
        ]
        hits[visible] = np.mean(each, 0)
    whole.add(label, metric, hits.tolist())


def _add_mass(job: CellJob, whole: Measurements, label: str, maps: Floats, loaded: LoadedPictures, metric: str) -> None:
    """The share of positive relevance on the objects, each by its own class's map; NaN where none is positive."""
    if metric not in job.metrics:
        return
    counted = ~loaded.ignore[:, None]
    positive = np.maximum(maps[:, : loaded.objects.shape[1]], 0) * counted
    total, inside = (values.sum((2, 3)) for values in (positive, positive * loaded.objects))
    shares = np.divide(inside, total, out=np.full(total.shape, np.nan), where=total > 0)
    whole.add(label, metric, shares.mean(1).tolist())


def _add_marked(
    job: CellJob, whole: Measurements, label: str, found: Sequence[Sequence[Explanation]], loaded: LoadedPictures
) -> None:
    """How high the patches stand that hold a pixel of the object; of two objects the mean."""
    asked = [metric for metric in job.metrics if metric in MARKED]
    if not asked:
        return
    each = []
    for k in range(loaded.objects.shape[1]):
        scores = [summed_by_patch(job.explainer.model, one.part) for one in found[k]]
        marks = [patches_on(mask, own.shape) for mask, own in zip(loaded.objects[:, k], scores, strict=True)]
        each.append(marked_words([own.ravel() for own in scores], [own.ravel() for own in marks]))
    for metric in asked:
        whole.add(label, metric, np.mean([getattr(one, MARKED[metric]) for one in each], 0).tolist())


def summed_by_patch(model: nn.Module, part: Any) -> Floats:
    """[rows, columns]: one score per patch, also where a method scores pixels; as given where patches are not known."""
    scores: Floats = part.scores
    width, height = part.size
    side = config_value(model, "patch_size")
    if scores.shape != (height, width) or not isinstance(side, int) or height % side or width % side:
        return scores
    summed: Floats = scores.reshape(height // side, side, width // side, side).sum((1, 3))
    return summed


def patches_on(mask: Bools, grid: tuple[int, ...]) -> Bools:
    """[rows, columns]: the patches of a grid over the whole picture that hold a pixel of the mask [height, width]."""
    down, across = np.nonzero(mask)
    marked: Bools = np.zeros(grid, bool)
    marked[down * grid[0] // mask.shape[0], across * grid[1] // mask.shape[1]] = True
    return marked


def _add_classes(job: CellJob, whole: Measurements, label: str, maps: Floats) -> None:
    asked = [metric for metric in job.metrics if metric in CLASSES]
    if asked:
        sensitivity = class_sensitivity(maps[:, 0], maps[:, 1])
        for metric in asked:
            whole.add(label, metric, getattr(sensitivity, metric.removeprefix("class_")).tolist())


def _add_perturbation(
    job: CellJob,
    whole: Measurements,
    maps: dict[str, dict[str, Floats]],
    images: ImageReader,
    loaded: LoadedPictures,
) -> None:
    """All methods and both classes share their passes; `maps` is keyed by how the metrics' names begin.

    A curve says if the class is still predicted, by the share of hidden pixels.
    """
    sets = {
        (begin, label): torch.from_numpy(own[:, 0])
        for begin, each in maps.items()
        if any(begin + metric in job.metrics for metric in PERTURBATION)
        for label, own in each.items()
    }
    if not sets:
        return
    labels = None if loaded.labels is None else loaded.labels[:, 0]
    results = pixel_perturbations(
        images.model,
        loaded.pixels,
        list(sets.values()),
        labels,
        prepare=loaded.prepare,
        batch_size=job.task.batch_size,
    )
    for (begin, label), result in zip(sets, results, strict=True):
        for metric, curve in PERTURBATION.items():
            if begin + metric in job.metrics:
                whole.add(label, begin + metric, result.auc(*curve).tolist())
                whole.add_curve(label, begin + metric, result.fractions, result.hits(*curve).tolist())
