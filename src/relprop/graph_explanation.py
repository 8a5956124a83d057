"""`GraphExplanation`: the scores of a graph's nodes, as numbers and drawings."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relprop.errors import InputError
from relprop.explanation import pandas_frame
from relprop.graph.graph import Graph
from relprop.image_explanation import write
from relprop.registry import METHODS
from relprop.render.caption import number
from relprop.render.graph.drawing import GraphMap
from relprop.render.graph.layout import caption
from relprop.render.visible import visible
from relprop.types import Ledger

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA_VERSION = 1


@dataclass(frozen=True, eq=False)
class GraphExplanation:
    """The scores of one graph's nodes for one target."""

    graph: Graph
    scores: NDArray[np.float64]  # [nodes]
    method: str
    target: str
    value: float  # the explained number: the target's logit, or a difference of logits
    rest: float = 0.0  # the virtual node's score
    prediction: str = ""
    probability: float | None = None
    ledger: Ledger | None = None
    baseline: float | None = None
    edges: NDArray[np.float64] | None = None  # [edges], where they were asked for

    @property
    def accounted(self) -> float:
        """The sum of the scores: how much of the value they account for."""
        return float(self.scores.sum()) + self.rest

    @property
    def signed(self) -> bool:
        return METHODS[self.method].signed

    def without_special(self) -> GraphExplanation:
        """The same explanation without the score of the virtual node."""
        return replace(self, rest=0.0)

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """The nodes that weigh most, either way."""
        return [(self.graph.names[i], float(self.scores[i])) for i in _strongest(self.scores, count)]

    def top_edges(self, count: int = 5) -> list[tuple[tuple[str, str], float]]:
        """The edges that weigh most, either way, by the names of their ends; none where no edge was scored."""
        if self.edges is None:
            return []
        names = self.graph.names
        ends = [(names[a], names[b]) for a, b in self.graph.edges]
        return [(ends[i], float(self.edges[i])) for i in _strongest(self.edges, count)]

    def graph_map(self) -> GraphMap:
        """What the renderers draw: superpixels as a picture, molecules as a chemist would, others as node and link."""
        sure = f" ({self.probability:.2f})" if self.probability is not None else ""
        prediction = f"{self.prediction}{sure}" if self.prediction else ""
        words = (self.method, self.target, self.value, prediction)
        return GraphMap(self.graph, self.scores, *words, self.rest, self.signed, self.edges)

    def show(self) -> None:
        """Print the strongest nodes to the terminal."""
        show([self])

    def to_html(self) -> str:
        """A self-contained page."""
        return to_html([self])

    def _repr_html_(self) -> str:
        from relprop.render.graph.html import html

        return html([self.graph_map()], full_page=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write .html, .json, .png, .svg or .pdf, by the ending of the name."""
        save([self], path)

    def to_frame(self) -> Any:
        """A pandas frame: a row a node, with its name and score; the virtual node is one row, special."""
        nodes: list[tuple[Any, ...]] = [
            (number, name, False, score)
            for number, (name, score) in enumerate(zip(self.graph.names, self.scores.tolist(), strict=True))
        ]
        if self.rest:
            nodes.append((None, None, True, self.rest))
        columns = dict(zip(("node", "name", "special", "score"), zip(*nodes, strict=True), strict=True))
        same = {"method": self.method, "target": self.target, "value": self.value, "graph": self.graph.title}
        return pandas_frame(columns, ("node",), **same)

    def to_json(self) -> str:
        """One line of JSON with its schema version; `from_json` loads it back."""
        data = {"schema_version": SCHEMA_VERSION, "kind": "graph", **{name: getattr(self, name) for name in _PLAIN}}
        numbers = {
            "scores": self.scores.tolist(),
            "edge_scores": _listed(self.edges),
            "ledger": None if self.ledger is None else asdict(self.ledger),
        }
        graph = {name: _listed(getattr(self.graph, name)) for name in _OF_GRAPH}
        try:
            return json.dumps({**data, **numbers, "graph": graph}, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise InputError("the explanation holds a number that is not finite, which JSON cannot tell") from None

    @classmethod
    def from_json(cls, text: str) -> GraphExplanation:
        """Load what `to_json` wrote, to be drawn again. What the graph was made from comes back if that can be told."""
        try:
            data = json.loads(text)
            if (data["schema_version"], data["kind"]) != (SCHEMA_VERSION, "graph"):
                raise ValueError(f"it is a {data['kind']} of version {data['schema_version']}")
            return cls(_graph(data["graph"]), **_numbers(data), **{name: data[name] for name in _PLAIN})
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise InputError(f"this is no graph's explanation saved by relprop ({error!r})") from None


_PLAIN = ("method", "target", "value", "rest", "prediction", "probability", "baseline")
_OF_GRAPH = ("nodes", "edges", "edge_types", "names", "places", "title", "source")


def _listed(value: Any) -> Any:
    """What JSON can hold of it: arrays and words, not a graph of another library."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, str | tuple) else None


def _graph(data: dict[str, Any]) -> Graph:
    source = data["source"]
    return Graph.of(**{**data, "source": np.array(source) if isinstance(source, list) else source})


def _numbers(data: dict[str, Any]) -> dict[str, Any]:
    edges = data["edge_scores"]
    return {
        "scores": np.array(data["scores"], dtype=np.float64),
        "edges": None if edges is None else np.array(edges, dtype=np.float64),
        "ledger": Ledger.revived(data["ledger"]),
    }


def _strongest(scores: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    return np.argsort(-np.abs(scores), kind="stable")[:count]


def show(explanations: Sequence[GraphExplanation]) -> None:
    """Print the strongest nodes of each to the terminal, and the strongest edges where they have scores."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for one in explanations:
        words = caption(one.graph_map())
        console.print(Text(" · ".join(filter(None, (f"{words.method}: {words.target}", words.prediction, words.note)))))
        console.print(_table("node", [(visible(name), score) for name, score in one.top(10)]))
        if one.edges is not None:
            ends = [(f"{visible(a)} – {visible(b)}", score) for (a, b), score in one.top_edges()]
            console.print(_table("edge", ends))
        size = f"{len(one.graph)} nodes, {len(one.graph.edges)} edges"
        console.print(Text(f"sum of scores {number(one.accounted)}, of the virtual node {number(one.rest)}; {size}\n"))


def _table(what: str, rows: Sequence[tuple[str, float]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table
    from rich.text import Text

    table = Table(what, Column("score", justify="right"), box=SIMPLE_HEAD, pad_edge=False)
    for name, score in rows:
        table.add_row(Text(name), number(score))  # a Text: markup in a name is no markup
    return table


def to_html(explanations: Sequence[GraphExplanation]) -> str:
    """One self-contained page: a row for each graph and target, a column for each method."""
    from relprop.render.graph.html import html

    return html([one.graph_map() for one in explanations])


def save(explanations: Sequence[GraphExplanation], path: str | os.PathLike[str]) -> None:
    """Write explanations to one file, by the ending of its name, as a grid of graphs and methods."""

    def picture(to: Path) -> None:
        from relprop.render.graph import figure

        figure.save([one.graph_map() for one in explanations], to)

    write(explanations, path, picture, lambda: to_html(explanations))
