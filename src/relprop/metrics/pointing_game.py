"""The pointing game (Zhang et al. 2018): does the map's maximum fall on the object?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relprop.errors import InputError
from relprop.metrics.score_arrays import Bools, Floats, Values, mean_defined, pixel_maps, pixel_masks


@dataclass(frozen=True, eq=False)
class Pointing:
    """One hit (1) or miss (0) per image; a share where several pixels reach the maximum."""

    hits: Floats  # [images]

    def summary(self) -> dict[str, float]:
        return {"pointing_game": mean_defined(self.hits)}


def pointing_game(
    scores: Values, foreground: Values, ignore: Values | None = None, *, tolerance: float = 0.0
) -> Pointing:
    """Hits of maps [images, h, w], or one map [h, w], against true masks of the same size.

    A maximum within `tolerance` pixels of the object counts as a hit (in the literature 15 on images of 224). Of tied
    maxima the share that hits counts, so that a map of equal scores does as well as chance. Pixels to `ignore` cannot
    be the maximum.
    """
    if tolerance < 0:
        raise InputError(f"tolerance is a distance in pixels, 0 or more, got {tolerance}")
    heat = pixel_maps(scores)
    true, counted = pixel_masks(foreground, heat, "foreground"), ~pixel_masks(ignore, heat, "ignore")
    empty = np.flatnonzero(~(true & counted).any((1, 2)))
    if empty.size:
        raise InputError(f"example {empty[0]} has no object to point at: its mask is all background")
    return Pointing(np.array([_hit(*one, tolerance) for one in zip(heat, true & counted, counted, strict=True)]))


def _hit(heat: Floats, true: Bools, counted: Bools, tolerance: float) -> float:
    from scipy.ndimage import distance_transform_edt  # here, as importing it takes a while

    maxima = counted & (heat == heat[counted].max())
    near = distance_transform_edt(~true) <= tolerance
    return float(near[maxima].mean())
