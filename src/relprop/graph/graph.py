"""`Graph`: nodes, edges and their names, from arrays, networkx or PyTorch Geometric; and batches of graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from relprop.errors import InputError

MOST_NODES = 10_000

if TYPE_CHECKING:
    import networkx
    from torch_geometric.data import Data

Layout = Callable[[], "NDArray[np.float64] | None"]


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph. Every edge is listed once, as a pair of node numbers.

    `nodes` [nodes, features] are whole numbers (each column one category) or floats; `edge_types` [edges] are
    categories from 0 on. `names` are shown to people, `places` [nodes, 2] are the positions in a drawing (x to the
    right, y down), or None.
    """

    nodes: NDArray[Any]
    edges: NDArray[np.int64]
    edge_types: NDArray[np.int64]
    names: tuple[str, ...]
    layout: Layout | NDArray[np.float64] | None = None  # the places, or a function that finds them
    title: str = ""
    source: Any = None  # for drawing: the SMILES, or each pixel's region

    @cached_property
    def places(self) -> NDArray[np.float64] | None:
        """Found when they are first read, as finding them may take longer than explaining the graph."""
        return self.layout() if callable(self.layout) else self.layout

    def __len__(self) -> int:
        return len(self.nodes)

    @classmethod
    def of(
        cls,
        nodes: ArrayLike,
        edges: ArrayLike = (),
        edge_types: ArrayLike | None = None,
        *,
        names: Sequence[str] | None = None,
        places: ArrayLike | Layout | None = None,
        title: str = "",
        source: Any = None,
    ) -> Graph:
        """A graph from checked arrays. A flat list is one feature per node; an edge in both directions counts once."""
        values = _array(nodes, "nodes")
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or not len(values) or values.dtype.kind not in "iufb":
            got = f"an array {list(np.shape(nodes))} of {values.dtype}"
            raise InputError(f"nodes are numbers [nodes, features], at least one node, got {got}")
        if not np.isfinite(values).all():
            raise InputError("a node has a feature that is not a finite number")
        ends = _whole(edges, "edges")
        if ends.size and (ends.ndim != 2 or ends.shape[1] != 2):
            raise InputError(f"edges are pairs of node numbers [edges, 2], got {_shape(ends)}")
        pairs = ends.reshape(-1, 2)
        kinds = np.zeros(len(pairs), np.int64) if edge_types is None else _whole(edge_types, "edge_types")
        if kinds.shape != (len(pairs),) or (kinds < 0).any():
            raise InputError(f"edge_types are one category (0, 1, ...) for each of the {len(pairs)} edges")
        if len(pairs) and (pairs.min() < 0 or pairs.max() >= len(values)):
            raise InputError(f"edges name nodes {pairs.min()} to {pairs.max()}, the graph has 0 to {len(values) - 1}")
        if (pairs[:, 0] == pairs[:, 1]).any():
            raise InputError(
                f"node {pairs[pairs[:, 0] == pairs[:, 1]][0, 0]} has an edge to itself: leave such edges out"
            )
        pairs, first = np.unique(np.sort(pairs, 1), axis=0, return_index=True)
        if names is not None and not isinstance(names, Sequence):
            raise InputError(f"names are one text per node, got {type(names).__name__}")
        labels = tuple(map(str, range(len(values)))) if names is None else tuple(names)
        where = places if places is None or callable(places) else _array(places, "places", np.float64)
        if isinstance(where, np.ndarray) and not np.isfinite(where).all():
            raise InputError("a node has a place that is not a finite number")
        if len(labels) != len(values) or (isinstance(where, np.ndarray) and where.shape != (len(values), 2)):
            raise InputError(f"a graph of {len(values)} nodes needs as many names and places [nodes, 2]")
        return cls(values, pairs, kinds[first], labels, where, title, source)

    def subgraph(self, order: ArrayLike) -> Graph:
        """The graph of these nodes, in this order, with the edges between them: a subgraph, or another numbering."""
        kept = np.asarray(order, dtype=np.int64)
        number = np.full(len(self), -1)
        number[kept] = np.arange(len(kept))
        ends = number[self.edges]
        inside = (ends >= 0).all(1)
        return replace(
            self,
            nodes=self.nodes[kept],
            edges=ends[inside],
            edge_types=self.edge_types[inside],
            names=tuple(self.names[i] for i in kept),
            layout=partial(_places_of, self, kept),
            source=None,  # it has the old numbers of the nodes
        )

    def adjacency(self) -> NDArray[np.int64]:
        """[nodes, nodes]: 0 without an edge, else 1 + its type."""
        table = np.zeros((len(self), len(self)), np.int64)
        for a, b in (self.edges.T, self.edges.T[::-1]):
            table[a, b] = 1 + self.edge_types
        return table


def _places_of(graph: Graph, kept: NDArray[np.int64]) -> NDArray[np.float64] | None:
    return None if graph.places is None else graph.places[kept]


def _array(values: Any, name: str, dtype: Any = None) -> NDArray[Any]:
    """Numbers as an array. Raises with the reason."""
    try:
        return np.asarray(values, dtype=dtype)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise InputError(f"{name} are no array of numbers: {error}") from None


def _whole(values: Any, name: str) -> NDArray[np.int64]:
    """Whole numbers; floats are taken if they are whole."""
    array = _array(values, name)
    if not array.size:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iufb" or not (np.isfinite(array).all() and np.equal(array, np.floor(array)).all()):
        raise InputError(f"{name} are whole numbers, got {_shape(array)}")
    if np.abs(array).max() > 2**31:
        raise InputError(f"{name} are too large: {array.max()}")
    return array.astype(np.int64)


def _shape(values: ArrayLike) -> str:
    array = np.asarray(values)
    return f"an array {list(array.shape)} of {array.dtype}"


def batch(
    graphs: Sequence[Graph], device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """The model's inputs for padded graphs: nodes, adjacency, and a mask whose first column is the virtual node."""
    width = max(map(len, graphs))
    if width > MOST_NODES:
        raise InputError(f"a graph has {width:,} nodes; at most {MOST_NODES:,} can be explained, each with every other")
    features = graphs[0].nodes.shape[1]
    if any(graph.nodes.shape[1] != features for graph in graphs):
        raise InputError("the graphs have different numbers of features per node")
    whole = all(graph.nodes.dtype.kind in "iub" for graph in graphs)
    nodes = torch.zeros(
        len(graphs), width, features, dtype=torch.int64 if whole else dtype or torch.get_default_dtype()
    )
    adjacency = torch.zeros(len(graphs), width, width, dtype=torch.int64)
    mask = torch.zeros(len(graphs), width + 1, dtype=torch.int64)
    for number, graph in enumerate(graphs):
        size = len(graph)
        nodes[number, :size] = torch.as_tensor(graph.nodes)
        adjacency[number, :size, :size] = torch.as_tensor(graph.adjacency())
        mask[number, : size + 1] = 1
    inputs = {"nodes": nodes, "adjacency": adjacency, "attention_mask": mask}
    return {name: values.to(device) for name, values in inputs.items()}


def from_networkx(graph: networkx.Graph, *, features: str | Sequence[str] = "x", edge_type: str | None = None) -> Graph:
    """A graph from networkx: node attributes become features, an edge attribute the type.

    Types that are not numbers are numbered in sorted order. Nodes keep their names; `places` are the attribute "pos",
    where every node has one.
    """
    columns = [features] if isinstance(features, str) else list(features)
    names = list(graph.nodes)
    for column in columns:
        missing = [name for name in names if column not in graph.nodes[name]]
        if missing:
            raise InputError(f'node {missing[0]!r} has no attribute "{column}"; name the features with features=')
    rows = [np.concatenate([np.atleast_1d(graph.nodes[name][column]) for column in columns]) for name in names]
    number = {name: i for i, name in enumerate(names)}
    ends = [(a, b) for a, b in graph.edges if a != b]
    kinds = None
    if edge_type is not None:
        values = [graph.edges[pair].get(edge_type) for pair in ends]
        if any(value is None for value in values):
            raise InputError(f'an edge has no attribute "{edge_type}"')
        numbers = {value: i for i, value in enumerate(sorted(set(values)))}
        kinds = [value if isinstance(value, int) else numbers[value] for value in values]
    places = [graph.nodes[name].get("pos") for name in names]
    return Graph.of(
        np.stack(rows) if rows else [],
        [(number[a], number[b]) for a, b in ends],
        kinds,
        names=[str(name) for name in names],
        places=places if all(place is not None for place in places) else None,
        source=graph,
    )


def from_pyg(data: Data) -> Graph:
    """A graph from a PyTorch Geometric `Data`: x and, where given, edge_index, edge_attr (one number per edge), pos."""
    if getattr(data, "x", None) is None:
        raise InputError("the PyTorch Geometric data has no node features (x)")
    edges = getattr(data, "edge_index", None)
    attributes = getattr(data, "edge_attr", None)
    count = 0 if edges is None else edges.shape[1]
    if attributes is not None and (attributes.numel() != count or attributes.is_floating_point()):
        raise InputError("edge_attr is one whole number per edge, its type; set it to None to leave it out")
    pairs = np.empty((0, 2), np.int64) if edges is None else edges.cpu().numpy().T
    no_loop = pairs[:, 0] != pairs[:, 1]
    places = getattr(data, "pos", None)
    return Graph.of(
        data.x.detach().cpu().numpy(),
        pairs[no_loop],
        None if attributes is None else attributes.cpu().numpy().reshape(-1)[no_loop],
        places=None if places is None else places.cpu().numpy(),
        source=data,
    )
