"""A picture as a graph of superpixels (SLIC, by scikit-image): nodes are regions, edges join neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relprop.errors import InputError, RelpropError
from relprop.graph.graph import Graph

MOST = 75  # regions, as in Ali et al. 2022


def superpixels(picture: ArrayLike, most: int = MOST, compactness: float = 0.25) -> Graph:
    """A grey picture [height, width], 0 to 255 or 0 to 1, as at most `most` regions: brightness and centre of each.

    The features are brightness (0 to 1), x and y (-1 to 1). `source` holds each pixel's region.
    """
    grey = np.asarray(picture, dtype=np.float64)
    if grey.ndim != 2 or min(grey.shape) < 2:
        raise InputError(f"superpixels need a grey picture [height, width], got {list(grey.shape)}")
    grey = grey / 255 if grey.max() > 1 else grey
    regions = _slic(grey, most, compactness)
    count = regions.max() + 1
    size = np.bincount(regions.ravel(), minlength=count)
    rows, columns = np.indices(grey.shape)
    bright, y, x = (np.bincount(regions.ravel(), values.ravel(), count) / size for values in (grey, rows, columns))
    height, width = grey.shape
    features = np.stack([bright, 2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1], 1)
    neighbours = (regions[:, :-1], regions[:, 1:]), (regions[:-1], regions[1:])
    pairs = np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in neighbours])
    return Graph.of(
        features.astype(np.float32),
        pairs[pairs[:, 0] != pairs[:, 1]],
        places=np.stack([x, y], 1),
        source=regions,
    )


def _slic(grey: NDArray[np.float64], most: int, compactness: float) -> NDArray[np.int64]:
    """Regions [height, width] numbered from 0, at most `most`; for SLIC the number is only a hint."""
    try:
        from skimage.segmentation import slic
    except ImportError:
        raise RelpropError('superpixels need scikit-image: pip install "relprop[graph]"') from None
    asked = most
    while True:
        regions = slic(grey, n_segments=asked, compactness=compactness, channel_axis=None, start_label=0)
        _, regions = np.unique(regions, return_inverse=True)
        regions = regions.reshape(grey.shape)
        if regions.max() < most:
            return regions
        asked -= max(1, (regions.max() + 1 - most) // 2)
