"""What every renderer of series draws: one line per channel, on the scores of its steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relprop.part import Words
from relprop.render.caption import Caption, number, shown_target, sum_of_scores
from relprop.render.visible import visible

Numbers = NDArray[np.float64]
MOST = 24  # channels that are drawn: those with the strongest scores


@dataclass(frozen=True, eq=False)
class SeriesLine:
    """One channel of a series, and its scores."""

    name: str
    values: Numbers  # [steps]; not a number where nothing was observed
    shares: Numbers  # [steps]: each window's score, spread over what it reads

    @property
    def scaled(self) -> Numbers:
        """[steps] from 0 to 1: the values between their least and their greatest."""
        known = self.values[np.isfinite(self.values)]
        if not len(known) or known.max() == known.min():
            return np.where(np.isfinite(self.values), 0.5, np.nan)
        return np.asarray((self.values - known.min()) / (known.max() - known.min()))


@dataclass(frozen=True, eq=False)
class SeriesMap:
    """The channels of all series of one explanation, and the words around them."""

    lines: tuple[SeriesLine, ...]
    sums: tuple[tuple[str, float], ...]  # the sum of the scores of each part, by the model's own name
    strongest: str  # the window that weighs most, in words
    words: Words
    note: str = ""

    @property
    def method(self) -> str:
        return self.words.method

    @property
    def bound(self) -> float:
        """The score of full colour."""
        return max((float(np.abs(line.shares).max()) for line in self.lines), default=0.0) or 1.0


def caption(one: SeriesMap) -> Caption:
    """The words around a map, safe to show."""
    words, total = one.words, sum(value for _, value in one.sums)
    summed = sum_of_scores(total, words.beside, words.value)
    each = "; ".join(f"{visible(name)} {number(value)}" for name, value in one.sums) if len(one.sums) > 1 else ""
    return Caption(
        method=visible(words.method),
        target=shown_target(visible(words.target), words.value, words.quantity),
        prediction=f"predicted {visible(words.prediction)}" if words.prediction else "",
        total=f"strongest {visible(one.strongest)} · {summed}{f' ({each})' if each else ''}",
        note=visible(one.note) if one.note else "",
    )


def drawn_lines(one: SeriesMap) -> list[SeriesLine]:
    """The channels with the strongest scores, in their own order."""
    order = np.argsort([-np.abs(line.shares).max() for line in one.lines], kind="stable")[:MOST]
    return [one.lines[i] for i in sorted(order.tolist())]


def left_out(one: SeriesMap) -> str:
    """How many channels are not drawn."""
    return f"{len(one.lines) - MOST} channels with weaker scores are not drawn" if len(one.lines) > MOST else ""


def described(one: SeriesMap) -> str:
    """The map in words, for those who cannot see it."""
    words = caption(one)
    return f"{words.method}, {words.target}; {words.total}"
