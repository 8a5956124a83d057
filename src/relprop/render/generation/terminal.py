"""Continuations in the terminal: the text with the sums of its scores, and each generated token's strongest causes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from relprop.render.caption import number
from relprop.render.generation.layout import GenerationMap, causes, laid_out, lead, totals
from relprop.render.text.terminal import terminal as rows_in_terminal
from relprop.render.visible import visible


def terminal(maps: Sequence[GenerationMap]) -> RenderableType:
    """The text with the sums, then one line per generated token."""
    return Group(*(_generation(one) for one in maps))


def _generation(one: GenerationMap) -> RenderableType:
    laid = laid_out(one)
    numbers = [Column(name, justify="right") for name in ("value", "probability")]
    table = Table("generated", *numbers, "runner-up", "strongest causes", header_style="bold", box=SIMPLE_HEAD)
    for row, step in enumerate(one.steps):
        named = " · ".join(f"{cell.text} {number(score)}" for cell, score in causes(one, row, laid))
        other = f"{visible(step.runner_up)} {step.runner_up_probability:.2f}" if step.runner_up else ""
        words = (visible(step.target), number(step.value), f"{step.probability:.2f}", other, named)
        table.add_row(*(Text(word, overflow="fold") for word in words))
    return Group(Text(lead(one)), Text(), rows_in_terminal([totals(one)]), table)
