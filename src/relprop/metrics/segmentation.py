"""A map as a segmentation, as in [Chefer21]: does relevance lie on the object?

The map, min-max normalised, is cut at its mean: above is object, the rest background. Pixel accuracy and IoU count
pixels over all images; average precision reads the map itself, without a threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relprop.errors import InputError
from relprop.metrics.maps import maps, masks
from relprop.metrics.results import Bools, Floats, Ints, mean


@dataclass(frozen=True, eq=False)
class Segmentation:
    """A tally, image by image; `merged` makes one of several. Columns of two are background and object."""

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
        """[2], accumulated over the images; NaN for a class that is neither there nor predicted."""
        inter, union = self.intersection.sum(0), self.union.sum(0)
        ratio: Floats = np.divide(inter, union, out=np.full(2, np.nan), where=union > 0)
        return ratio

    def summary(self) -> dict[str, float]:
        return {
            "pixel_accuracy": self.pixel_accuracy,
            "mean_iou": mean(self.iou),
            "mean_ap": mean(self.average_precision),
        }


def segment(scores: Any, foreground: Any, ignore: Any = None) -> Segmentation:
    """Tally maps [images, h, w], or one map [h, w], against true masks of the same size; `ignore` marks void pixels.

    The map is normalised and its mean taken over all pixels, void ones too, as the model saw them.
    """
    heat = maps(scores)
    true, counted = masks(foreground, heat, "foreground"), ~masks(ignore, heat, "ignore")
    void = np.flatnonzero(~counted.any((1, 2)))
    if void.size:
        raise InputError(f"all pixels of example {void[0]} are ignored: there is nothing to compare")
    heat = _min_max(heat)
    predicted = heat > heat.mean((1, 2), keepdims=True)
    inter = [_pixels((predicted == kind) & (true == kind) & counted) for kind in (False, True)]
    union = [_pixels(((predicted == kind) | (true == kind)) & counted) for kind in (False, True)]
    return Segmentation(
        correct=inter[0] + inter[1],
        labelled=_pixels(counted),
        intersection=np.stack(inter, 1),
        union=np.stack(union, 1),
        average_precision=np.array([_both_classes(*one) for one in zip(heat, true, counted, strict=True)]),
    )


def average_precision(scores: Floats, positive: Bools) -> float:
    """sum_n (recall_n - recall_(n-1)) precision_n over the distinct scores from high to low; 0 without positives."""
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # tied scores enter together
    found = np.cumsum(positive[order])[last]
    gained = np.diff(found, prepend=0)
    return float((gained * found / (last + 1)).sum() / max(1, found[-1]))


def _both_classes(heat: Floats, true: Bools, counted: Bools) -> float:
    """As released: one ranking of both classes' pixels, the object's scored by the map, the background's by 1 - map."""
    object_scores, is_object = heat[counted], true[counted]
    return average_precision(np.append(1 - object_scores, object_scores), np.append(~is_object, is_object))


def _min_max(heat: Floats) -> Floats:
    """To 0..1, map by map. A map of equal scores says nothing: 0.5 everywhere."""
    low, high = heat.min((1, 2), keepdims=True), heat.max((1, 2), keepdims=True)
    scaled: Floats = np.divide(heat - low, high - low, out=np.full(heat.shape, 0.5), where=high > low)
    return scaled


def _pixels(flags: Bools) -> Ints:
    count: Ints = flags.sum((1, 2))
    return count
