"""What every renderer of features draws: columns with their values and scores, the strongest first."""

from __future__ import annotations

from dataclasses import dataclass

from relprop.part import Words
from relprop.render.caption import Caption, number, shown_target, sum_of_scores
from relprop.render.visible import visible

MOST = 40  # columns that are drawn


@dataclass(frozen=True)
class FeatureMap:
    """The columns of one row of a table, and the words around them."""

    columns: tuple[str, ...]
    values: tuple[str, ...]
    scores: tuple[float, ...]
    rest: float  # scores of what is no column
    words: Words

    @property
    def method(self) -> str:
        return self.words.method


@dataclass(frozen=True)
class FeatureBar:
    """One column of the table, safe to show."""

    column: str
    value: str
    score: float
    shade: float  # the score over the strongest


def bars(one: FeatureMap) -> list[FeatureBar]:
    """The columns by the strength of their scores."""
    bound = max(map(abs, one.scores), default=0.0) or 1.0
    rows = sorted(zip(one.columns, one.values, one.scores, strict=True), key=lambda row: -abs(row[2]))
    return [FeatureBar(visible(name), visible(value), score, score / bound) for name, value, score in rows[:MOST]]


def caption(one: FeatureMap) -> Caption:
    """The words around a table, safe to show."""
    words, total = one.words, sum(one.scores) + one.rest
    summed = sum_of_scores(total, words.beside, words.value)
    rest = f", of the scores {number(one.rest)} in class tokens" if one.rest else ""
    left_out = f"{len(one.columns) - MOST} columns with weaker scores are not shown" if len(one.columns) > MOST else ""
    return Caption(
        method=visible(words.method),
        target=shown_target(visible(words.target), words.value, words.quantity),
        prediction=f"predicted {visible(words.prediction)}" if words.prediction else "",
        total=f"{summed}{rest}",
        note=left_out,
    )
