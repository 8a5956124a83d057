"""A part: one explained input of a model, with its units and one score per unit. Each kind of input has a class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from relprop.errors import InputError


@dataclass(frozen=True)
class Words:
    """What is said around a drawing of parts."""

    method: str
    target: str
    value: float
    prediction: str = ""  # for instance "positive (0.98)"
    signed: bool = True  # False for scores that only say how much, not for or against
    shares: bool = True  # the scores are shares of the value, so that their sum says how much they account for


class Part(ABC):
    """Units of one input and their scores. A frozen value; `relprop.render.<kind>` draws it."""

    kind: ClassVar[str]
    rendering: ClassVar[str]  # the package whose modules terminal, html and figure draw what `drawing` returns
    whole_columns: ClassVar[tuple[str, ...]] = ()  # columns of `columns` that hold whole numbers or nothing

    name: str  # the model's own name for the input

    if TYPE_CHECKING:  # fields or properties of the kinds: a property here would be taken for a field's default

        @property
        def units(self) -> Sequence[Any]:
            """What the scores belong to, in their order."""

    def __repr__(self) -> str:
        """Short: how many units there are, and what their scores come to."""
        return f"{type(self).__name__}({self.name}: {len(self.units)} units, sum of scores {self.total:+.2f})"

    @property
    @abstractmethod
    def total(self) -> float:
        """The sum of all scores, those of special units included."""

    @abstractmethod
    def top(self, count: int) -> Sequence[tuple[Any, float]]:
        """The units that weigh most, either way, with their scores."""

    @abstractmethod
    def without_special(self) -> Self:
        """The same part without the scores of special units."""

    @abstractmethod
    def columns(self) -> dict[str, Sequence[object]]:
        """One row per unit, by column: for data frames."""

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """What JSON can hold of it; `from_dict` loads it back."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: dict[str, Any], attached: Any = None) -> Self:
        """Load what `to_dict` made. `attached`: what JSON does not hold, such as a picture."""

    @classmethod
    @abstractmethod
    def drawing(cls, parts: Sequence[Self], words: Words) -> Any:
        """What the renderers of this kind draw of one explanation."""


def only(parts: Sequence[Part], what: str) -> Part:
    """The only part; an error that names all where there are several."""
    if len(parts) != 1:
        names = ", ".join(f'"{part.name}"' for part in parts)
        raise InputError(f"the {what} are of {len(parts)} inputs that are never added: take .parts[...] of {names}")
    return parts[0]
