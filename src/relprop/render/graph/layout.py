"""Maps of graphs -> a grid, and the words and colours around it: what page and figure share."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from relprop.render.caption import Caption, number, shown_target, sums_line
from relprop.render.graph.drawing import OPACITY, GraphMap
from relprop.render.grid import RELATIVE, MapGrid, map_grid
from relprop.render.image.overlay import Pixels, painted
from relprop.render.palette import SIGNED, Film
from relprop.render.visible import visible

LONGEST_TITLE = 60
NAMED = 3  # strongest nodes a side that a drawing's label names to those who cannot see the colours
NOTE = f"{RELATIVE} drawing"


def grid(maps: Sequence[GraphMap]) -> MapGrid[GraphMap]:
    """Maps of one graph and target in a row, maps of one method in a column, in the order they come."""
    return map_grid(maps, _subject)


def _subject(one: GraphMap) -> Hashable:
    graph = one.graph
    return graph.title, graph.names, graph.nodes.tobytes(), graph.edges.tobytes(), caption(one).subject


def covered(table: MapGrid[GraphMap]) -> bool:
    """Whether colours hide a picture, so that it is shown by itself too."""
    return any(row.first.is_mosaic for row in table.rows)


def caption(one: GraphMap) -> Caption:
    """The words around a drawing, safe to show; the note is the graph's title."""
    low, high = (number(float(end)) for end in (one.scores.min(), one.scores.max()))
    rest = f", virtual node {number(one.rest)}" if one.rest else ""
    title = visible(one.graph.title) if one.graph.title else ""
    return Caption(
        method=visible(one.method),
        target=shown_target(visible(one.target), one.value, one.quantity),
        prediction=f"predicted {visible(one.prediction)}" if one.prediction else "",
        total=f"scores {low} to {high}{rest}",
        note=title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…",
        sums=sums_line(one),
    )


def described(one: GraphMap) -> str:
    """The drawing in words, for those who cannot see it: its strongest nodes."""
    words = caption(one)
    order = np.argsort(-np.abs(one.scores), kind="stable")
    sides = {"supported most by": one.scores > 0, "opposed most by": one.scores < 0}
    if not one.signed:
        sides = {"strongest": one.scores > 0}
    parts = [f"{words.method}, {words.target}"]
    for side, held in sides.items():
        named = [f"{visible(one.graph.names[i])} ({number(float(one.scores[i]))})" for i in order if held[i]][:NAMED]
        parts += [f"{side} {', '.join(named)}"] if named else []
    return "; ".join(parts if len(parts) > 1 else [*parts, "all scores are 0"])


def strip(film: Film, width: int) -> Pixels:
    """A legend's pixels, from the least to the most, on white."""
    shaded = np.linspace(-1 if film is SIGNED else 0, 1, width)[None]
    return painted(np.full((1, width), 255, np.uint8), shaded, film, OPACITY)
