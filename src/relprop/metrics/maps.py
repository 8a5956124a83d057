"""Anybody's scores, masks and labels as arrays: tensors or arrays in, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from relprop.errors import InputError
from relprop.metrics.results import Bools, Floats, Ints


def examples(scores: Any, name: str = "scores") -> Floats:
    """Scores with the examples first, in double precision; numbers that are not finite are an error."""
    values: Floats = np.asarray(plain(scores), dtype=np.float64)
    if values.ndim == 0 or values.size == 0:
        raise InputError(f"there are no {name}: their shape is {values.shape}")
    broken = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(1))
    if broken.size:
        raise InputError(f"the {name} of example {broken[0]} are not all finite numbers")
    return values


def maps(scores: Any) -> Floats:
    """One map an image, [images, height, width]; [height, width] is one image."""
    values = examples(_one_channel(plain(scores)))
    if values.ndim != 3:
        raise InputError(f"maps have the shape [images, height, width], got {list(values.shape)}")
    return values


def masks(mask: Any, like: Floats, name: str) -> Bools:
    """Masks of the size of the maps; None is a mask of nothing."""
    if mask is None:
        return np.zeros(like.shape, dtype=bool)
    values = _one_channel(plain(mask))
    if values.shape != like.shape:
        raise InputError(
            f"maps and masks differ in size: the maps are {list(like.shape)}, the {name} mask {list(values.shape)} "
            "(Example.resized brings an image and its masks to the size of the map)"
        )
    if not np.isin(values, (0, 1)).all():
        raise InputError(f"the {name} mask must be true or false a pixel; it holds {values.min()} to {values.max()}")
    flags: Bools = values.astype(bool)
    return flags


def true_classes(labels: Any, count: int, classes: int) -> Ints | None:
    """One class index an example, below `classes`; None where no labels are given."""
    if labels is None:
        return None
    true = torch.as_tensor(labels).cpu().numpy()
    if true.shape != (count,) or true.dtype.kind not in "iu":
        raise InputError(f"labels are {count} class indices, got {true.dtype} of shape {list(true.shape)}")
    if not 0 <= true.min() <= true.max() < classes:
        raise InputError(f"labels run from {true.min()} to {true.max()}, the model knows classes 0 to {classes - 1}")
    whole: Ints = true.astype(np.int64)
    return whole


def plain(values: Any) -> np.ndarray[Any, Any]:
    return values.detach().cpu().double().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _one_channel(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[n, 1, h, w] and [h, w] as [n, h, w]."""
    if values.ndim == 4 and values.shape[1] == 1:
        return values[:, 0]
    return values[None] if values.ndim == 2 else values
