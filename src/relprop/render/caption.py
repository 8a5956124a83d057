"""The words around every drawing, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from relprop.types import Shares


@dataclass(frozen=True)
class Caption:
    """The words around a row, safe to show."""

    method: str
    target: str  # "positive = 1.500"
    prediction: str  # "predicted positive (0.98)", or nothing
    total: str  # "sum of scores +1.234, biases +0.266 = 1.500"
    note: str
    sums: str = ""  # the same, where `total` tells the range of the scores

    @property
    def subject(self) -> tuple[str, ...]:
        """What was explained: rows that share it can share one header."""
        return tuple(part for part in (self.target, self.prediction) if part)

    @property
    def account(self) -> tuple[str, ...]:
        return tuple(part for part in (*self.scored, self.note) if part)

    @property
    def scored(self) -> tuple[str, ...]:
        """What the scores are and come to."""
        return tuple(part for part in (self.total, self.sums) if part)


@dataclass(frozen=True)
class ShownAccount:
    """Scores, shares beside them and the value as they are shown, all with as many decimals: the numbers add up."""

    scores: tuple[str, ...]
    beside: tuple[tuple[str, str], ...]
    total: str  # of the scores
    value: str

    @property
    def line(self) -> str:
        named = "".join(f", {name} {shown}" for name, shown in self.beside)
        return f"sum of scores {self.total}{named} = {self.value}"


def shown_account(scores: Sequence[float], beside: Shares, value: float) -> ShownAccount:
    """The numbers rounded to the value's decimals, so that they sum to it: the largest remainders are rounded up.

    What is missing from the value, beyond rounding, is a share of its own. Shares that are shown as 0 are left out.
    """
    if not all(map(math.isfinite, (*scores, value, *(share for _, share in beside)))):
        return ShownAccount(tuple(map(number, scores)), (), number(sum(scores)), shown_value(value))
    unit = 10.0 ** decimals(value)
    missing = value - sum(scores) - sum(share for _, share in beside)
    if abs(missing) * unit >= 0.5:
        beside = (*beside, ("not accounted", missing))
    numbers = [one * unit for one in (*scores, *(share for _, share in beside))]
    low = [math.floor(one) for one in numbers]
    order = sorted(range(len(numbers)), key=lambda i: low[i] - numbers[i])
    for i in order[: max(0, round(value * unit) - sum(low))]:
        low[i] += 1
    shares = zip(beside, low[len(scores) :], strict=True)
    return ShownAccount(
        tuple(_decimal(one, value) for one in low[: len(scores)]),
        tuple((name, _decimal(one, value)) for (name, _), one in shares if one),
        _decimal(sum(low[: len(scores)]), value),
        shown_value(value),
    )


class _Summed(Protocol):
    """A map whose scores may be shares of a value."""

    @property
    def total(self) -> float: ...
    @property
    def value(self) -> float: ...
    @property
    def beside(self) -> Shares | None: ...


def sums_line(one: _Summed) -> str:
    """What the scores of a map and the shares beside them come to; nothing where no sum is claimed."""
    return "" if one.beside is None else sum_of_scores(one.total, one.beside, one.value)


def sum_of_scores(total: float, beside: Shares | None, value: float) -> str:
    """The same for a drawing of its own kind; without a claim the sum alone."""
    return f"sum of scores {number(total)}" if beside is None else shown_account([total], beside, value).line


def decimals(value: float) -> int:
    """Three, more where the value would have fewer than three digits, and none beyond a million."""
    if value == 0 or not math.isfinite(value):
        return 3
    return 0 if abs(value) >= 1e6 else min(12, max(3, 2 - math.floor(math.log10(abs(value)))))


def _decimal(units: int, value: float) -> str:
    return f"{Decimal(units).scaleb(-decimals(value)) + 0:+f}"


def shown_value(value: float) -> str:
    """The value as captions and sums show it, without a plus sign."""
    if not math.isfinite(value):
        return f"{value}"
    return _decimal(round(value * 10.0 ** decimals(value)), value).removeprefix("+")


def shown_target(target: str, value: float, quantity: str) -> str:
    """What was explained and its value: "positive = 1.500 (logit)"."""
    return f"{target} = {shown_value(value)}{f' ({quantity})' if quantity else ''}"


def number(value: float) -> str:
    """A signed number of three decimals, in powers of ten where those would show nothing or a wall of digits."""
    if not math.isfinite(value):
        return f"{value}"
    plain = value == 0 or 1e-3 <= abs(value) < 1e6
    return f"{value + 0.0:+.3f}" if plain else f"{value:+.2e}"  # + 0.0 takes the sign off a negative zero


def amount(value: float) -> str:
    """The same without a plus sign, for scores that speak neither for nor against."""
    return number(value).removeprefix("+")
