"""Scores, masks and labels of the caller as checked arrays; tensors and arrays are both taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from relprop.errors import InputError

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Values = Tensor | ArrayLike  # scores, masks or labels of the caller


def as_array(values: Values) -> NDArray[Any]:
    return values.detach().cpu().double().numpy() if isinstance(values, Tensor) else np.asarray(values)


def finite_scores(scores: Values, name: str = "scores") -> Floats:
    """Scores [examples, ...] in double precision; raises if a number is not finite."""
    values: Floats = np.asarray(as_array(scores), dtype=np.float64)
    if values.ndim == 0 or values.size == 0:
        raise InputError(f"there are no {name}: their shape is {values.shape}")
    broken = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(1))
    if broken.size:
        raise InputError(f"the {name} of example {broken[0]} are not all finite numbers")
    return values


def scores_per_unit(scores: Values, real: Tensor, unit: str) -> Floats:
    """Scores [examples, units] with those of padding, where `real` is false, set to 0."""
    values = as_array(scores)
    if values.shape != real.shape:
        raise InputError(f"scores are one per {unit}, {list(real.shape)}, got {list(values.shape)}")
    return finite_scores(np.where(real.numpy(), values, 0))


def pixel_maps(scores: Values) -> Floats:
    """One map per image, [images, height, width]; [height, width] is one image."""
    values = finite_scores(_one_channel(as_array(scores)))
    if values.ndim != 3:
        raise InputError(f"maps have the shape [images, height, width], got {list(values.shape)}")
    return values


def pixel_masks(mask: Values | None, like: Floats, name: str) -> Bools:
    """Masks of the maps' size, [images, height, width]; None gives masks without any pixel."""
    if mask is None:
        return np.zeros(like.shape, dtype=bool)
    values = _one_channel(as_array(mask))
    if values.shape != like.shape:
        raise InputError(
            f"maps and masks differ in size: the maps are {list(like.shape)}, the {name} mask {list(values.shape)} "
            "(SegmentedPicture.resized brings an image and its masks to the size of the map)"
        )
    if not np.isin(values, (0, 1)).all():
        raise InputError(f"the {name} mask must be true or false per pixel; it holds {values.min()} to {values.max()}")
    return np.asarray(values, dtype=bool)


def class_indices(labels: Values | None, count: int, classes: int) -> Ints | None:
    """One class index per example, below `classes`; None where no labels are given."""
    if labels is None:
        return None
    indices = torch.as_tensor(labels).cpu().numpy()
    if indices.shape != (count,) or indices.dtype.kind not in "iu":
        raise InputError(f"labels are {count} class indices, got {indices.dtype} of shape {list(indices.shape)}")
    if not 0 <= indices.min() <= indices.max() < classes:
        raise InputError(
            f"labels run from {indices.min()} to {indices.max()}, the model has classes 0 to {classes - 1}"
        )
    return np.asarray(indices, dtype=np.int64)


def mean_defined(values: Floats) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else float("nan")


def _one_channel(values: NDArray[Any]) -> NDArray[Any]:
    """[n, 1, h, w] and [h, w] as [n, h, w]."""
    if values.ndim == 4 and values.shape[1] == 1:
        return values[:, 0]
    return values[None] if values.ndim == 2 else values
