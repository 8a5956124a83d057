"""Where on the picture each number of a processor's pixels lies, whatever it did to the picture: found by looking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from relprop.errors import ModelError
from relprop.readers.picture import Numbers, Picture
from relprop.render.image.part import Frame

GREY = 1 / 256  # places are told by so many greys
Cells = NDArray[np.int64]
NEAR = 1.25  # a unit up to so many times as wide as the finest is one cell of the grid


@dataclass(frozen=True)
class PixelPlaces:
    """For every number of the pixels its place across and down, from 0 to 1; not a number where it is padding."""

    across: Numbers
    down: Numbers

    def first(self) -> PixelPlaces:
        """Those of the first example."""
        return PixelPlaces(self.across[0], self.down[0])


@dataclass(frozen=True)
class UnitBoxes:
    """Along each axis (across, down) of the picture, from 0 to 1, what each unit reads; not a number for none of it."""

    low: tuple[Numbers, Numbers]  # its first pixel's middle
    middle: tuple[Numbers, Numbers]
    high: tuple[Numbers, Numbers]  # its last pixel's


def pixel_places(make: Callable[[Picture], Tensor], size: tuple[int, int]) -> PixelPlaces:
    """`make`: what the processor makes of a picture of this size (width, height). It is shown ramps of grey."""
    black, white = (make(Image.new("RGB", size, colour)).double().numpy() for colour in ("black", "white"))
    span = white - black
    seen = np.abs(span) > np.abs(span).max() / 2  # the rest is padding
    if black.shape != white.shape or not seen.any():
        raise ModelError("the image processor makes the same of black and white: what it shows cannot be found")

    def level(axis: int) -> Numbers:
        ramp = np.round((np.arange(size[axis]) + 0.5) / size[axis] * 255).astype(np.uint8)
        row = Image.fromarray(ramp[None]) if axis == 0 else Image.fromarray(ramp[:, None])
        shown = make(row.resize(size, Image.Resampling.NEAREST).convert("RGB")).double().numpy()
        found = np.where(seen, shown - black, 0) / np.where(seen, span, 1)
        return np.where(seen, np.clip(found, 0, 1), np.nan)

    return PixelPlaces(level(0), level(1))


def window_boxes(places: PixelPlaces, windows: Tensor) -> UnitBoxes:
    """The boxes of windows [units, axes, (first, last)] of the pixels; empty windows have none."""
    slices = [tuple(slice(first, last + 1) for first, last in window) for window in windows.cpu().tolist()]
    own = [[_reach(axis[one]) for one in slices] for axis in (places.across, places.down)]
    (x, y) = (np.array(axis, dtype=np.float64).reshape(len(slices), 3).T for axis in own)
    return UnitBoxes(*zip(x, y, strict=True))


def element_boxes(places: PixelPlaces, count: int) -> UnitBoxes | None:
    """The boxes of units that are numbers of the pixels, added along some axes; None where the count fits none."""
    shape = places.across.shape
    for features in [(), *((axis,) for axis in reversed(range(len(shape)))), tuple(range(1, len(shape)))]:
        kept = [axis for axis in range(len(shape)) if axis not in features]
        if np.prod([shape[axis] for axis in kept], dtype=int) == count:
            own = (np.moveaxis(one, kept, range(len(kept))).reshape(count, -1) for one in (places.across, places.down))
            x, y = (np.array([_reach(unit) for unit in axis]).T for axis in own)
            return UnitBoxes(*zip(x, y, strict=True))
    return None


def on_grid(boxes: UnitBoxes, scores: Numbers, size: tuple[int, int]) -> tuple[Numbers, Frame, float]:
    """Scores as [rows, columns], the frame of the picture that they cover, and what units elsewhere have.

    The grid is as fine as the finest units. A coarser unit (of a thumbnail, beside tiles) is spread evenly over the
    cells that it covers, so that the sum stays.
    """
    placed = ~np.isnan(boxes.middle[0])
    if not placed.any():
        raise ModelError("no unit of the picture reads any part of it")
    (x, columns, x_edges), (y, rows, y_edges) = (
        _axis(*(one[k][placed] for one in (boxes.low, boxes.middle, boxes.high))) for k in range(2)
    )
    grid = np.zeros((rows, columns))
    single = (x[1] - x[0] == 1) & (y[1] - y[0] == 1)
    np.add.at(grid, (y[0][single], x[0][single]), scores[placed][single])
    for i in np.flatnonzero(~single):
        cells = grid[y[0][i] : y[1][i], x[0][i] : x[1][i]]
        cells += scores[placed][i] / cells.size
    width, height = size
    frame = Frame(x_edges[0] * width, y_edges[0] * height, x_edges[1] * width, y_edges[1] * height)
    return grid, frame, float(scores[~placed].sum())


def _axis(low: Numbers, middle: Numbers, high: Numbers) -> tuple[tuple[Cells, Cells], int, tuple[float, float]]:
    """Per unit its first cell and the one behind its last, the number of cells, and the edges of all, along an axis."""
    widths = high - low
    finest = widths <= widths.min() * NEAR + GREY
    lattice = _distinct(np.sort(middle[finest]))
    step = _step(np.diff(lattice)) if len(lattice) > 1 else min(1.0, float(widths.max()) + GREY)
    number = np.round((lattice - lattice[0]) / step)
    if len(lattice) > 2:
        step, first_middle = np.polyfit(number, lattice, 1)
    else:
        first_middle = lattice[0]
    start, count = float(first_middle) - float(step) / 2, int(number[-1]) + 1
    first = np.where(finest, np.floor((middle - start) / step), np.round((low - start) / step)).astype(int)
    stop = np.where(finest, first + 1, np.round((high - start) / step)).astype(int)
    first = np.clip(first, 0, count - 1)
    edges = (start, start + count * float(step))
    near = [0.0 if abs(edge) < 2 * GREY else 1.0 if abs(edge - 1) < 2 * GREY else edge for edge in edges]
    return (first, np.clip(stop, first + 1, count)), count, (near[0], near[1])


def _step(gaps: Numbers) -> float:
    """The gap between neighbours; greys tell each one coarsely, so their mean, unless some neighbours are missing."""
    even = gaps.max() < 1.5 * gaps.min() + GREY
    return float(gaps.mean() if even else np.median(gaps))


def _distinct(ordered: Numbers) -> Numbers:
    """Places that are not the same but for the 256 greys that tell them."""
    gaps = np.diff(ordered)
    starts = np.concatenate([[True], gaps > min(GREY, gaps.max(initial=0.0) / 2)])
    groups = np.cumsum(starts) - 1
    return np.asarray(np.bincount(groups, ordered) / np.bincount(groups))


def _reach(places: Numbers) -> tuple[float, float, float]:
    """The least, the mean and the greatest of some places."""
    known = places[~np.isnan(places)]
    return (float(known.min()), float(known.mean()), float(known.max())) if known.size else (np.nan,) * 3
