"""Graphs as pictures: a node-link drawing, and the scores of its nodes as a field of discs over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from relprop.render.image import Numbers, Pixels

SIDE = 448  # pixels of a drawing's longer side
MARGIN = 0.08  # of the side
INK, FAINT = (40, 40, 40), (150, 150, 150)


def placed(places: NDArray[np.float64], side: int = SIDE) -> tuple[NDArray[np.float64], tuple[int, int]]:
    """Places as pixels of a drawing, and its width and height: the shape is kept, the longer way fills the side."""
    low, high = places.min(0), places.max(0)
    span = np.maximum(high - low, 1e-9 + 0.35 * (high - low).max())
    scale = side * (1 - 2 * MARGIN) / max(span.max(), 1e-9)
    size = np.ceil(span * scale + 2 * MARGIN * side).astype(int)
    return (places - (low + high) / 2) * scale + size / 2, (int(size[0]), int(size[1]))


def spread(count: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Places for a graph that has none, the same each time: neighbours near, others apart (stress of the paths)."""
    angles = 2 * np.pi * np.arange(count) / max(count, 1)
    places = np.stack([np.cos(angles), np.sin(angles)], 1) * max(1.0, count / 6)
    if count < 2:
        return places
    wanted = _distances(count, edges)
    weights = 1 / np.maximum(wanted, 1) ** 2 * (1 - np.eye(count))
    for _ in range(100):  # majorisation: each node to the mean of where the others want it
        apart = places[:, None] - places[None]
        length = np.maximum(np.linalg.norm(apart, axis=-1), 1e-6)
        pulled = places[None] + apart * (wanted / length)[..., None]
        places = (weights[..., None] * pulled).sum(1) / weights.sum(1)[:, None]
    return places


def _distances(count: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import shortest_path

    links = coo_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(count, count))
    found = shortest_path(links, directed=False, unweighted=True)
    reached = found[np.isfinite(found)]
    return np.asarray(np.where(np.isfinite(found), found, reached.max() + 1))


def node_link(
    places: NDArray[np.float64], size: tuple[int, int], edges: NDArray[np.int64], names: Sequence[str], radius: float
) -> Pixels:
    """Lines for edges, rings for nodes, names where they fit."""
    canvas = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(canvas)
    for a, b in edges:
        pen.line([tuple(places[a]), tuple(places[b])], fill=FAINT, width=max(1, round(radius / 6)))
    for (x, y), name in zip(places, names, strict=True):
        pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill="white", outline=INK)
        left, top, right, bottom = pen.textbbox((0, 0), name)
        if right - left < 2 * radius:
            pen.text((x - (left + right) / 2, y - (top + bottom) / 2), name, fill=INK)
    return np.asarray(canvas)


def discs(places: NDArray[np.float64], size: tuple[int, int], scores: Numbers, radius: float) -> Numbers:
    """[height, width]: within a node's reach its score, of the nearest node where several reach; elsewhere 0."""
    width, height = size
    rows, columns = np.indices((height, width), dtype=np.float32)
    nearest = np.full((height, width), np.inf)
    field = np.zeros((height, width))
    for (x, y), score in zip(places, scores, strict=True):
        away = np.hypot(columns - x, rows - y)
        here = (away <= radius) & (away < nearest)
        nearest[here], field[here] = away[here], score
    return field


def reach(places: NDArray[np.float64], size: tuple[int, int]) -> float:
    """A radius that lets most nodes stand free: 0.42 of the usual distance to the nearest other."""
    if len(places) < 2:
        return min(size) / 8
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1) + np.diag([np.inf] * len(places))
    return float(np.clip(0.42 * np.median(apart.min(1)), 3, min(size) / 8))


def mosaic(
    regions: NDArray[Any], grey: NDArray[np.float64], scores: Numbers, side: int = SIDE
) -> tuple[Pixels, Numbers]:
    """A picture of regions, enlarged without smoothing, and the regions' scores on its pixels."""
    factor = max(1, side // max(regions.shape))
    large = np.kron(regions, np.ones((factor, factor), dtype=regions.dtype))
    picture = np.repeat(np.rint(255 * grey[large])[..., None], 3, axis=2).astype(np.uint8)
    return picture, np.asarray(scores, dtype=np.float64)[large]
