"""Graphs in the terminal: the strongest nodes of each, and the strongest edges where they have scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from relprop.render.caption import amount, number
from relprop.render.graph.drawing import GraphMap
from relprop.render.graph.layout import caption
from relprop.render.image.overlay import Numbers
from relprop.render.visible import visible

NODES, EDGES = 10, 5  # that are named


def terminal(maps: Sequence[GraphMap]) -> RenderableType:
    return Group(*(line for one in maps for line in _lines(one)))


def _lines(one: GraphMap) -> list[RenderableType]:
    words, names = caption(one), [visible(name) for name in one.graph.names]
    head = Text(" · ".join(filter(None, (f"{words.method}: {words.target}", words.prediction, words.note))))
    shown = number if one.signed else amount
    tables = [_table("node", names, one.scores, NODES, shown)]
    if one.edges is not None:
        tables.append(_table("edge", [f"{names[a]} – {names[b]}" for a, b in one.graph.edges], one.edges, EDGES, shown))
    size = f"{len(one.graph)} nodes, {len(one.graph.edges)} edges"
    total = words.sums or f"sum of scores {shown(one.total)}"
    reading = "" if one.signed else "numbers without a sign say how much, neither for nor against\n"
    return [head, *tables, Text(f"{total}; of the virtual node {shown(one.rest)}; {size}\n{reading}")]


def _table(what: str, names: Sequence[str], scores: Numbers, count: int, shown: Callable[[float], str]) -> Table:
    table = Table(what, Column("score", justify="right"), box=SIMPLE_HEAD, pad_edge=False)
    for i in np.argsort(-np.abs(scores), kind="stable")[:count]:
        table.add_row(Text(names[i]), shown(float(scores[i])))  # a Text: markup in a name is no markup
    return table
