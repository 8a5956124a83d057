"""A continuation to draw: each generated token by all before it. Its layout, and how it looks in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from relprop.render.caption import number
from relprop.render.text.layout import SEPARATOR, Cell, cells
from relprop.render.text.terminal import terminal as rows_in_terminal
from relprop.render.visible import visible
from relprop.types import Heatmap, Unit

CAUSES = 4  # strongest causes that a line names


@dataclass(frozen=True)
class Step:
    """What is said of one generated token."""

    target: str
    value: float
    probability: float
    runner_up: str
    runner_up_probability: float | None


@dataclass(frozen=True)
class Weave:
    """What a renderer draws: units in reading order, and for each generated one its scores of all units."""

    units: tuple[Unit, ...]
    given: int  # how many units come before the generated ones
    steps: tuple[Step, ...]
    scores: tuple[tuple[float, ...], ...]
    method: str
    shares: bool = True  # the scores are shares of the value


def totals(weave: Weave) -> Heatmap:
    """The whole text, each unit with the sum of what the generated tokens owe to it."""
    sums = tuple(sum(column) for column in zip(*weave.scores, strict=True)) or (0.0,) * len(weave.units)
    value = sum(step.value for step in weave.steps)
    many = f"{len(weave.steps)} generated tokens" if len(weave.steps) != 1 else "the generated token"
    return Heatmap(weave.units, sums, weave.method, f"sum of {many}", value, shares=weave.shares)


def seen_by(weave: Weave, row: int) -> int:
    """How many units a generated one could owe something to: all before it, and a word also its own first pieces."""
    own = weave.given + row
    return own + 1 if weave.scores[row][own] else own


def causes(weave: Weave, row: int, laid: Sequence[Cell], count: int = CAUSES) -> list[tuple[Cell, float]]:
    """A generated token's strongest causes of either sign; `laid`: the cells of all units."""
    ordered = sorted(enumerate(weave.scores[row]), key=lambda pair: -abs(pair[1]))
    return [(laid[i], score) for i, score in ordered[:count] if score]


def laid_out(weave: Weave) -> list[Cell]:
    """One cell a unit, shaded by the sums."""
    return [cell for cell in cells(totals(weave)) if cell is not SEPARATOR]


def terminal(weave: Weave) -> RenderableType:
    """The text with the sums, then a line for each generated token."""
    laid = laid_out(weave)
    numbers = [Column(name, justify="right") for name in ("value", "probability")]
    table = Table("generated", *numbers, "runner-up", "strongest causes", header_style="bold", box=SIMPLE_HEAD)
    for row, step in enumerate(weave.steps):
        named = " · ".join(f"{cell.text} {number(score)}" for cell, score in causes(weave, row, laid))
        other = f"{visible(step.runner_up)} {step.runner_up_probability:.2f}" if step.runner_up else ""
        words = (visible(step.target), number(step.value), f"{step.probability:.2f}", other, named)
        table.add_row(*(Text(word, overflow="fold") for word in words))
    return Group(rows_in_terminal([totals(weave)]), table)
