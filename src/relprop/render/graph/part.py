"""`GraphPart`: the nodes of a graph, perhaps its edges, with their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from relprop.errors import InputError
from relprop.graph.graph import Graph
from relprop.part import Part, Words
from relprop.render.graph.drawing import GraphMap

Scores = NDArray[np.float64]
_OF_GRAPH = ("nodes", "edges", "edge_types", "names", "places", "title", "source")


@dataclass(frozen=True, eq=False, repr=False)
class GraphPart(Part):
    """The nodes of one graph and one score per node."""

    kind: ClassVar[str] = "graph"
    rendering: ClassVar[str] = "relprop.render.graph"
    whole_columns: ClassVar[tuple[str, ...]] = ("node",)
    scored: ClassVar[tuple[str, ...]] = ("scores", "rest", "edges")

    name: str
    graph: Graph
    scores: Scores  # [nodes]
    rest: float = 0.0  # the virtual node's score
    edges: Scores | None = None  # [edges], where they were asked for
    by_step: tuple[tuple[Scores, float, Scores | None], ...] = ()  # per step its own `scores`, `rest` and `edges`

    @property
    def units(self) -> tuple[str, ...]:
        """The nodes' names."""
        return self.graph.names

    @property
    def total(self) -> float:
        return float(self.scores.sum()) + self.rest

    def top(self, count: int) -> list[tuple[str, float]]:
        return [(self.graph.names[i], float(self.scores[i])) for i in _strongest(self.scores, count)]

    def top_edges(self, count: int = 5) -> list[tuple[tuple[str, str], float]]:
        """The edges that weigh most, either way, by the names of their ends; none where no edge was scored."""
        if self.edges is None:
            return []
        names = self.graph.names
        ends = [(names[a], names[b]) for a, b in self.graph.edges]
        return [(ends[i], float(self.edges[i])) for i in _strongest(self.edges, count)]

    def without_special(self) -> Self:
        """Without the score of the virtual node."""
        return replace(self, rest=0.0, by_step=tuple((scores, 0.0, edges) for scores, _, edges in self.by_step))

    def columns(self) -> dict[str, Sequence[object]]:
        """One row per node, with its name and score; the virtual node is one row, special."""
        rows: list[tuple[object, ...]] = [
            (number, name, False, score)
            for number, (name, score) in enumerate(zip(self.graph.names, self.scores.tolist(), strict=True))
        ]
        if self.rest:
            rows.append((None, None, True, self.rest))
        columns = dict(zip(("node", "name", "special", "score"), zip(*rows, strict=True), strict=True))
        return {**columns, "graph": [self.graph.title] * len(rows)}

    def to_dict(self) -> dict[str, object]:
        graph = {name: _listed(getattr(self.graph, name)) for name in _OF_GRAPH}
        scores = {"scores": self.scores.tolist(), "edges": _listed(self.edges)}
        steps = {"by_step": [list(map(_listed, step)) for step in self.by_step]} if self.by_step else {}
        return {"kind": self.kind, "name": self.name, "rest": self.rest, **scores, "graph": graph, **steps}

    @classmethod
    def from_dict(cls, data: dict[str, Any], attached: Any = None) -> Self:
        """What the graph was made from comes back if that can be told."""
        edges = _array(data["edges"])
        source = data["graph"]["source"]
        known = np.array(source) if isinstance(source, list) else source
        try:
            graph = Graph.of(**{**data["graph"], "source": known})
        except InputError as error:  # here the file is damaged: nobody gave this graph
            raise ValueError(error) from None
        scores = np.array(data["scores"], dtype=np.float64)
        if scores.shape != (len(graph),) or (edges is not None and edges.shape != (len(graph.edges),)):
            raise ValueError(f"{scores.size} scores for {len(graph)} nodes, or not one for each edge")
        steps = tuple(
            (np.array(own, dtype=np.float64), rest, _array(more)) for own, rest, more in data.get("by_step", ())
        )
        if any(own.shape != scores.shape for own, *_ in steps):
            raise ValueError("the scores of a step are of another shape")
        return cls(**{**data, "graph": graph, "scores": scores, "edges": edges, "by_step": steps})

    @classmethod
    def drawing(cls, parts: Sequence[Self], words: Words) -> GraphMap:
        """Superpixels as a picture, molecules as a chemist would draw them, others as nodes and links."""
        if len(parts) != 1:
            raise InputError(f"an explanation of {len(parts)} graphs is not drawn: draw its parts one by one")
        (part,) = parts
        told = (words.method, words.target, words.value, words.prediction)
        return GraphMap(
            part.graph, part.scores, *told, part.rest, words.signed, part.edges, words.beside, words.quantity
        )


def _listed(value: object) -> object:
    """What JSON can hold of it: arrays, numbers and words, not a graph of another library."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, str | tuple | int | float) else None


def _array(numbers: list[float] | None) -> Scores | None:
    return None if numbers is None else np.array(numbers, dtype=np.float64)


def _strongest(scores: Scores, count: int) -> NDArray[np.int64]:
    return np.argsort(-np.abs(scores), kind="stable")[:count]
