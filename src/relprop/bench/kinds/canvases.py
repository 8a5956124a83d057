"""Two digits of MNIST on a canvas, among fragments of others, after the cluttered MNIST of Mnih et al. 2014.

The embedded model "digits" was trained on such canvases. The position of each digit is known, so a map for one class
has a ground truth.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relprop.bench.idx import Bytes, read_idx

SIDE, TILE = 56, 28
EDGE = 4  # pixels of a tile's empty border that may lie outside the canvas
APART = 22  # the least distance of two digits, along an axis
FRAGMENTS, FRAGMENT = 6, 8


class Mnist(NamedTuple):
    """Digits [n, 28, 28] and their classes [n]."""

    images: Bytes
    classes: Bytes

    @classmethod
    def read(cls, images: Path, classes: Path) -> Mnist:
        return cls(read_idx(images), read_idx(classes))


class Canvas(NamedTuple):
    """Bytes [56, 56], the two classes, and the pixels of each digit."""

    image: Bytes
    classes: tuple[int, int]
    ink: tuple[NDArray[np.bool_], NDArray[np.bool_]]


def draw_canvas(mnist: Mnist, number: int) -> Canvas:
    """The canvas with this number, which is the seed."""
    rng = np.random.default_rng(number)
    side = SIDE + 2 * EDGE
    whole = np.zeros((side, side), np.uint8)
    for _ in range(FRAGMENTS):
        y, x = rng.integers(EDGE, TILE - EDGE - FRAGMENT + 1, size=2)
        piece = mnist.images[rng.integers(len(mnist.images))][y : y + FRAGMENT, x : x + FRAGMENT]
        _paste(whole, piece, rng.integers(EDGE, side - EDGE - FRAGMENT + 1, size=2))
    first = int(rng.integers(10))
    classes = first, (first + int(rng.integers(1, 10))) % 10
    inside = slice(EDGE, side - EDGE)
    ink = []
    for label, corner in zip(classes, _corners(rng), strict=True):
        tile = mnist.images[rng.choice(np.flatnonzero(mnist.classes == label))]
        drawn = np.zeros_like(whole)
        for layer in (whole, drawn):
            _paste(layer, tile, corner)
        ink.append(drawn[inside, inside] > 0)
    return Canvas(whole[inside, inside], classes, (ink[0], ink[1]))


def _corners(rng: np.random.Generator) -> NDArray[np.int64]:
    """[2 digits, 2]: corners of tiles whose digits do not overlap."""
    while True:
        corners: NDArray[np.int64] = rng.integers(SIDE + 2 * EDGE - TILE + 1, size=(2, 2))
        if np.abs(corners[0] - corners[1]).max() >= APART:
            return corners


def _paste(layer: Bytes, tile: Bytes, corner: NDArray[np.int64]) -> None:
    """Copy the pixels of a tile that are brighter than those below."""
    y, x = corner
    part = layer[y : y + len(tile), x : x + len(tile)]
    np.maximum(part, tile, out=part)
