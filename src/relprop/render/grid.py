"""Several maps as a grid: what was explained goes down, methods go across. Pictures and graphs share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from relprop.render.palette import SIGNED, Film
from relprop.render.visible import visible

RELATIVE = "relative to the strongest scores of each"


class Map(Protocol):
    """What a grid holds."""

    @property
    def method(self) -> str: ...
    @property
    def film(self) -> Film: ...


M = TypeVar("M", bound=Map)


@dataclass(frozen=True)
class GridRow(Generic[M]):
    """What several methods say of one subject, in the columns of the grid; None where a method is missing."""

    cells: tuple[M | None, ...]

    @property
    def first(self) -> M:
        """Any map of the row: all share the subject."""
        return next(cell for cell in self.cells if cell is not None)


@dataclass(frozen=True)
class MapGrid(Generic[M]):
    """Subjects down, methods across."""

    methods: tuple[str, ...]
    rows: tuple[GridRow[M], ...]


def films(maps: Sequence[Map]) -> list[Film]:
    """The films in use, which a legend must tell."""
    return sorted({one.film for one in maps}, key=lambda film: film is not SIGNED)


def map_grid(maps: Sequence[M], subject: Callable[[M], Hashable]) -> MapGrid[M]:
    """Maps of one subject in a row, maps of one method in a column, in the order they come."""
    if not maps:
        raise ValueError("no heat maps to draw; give at least one")
    rows: dict[Hashable, dict[tuple[str, int], M]] = {}
    columns: dict[tuple[str, int], None] = {}
    count: Counter[Hashable] = Counter()
    for one in maps:
        row = subject(one)
        column = (one.method, count[row, one.method])  # a method that comes again gets another column
        count[row, one.method] += 1
        rows.setdefault(row, {})[column] = one
        columns[column] = None
    methods = tuple(visible(method) for method, _ in columns)
    return MapGrid(methods, tuple(GridRow(tuple(cells.get(column) for column in columns)) for cells in rows.values()))
