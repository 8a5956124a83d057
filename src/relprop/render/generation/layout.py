"""A continuation to draw: each generated token by all units before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relprop.render.text.layout import SEPARATOR, Cell, cells
from relprop.render.visible import visible
from relprop.types import ExplainedStep, Heatmap, Shares, Unit

CAUSES = 4  # strongest causes that a line names


@dataclass(frozen=True)
class GenerationMap:
    """What a renderer draws: units in reading order, and for each generated one its scores of all units."""

    units: tuple[Unit, ...]
    given: int  # how many units come before the generated ones
    steps: tuple[ExplainedStep, ...]
    scores: tuple[tuple[float, ...], ...]
    method: str
    shares: bool = True  # the scores are shares of the value
    signed: bool = True  # False for scores that only say how much, not for or against
    line_starts: frozenset[int] = frozenset()  # units before which the text begins a new line
    beside: Shares = ()  # what all values are made of beside the scores
    quantity: str = ""  # what a value is: "logit"
    model: str = ""  # its name, where known
    target: str = ""  # what the sum of all values is, where it is not that of as many tokens as there are steps
    merged: bool = False  # steps are words or sentences, not tokens


def totals(one: GenerationMap) -> Heatmap:
    """The whole text, each unit with the sum of what the generated tokens owe to it."""
    sums = tuple(sum(column) for column in zip(*one.scores, strict=True)) or (0.0,) * len(one.units)
    value = sum(step.value for step in one.steps)
    target = one.target or continuation_target(len(one.steps))
    own = {"shares": one.shares, "signed": one.signed, "line_starts": one.line_starts}
    own |= {"beside": one.beside, "quantity": one.quantity}
    return Heatmap(one.units, sums, one.method, target, value, **own)  # type: ignore[arg-type]


def lead(one: GenerationMap) -> str:
    """The sentence that a page or a terminal opens with."""
    count = len(one.steps)
    who = f"the model {visible(one.model)}" if one.model else "the model"
    sides = "red speaks for it, blue against it" if one.signed else "the stronger, the more it weighs"
    if one.merged:
        return f"What {who} wrote is explained piece by piece, each by what stands before it: {sides}."
    written = f"The {count} tokens that {who} wrote are" if count != 1 else f"The token that {who} wrote is"
    return f"{written} explained, each by the tokens before it: {sides}."


def continuation_target(count: int) -> str:
    """What the value of a continuation is."""
    return f"sum of {count} generated tokens" if count != 1 else "sum of the generated token"


def count_before(one: GenerationMap, row: int) -> int:
    """How many units a generated one could owe something to: all before it, and a word also its own first pieces."""
    own = one.given + row
    return own + 1 if one.scores[row][own] else own


def causes(one: GenerationMap, row: int, laid: Sequence[Cell], count: int = CAUSES) -> list[tuple[Cell, float]]:
    """A generated token's strongest causes of either sign; `laid`: the cells of all units."""
    ordered = sorted(enumerate(one.scores[row]), key=lambda pair: -abs(pair[1]))
    return [(laid[i], score) for i, score in ordered[:count] if score]


def laid_out(one: GenerationMap) -> list[Cell]:
    """One cell per unit, shaded by the sums."""
    return [cell for cell in cells(totals(one)) if cell is not SEPARATOR]
