"""Where the nodes of a drawn graph lie: given or found, and how large a disc leaves them room."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from relprop.graph.graph import Graph

Places = NDArray[np.float64]

APART = 38.0  # the usual distance from a node to its nearest other
ROUNDS = 150


def placed(graph: Graph) -> Places:
    """The graph's own places, or found ones, at a distance that lets names be read."""
    places = spread(len(graph), graph.edges.tobytes()) if graph.places is None else graph.places
    usual = _nearest(places)
    return np.asarray(places * (APART / usual if usual else 1.0))


def reach(places: Places) -> float:
    """The radius of discs that leaves most nodes standing free."""
    return 0.38 * (_nearest(places) or APART)


def _nearest(places: Places) -> float:
    """The usual distance to the nearest node elsewhere; 0 where there is none."""
    from scipy.spatial.distance import cdist

    apart = cdist(places, places)
    apart[apart < 1e-9 * max(float(apart.max()), 1.0)] = np.inf
    nearest = apart.min(1)
    return float(np.median(nearest[np.isfinite(nearest)])) if np.isfinite(nearest).any() else 0.0


@lru_cache(maxsize=8)  # the maps of several methods share one
def spread(count: int, edges: bytes) -> Places:
    """Places for a graph that has none, the same each time: each part by itself, and the parts in rows."""
    import networkx

    graph = networkx.empty_graph(count)
    graph.add_edges_from(np.frombuffer(edges, np.int64).reshape(-1, 2).tolist())
    places, parts, laid = np.zeros((count, 2)), [sorted(part) for part in networkx.connected_components(graph)], []
    for part in parts:  # nodes about as far apart as their shortest path, neighbours by 1
        found = networkx.kamada_kawai_layout(graph.subgraph(part))
        lengths = [np.linalg.norm(found[a] - found[b]) for a, b in graph.edges(part)]
        laid.append(np.array([found[node] for node in part]) / (np.mean(lengths) if lengths else 1.0))
    for part, inside, corner in zip(parts, laid, _shelves([one.max(0) - one.min(0) for one in laid]), strict=True):
        places[part] = inside - inside.min(0) + corner
    return places


def _shelves(sizes: list[Places]) -> list[Places]:
    """The upper left corners of boxes, the tallest first, in rows about as wide as all of them are high."""
    width = max(1.2 * float(np.sqrt(sum(np.prod(size + 1) for size in sizes))), max(float(size[0]) for size in sizes))
    corners: list[Places] = [np.zeros(2)] * len(sizes)
    x = y = height = 0.0
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i][1]):
        if x and x + sizes[i][0] > width:
            x, y, height = 0.0, y + height + 1, 0.0
        corners[i] = np.array([x, y])
        x, height = x + float(sizes[i][0]) + 1, max(height, float(sizes[i][1]))
    return corners
