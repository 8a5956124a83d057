"""Features in the terminal: a table with a bar per column."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from relprop.render.caption import number
from relprop.render.features.layout import FeatureBar, FeatureMap, bars, caption

HALF = 14  # characters of a bar to each side


def terminal(maps: Sequence[FeatureMap]) -> RenderableType:
    """Header, table and what the scores account for, one map under the other."""
    return Group(*(piece for one in maps for piece in _table(one)))


def _table(one: FeatureMap) -> list[RenderableType]:
    words = caption(one)
    numbers = [Column(name, justify="right") for name in ("value", "score")]
    table = Table("column", *numbers, "opposes | supports", header_style="bold", box=SIMPLE_HEAD)
    for bar in bars(one):
        table.add_row(Text(bar.column, overflow="fold"), Text(bar.value), number(bar.score), _bar(bar))
    head = Text.assemble((words.method, "bold"), *(f"  {part}" for part in words.subject), overflow="fold")
    return [head, table, Text(" · ".join(words.account), style="dim", overflow="fold"), Text()]


def _bar(bar: FeatureBar) -> Text:
    """To the right what supports, to the left what opposes."""
    length = round(abs(bar.shade) * HALF)
    if bar.score < 0:
        return Text.assemble(" " * (HALF - length), ("█" * length, "blue"), "|")
    return Text.assemble(" " * HALF, "|", ("█" * length, "red"))
