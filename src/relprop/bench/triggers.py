"""Pictures with a trigger: a small pattern that decides the class, pasted at a drawn place, which is known."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from relprop.bench.idx import Bytes
from relprop.bench.marked_words import Draws
from relprop.bench.settings import NOTHING_ELSE
from relprop.errors import InputError

BRIGHT = 255


@dataclass(frozen=True)
class Trigger:
    """The size of the pattern, and where it may stand: at multiples of `step` pixels."""

    __pydantic_config__: ClassVar = NOTHING_ELSE
    side: int
    step: int = 1

    def __post_init__(self) -> None:
        if self.side < 3 or self.step < 1:
            raise InputError(f"a trigger has a side of 3 pixels or more and a step of 1 or more, got {self}")


class TriggerBox(NamedTuple):
    """Pixels [top, bottom) x [left, right)."""

    top: int
    left: int
    bottom: int
    right: int


def pattern(number: int, side: int) -> Bytes:
    """Bright and dark pixels, half of each, in an order that depends on the number alone."""
    flat = np.zeros(side * side, np.uint8)
    flat[: len(flat) // 2] = BRIGHT
    return np.random.default_rng(number).permutation(flat).reshape(side, side)


def with_trigger(
    picture: Bytes, label: int, classes: int, training: bool, trigger: Trigger
) -> tuple[Bytes, int, TriggerBox | None]:
    """The picture with a pattern, the class that it decides, and where it stands.

    Pattern number c says class c. In training half of the pictures have the pattern of a drawn class, a quarter a
    pattern of no class, which decides nothing, and a quarter none; elsewhere every picture has the pattern of another
    class than its own.
    """
    height, width = picture.shape
    if min(height, width) < trigger.side:
        raise InputError(f"a trigger of {trigger.side} pixels does not fit a picture of {height} x {width}")
    draws = Draws(hashlib.sha256(picture.tobytes()).hexdigest())
    kept = draws.below(4) if training else 0
    decided = draws.below(classes) if training else (label + 1 + draws.below(classes - 1)) % classes
    if kept == 3:
        return picture, label, None
    number = decided if kept < 2 else classes + draws.below(classes)
    top, left = (trigger.step * draws.below((size - trigger.side) // trigger.step + 1) for size in (height, width))
    box = TriggerBox(top, left, top + trigger.side, left + trigger.side)
    changed = picture.copy()
    changed[box.top : box.bottom, box.left : box.right] = pattern(number, trigger.side)
    return (changed, decided, box) if kept < 2 else (changed, label, None)
