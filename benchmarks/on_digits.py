"""Figure 3 of [Chefer21] in numbers: of two digits on a canvas, does the map of each class lie on its own?

The suite chefer21-figures says how alike the two maps are; this, what share of each lies on the ink of its digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional as F

import relprop
from digits import canvases, read_mnist
from picture_maps import Maps, bar, chunks, explained, logits
from relprop.bootstrap import Floats, Statistic, mean
from relprop.metrics import class_sensitivity

Ink = NDArray[np.bool_]


class Pairs(NamedTuple):
    """Canvases of two digits: pictures, the classes [n, 2], and where their ink is [n, 2, height, width]."""

    images: list[Image.Image]
    classes: NDArray[np.int64]
    ink: Ink
    looked_at: int


def draw(explainer: relprop.Explainer, data: Path, limit: int, seed: int) -> Pairs:
    """Canvases of MNIST's test images that the model reads exactly, until there are enough."""
    drawn = canvases(*read_mnist(data, "t10k"), 2 * limit + 10, np.random.default_rng(seed), doubles=1.0)
    images = [Image.fromarray(one) for one in drawn.images]
    found = torch.cat([logits(explainer, list(part)) for part in chunks(images)]).numpy() > 0
    right = np.flatnonzero((found == drawn.labels).all(1))[:limit]
    classes = np.nonzero(drawn.labels[right])[1].reshape(-1, 2)
    return Pairs([images[i] for i in right], classes, drawn.masks[right[:, None], classes], int(right[-1]) + 1)


def on_own_digit(explainer: relprop.Explainer, pairs: Pairs, specs: Sequence[str]) -> dict[str, dict[str, Statistic]]:
    """By method; and for comparison the best that a map of one score a patch can do."""
    found: dict[str, list[Maps]] = {spec: [] for spec in specs}
    for part in bar(chunks(range(len(pairs.images))), "digits"):
        images = [pairs.images[i] for i in part]
        for spec in specs:
            both = [explained(explainer, images, pairs.classes[list(part), k].tolist(), spec) for k in (0, 1)]
            found[spec].append(np.stack(both, 1))
    maps = {spec: np.concatenate(parts) for spec, parts in found.items()}
    maps["(ink in each patch)"] = ink_in_patches(pairs.ink, explainer.model.config.patch_size)
    return {spec: shares(one, pairs.ink) for spec, one in maps.items()}


def shares(maps: Maps, ink: Ink) -> dict[str, Statistic]:
    """In percent, of maps and ink [canvases, 2 classes, height, width]: the positive part of each class's map."""
    positive = maps.clip(0)
    own, other = ((positive * where).sum((2, 3)) for where in (ink, ink[:, ::-1]))
    alike = class_sensitivity(maps[:, 0], maps[:, 1])
    return {
        "own digit / both digits": mean(100 * _ratio(own, own + other)),
        "own digit / canvas": mean(100 * _ratio(own, positive.sum((2, 3)))),
        "correlation of the two maps": mean(100 * alike.pearson),
    }


def _ratio(part: Floats, whole: Floats) -> Floats:
    """The mean of both classes, [canvases]; NaN where a map has nothing positive to share."""
    each: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    known = ~np.isnan(each)
    count = known.sum(1)
    shared: Floats = np.divide(np.where(known, each, 0).sum(1), count, out=np.full(len(each), np.nan), where=count > 0)
    return shared


def ink_in_patches(ink: Ink, patch: int) -> Maps:
    """The map that knows the digit, and has one score a patch, enlarged as all are."""
    pooled = F.avg_pool2d(torch.from_numpy(ink).double(), patch)
    return F.interpolate(pooled, size=ink.shape[2:], mode="bilinear").numpy()
