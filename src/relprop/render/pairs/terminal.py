"""Pairs in the terminal: both texts with their sums, and the strongest pairs in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from relprop.render.caption import number
from relprop.render.pairs.layout import PairMap
from relprop.render.text.terminal import terminal as rows_in_terminal
from relprop.types import Heatmap

SHOWN = 10  # pairs


def terminal(maps: Sequence[PairMap]) -> RenderableType:
    return Group(*(one for each in maps for one in _drawn(each)))


def _drawn(one: PairMap) -> Iterator[RenderableType]:
    sums = (tuple(map(sum, one.scores)), tuple(map(sum, zip(*one.scores, strict=True))))
    told = (one.method, one.target, one.value, "", one.note, one.beside is not None)
    sides = zip((one.rows, one.columns), sums, strict=True)
    yield rows_in_terminal([Heatmap(units, own, *told, beside=one.beside or ()) for units, own in sides])
    first, second = one.labels()
    table = Table("first text", "second text", Column("score", justify="right"), header_style="bold", box=SIMPLE_HEAD)
    for row, column, score in one.top(SHOWN):
        table.add_row(*(Text(word, overflow="fold") for word in (first[row].text, second[column].text, number(score))))
    yield table
