"""A map as a segmentation, [Chefer21] Table 2: does relevance lie on the object?

The map, min-max normalised, is cut at its mean: above is object, the rest background. Pixel accuracy and IoU count
pixels over all images; average precision reads the map itself, without a threshold. `relevance_mass` asks the
same of scores of a picture's regions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relprop.errors import InputError
from relprop.metrics.score_arrays import (
    Bools,
    Floats,
    Ints,
    Values,
    finite_scores,
    mean_defined,
    pixel_maps,
    pixel_masks,
)


@dataclass(frozen=True, eq=False)
class Segmentation:
    """Counts per image, which `merged` joins. Columns of two are background and object."""

    correct: Ints  # [images], pixels
    labelled: Ints  # [images], pixels that are not ignored
    intersection: Ints  # [images, 2]
    union: Ints  # [images, 2]
    average_precision: Floats  # [images]

    @property
    def pixel_accuracy(self) -> float:
        return float(self.correct.sum() / self.labelled.sum())

    @property
    def iou(self) -> Floats:
        """[2], accumulated over the images; NaN for a class without a true or predicted pixel."""
        inter, union = self.intersection.sum(0), self.union.sum(0)
        ratio: Floats = np.divide(inter, union, out=np.full(2, np.nan), where=union > 0)
        return ratio

    def summary(self) -> dict[str, float]:
        return {
            "pixel_accuracy": self.pixel_accuracy,
            "mean_iou": mean_defined(self.iou),
            "mean_ap": mean_defined(self.average_precision),
        }


def segment(scores: Values, foreground: Values, ignore: Values | None = None) -> Segmentation:
    """Counts of maps [images, h, w], or one map [h, w], against true masks of the same size.

    Pixels in `ignore` do not count. The map's range and mean are over all pixels, ignored ones too.
    """
    heat = pixel_maps(scores)
    true, counted = pixel_masks(foreground, heat, "foreground"), ~pixel_masks(ignore, heat, "ignore")
    void = np.flatnonzero(~counted.any((1, 2)))
    if void.size:
        raise InputError(f"all pixels of example {void[0]} are ignored: there is nothing to compare")
    heat = _min_max(heat)
    predicted = heat > heat.mean((1, 2), keepdims=True)
    inter = [_pixel_counts((predicted == kind) & (true == kind) & counted) for kind in (False, True)]
    union = [_pixel_counts(((predicted == kind) | (true == kind)) & counted) for kind in (False, True)]
    return Segmentation(
        correct=inter[0] + inter[1],
        labelled=_pixel_counts(counted),
        intersection=np.stack(inter, 1),
        union=np.stack(union, 1),
        average_precision=np.array([_both_classes_precision(*one) for one in zip(heat, true, counted, strict=True)]),
    )


def average_precision(scores: Floats, positive: Bools) -> float:
    """sum_n (recall_n - recall_(n-1)) precision_n over the distinct scores from high to low; 0 without positives."""
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # tied scores enter together
    hits = np.cumsum(positive[order])[last]
    gained = np.diff(hits, prepend=0)
    return float((gained * hits / (last + 1)).sum() / max(1, hits[-1]))


def relevance_mass(scores: Values, regions: Values, marked: Values) -> float:
    """The share of positive scores [nodes] on marked pixels, each score spread evenly over its node's region.

    `regions` [height, width] holds each pixel's node. NaN where no score is positive. Arras et al. 2022.
    """
    positive = np.maximum(finite_scores(scores), 0)
    where, inside = np.asarray(regions), np.asarray(marked, dtype=np.float64)
    if where.shape != inside.shape or positive.ndim != 1 or not 0 <= where.min() <= where.max() < len(positive):
        raise InputError(
            f"regions and marked are of one size and name nodes 0 to {len(positive) - 1}, got {list(where.shape)} with "
            f"{where.min()} to {where.max()}, and {list(inside.shape)}"
        )
    size = np.bincount(where.ravel(), minlength=len(positive))
    share = np.bincount(where.ravel(), inside.ravel(), len(positive)) / np.maximum(size, 1)
    total = positive.sum()
    return float(positive @ share / total) if total else float("nan")


def _both_classes_precision(heat: Floats, true: Bools, counted: Bools) -> float:
    """As released: one ranking of both classes' pixels, the object's scored by the map, the background's by 1 - map."""
    object_scores, is_object = heat[counted], true[counted]
    return average_precision(np.append(1 - object_scores, object_scores), np.append(~is_object, is_object))


def _min_max(heat: Floats) -> Floats:
    """Each map scaled to 0..1; a map of equal scores becomes 0.5 everywhere."""
    low, high = heat.min((1, 2), keepdims=True), heat.max((1, 2), keepdims=True)
    scaled: Floats = np.divide(heat - low, high - low, out=np.full(heat.shape, 0.5), where=high > low)
    return scaled


def _pixel_counts(flags: Bools) -> Ints:
    count: Ints = flags.sum((1, 2))
    return count
