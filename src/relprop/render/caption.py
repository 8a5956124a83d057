"""The words around every drawing, and how numbers are written."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Caption:
    """The words around a row, safe to show."""

    method: str
    target: str  # "positive = 1.500"
    prediction: str  # "predicted positive (0.98)", or nothing
    total: str  # "sum of scores +1.234 of 1.500"
    note: str

    @property
    def subject(self) -> tuple[str, ...]:
        """What was explained: rows that share it can share one header."""
        return tuple(part for part in (self.target, self.prediction) if part)

    @property
    def account(self) -> tuple[str, ...]:
        return tuple(part for part in (self.total, self.note) if part)


def number(value: float) -> str:
    """A signed number of three decimals, in powers of ten where those would show nothing or a wall of digits."""
    if not math.isfinite(value):
        return f"{value}"
    plain = value == 0 or 1e-3 <= abs(value) < 1e6
    return f"{value + 0.0:+.3f}" if plain else f"{value:+.2e}"  # + 0.0 takes the sign off a negative zero
