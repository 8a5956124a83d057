"""The pointing game (Zhang et al. 2018): does the map's maximum fall on the object?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import distance_transform_edt

from relprop.errors import InputError
from relprop.metrics.maps import maps, masks
from relprop.metrics.results import Bools, Floats, mean


@dataclass(frozen=True, eq=False)
class Pointing:
    """One hit (1) or miss (0) an image; a share where the maximum is reached at several pixels."""

    hits: Floats  # [images]

    def summary(self) -> dict[str, float]:
        return {"pointing_game": mean(self.hits)}


def pointing_game(scores: Any, foreground: Any, ignore: Any = None, *, tolerance: float = 0.0) -> Pointing:
    """Play on maps [images, h, w], or one map [h, w], with true masks of the same size.

    A maximum within `tolerance` pixels of the object counts as a hit (in the literature 15 on images of 224). Tied
    maxima count by the share that hits, so that a map of equal scores plays as chance does. The maximum is sought
    outside the pixels to `ignore`.
    """
    if tolerance < 0:
        raise InputError(f"tolerance is a distance in pixels, 0 or more, got {tolerance}")
    heat = maps(scores)
    true, counted = masks(foreground, heat, "foreground"), ~masks(ignore, heat, "ignore")
    empty = np.flatnonzero(~(true & counted).any((1, 2)))
    if empty.size:
        raise InputError(f"example {empty[0]} has no object to point at: its mask is all background")
    return Pointing(np.array([_hit(*one, tolerance) for one in zip(heat, true & counted, counted, strict=True)]))


def _hit(heat: Floats, true: Bools, counted: Bools, tolerance: float) -> float:
    maxima = counted & (heat == heat[counted].max())
    near = distance_transform_edt(~true) <= tolerance
    return float(near[maxima].mean())
