"""`GraphExplanation`: the scores of a graph's nodes, as numbers and drawings."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relprop.errors import InputError
from relprop.explanation import PICTURES, check_path, unwritable, write_text
from relprop.graph.graph import Graph
from relprop.registry import METHODS
from relprop.render import drawing
from relprop.render.image import ImageMap
from relprop.types import Ledger

SCHEMA_VERSION = 1
TITLE = "Relevance of the graph"


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
        order = np.argsort(-np.abs(self.scores), kind="stable")[:count]
        return [(self.graph.names[i], float(self.scores[i])) for i in order]

    def image_map(self) -> ImageMap:
        """What the renderers draw: superpixels as a picture, molecules as a chemist would, others as node and link."""
        sure = f" ({self.probability:.2f})" if self.probability is not None else ""
        prediction = f"{self.prediction}{sure}" if self.prediction else ""
        picture, field = self._drawn()
        field = np.maximum(field, 0) if not self.signed else field
        return ImageMap(picture, field, self.method, self.target, self.value, prediction, self.graph.title, self.signed)

    def _drawn(self) -> tuple[Any, Any]:
        graph = self.graph
        if isinstance(graph.source, np.ndarray):
            return drawing.mosaic(graph.source, graph.nodes[:, 0], self.scores)
        places = drawing.spread(len(graph), graph.edges) if graph.places is None else graph.places
        places, size = drawing.placed(places)
        radius = drawing.reach(places, size)
        if isinstance(graph.source, str):
            from relprop.render.molecule import molecule

            picture, places = molecule(graph.source, size)
        else:
            picture = drawing.node_link(places, size, graph.edges, graph.names, radius)
        return picture, drawing.discs(places, size, self.scores, radius)

    def show(self) -> None:
        """Print the strongest nodes to the terminal."""
        show([self])

    def to_html(self) -> str:
        """A self-contained page."""
        return to_html([self])

    def _repr_html_(self) -> str:
        from relprop.render.image_html import html

        return html([self.image_map()], full_page=False, title=TITLE)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write .html, .json, .png, .svg or .pdf, by the ending of the name."""
        save([self], path)

    def to_json(self) -> str:
        """One line of JSON with its schema version; the graph as names and edges."""
        graph = {"names": self.graph.names, "edges": self.graph.edges.tolist(), "title": self.graph.title}
        numbers = {
            "scores": self.scores.tolist(),
            "edge_scores": None if self.edges is None else self.edges.tolist(),
            "ledger": None if self.ledger is None else asdict(self.ledger),
        }
        names = ("method", "target", "value", "rest", "prediction", "probability", "baseline")
        data = {"schema_version": SCHEMA_VERSION, "kind": "graph", **{name: getattr(self, name) for name in names}}
        try:
            return json.dumps({**data, **numbers, "graph": graph}, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise InputError("the explanation holds a number that is not finite, which JSON cannot tell") from None


def show(explanations: Sequence[GraphExplanation]) -> None:
    """Print the strongest nodes of each to the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table

    console = Console()
    for one in explanations:
        sure = f" ({one.probability:.2f})" if one.probability is not None else ""
        table = Table("node", Column("score", justify="right"), box=SIMPLE_HEAD, pad_edge=False)
        for name, score in one.top(10):
            table.add_row(name, f"{score:+.4f}")
        console.print(f"{one.method}: {one.target} = {one.value:.3f}, predicted {one.prediction}{sure}", markup=False)
        console.print(table)
        total = f"sum of scores {one.accounted:+.3f}, the virtual node's {one.rest:+.3f} among them"
        console.print(f"{total}; {len(one.graph)} nodes, {len(one.graph.edges)} edges", markup=False)


def to_html(explanations: Sequence[GraphExplanation]) -> str:
    """One self-contained page: a row for each graph and target, a column for each method."""
    from relprop.render.image_html import html

    return html([one.image_map() for one in explanations], title=TITLE)


def save(explanations: Sequence[GraphExplanation], path: str | os.PathLike[str]) -> None:
    """Write explanations to one file, by the ending of its name, as a grid of graphs and methods."""
    target = Path(path)
    check_path(target)
    try:
        _write(explanations, target)
    except OSError as error:
        raise unwritable(target, error) from error


def _write(explanations: Sequence[GraphExplanation], path: Path) -> None:
    kind = path.suffix.lower()
    if kind in PICTURES:
        from relprop.render import image_figure

        image_figure.save([one.image_map() for one in explanations], path)
    elif kind == ".html":
        write_text(path, to_html(explanations))
    else:
        lines = [one.to_json() for one in explanations]
        write_text(path, lines[0] if len(lines) == 1 else "[" + ",\n".join(lines) + "]")
