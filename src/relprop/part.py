"""A part: one explained input of a model, with its units and one score per unit. Each kind of input has a class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from relprop.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Words:
    """What is said around a drawing of parts."""

    method: str
    target: str
    value: float
    prediction: str = ""  # for instance "positive (0.98)"
    signed: bool = True  # False for scores that only say how much, not for or against
    beside: tuple[tuple[str, float], ...] | None = None  # the value's shares beside the scores; None: no sum is claimed
    quantity: str = ""  # what the value is: "logit"
    box: tuple[float, float, float, float] | None = None  # on a picture, where the value is read


class Part(ABC):
    """Units of one input and their scores. A frozen value; `relprop.render.<kind>` draws it."""

    kind: ClassVar[str]
    rendering: ClassVar[str]  # the package whose modules terminal, html and figure draw what `drawing` returns
    whole_columns: ClassVar[tuple[str, ...]] = ()  # columns of `columns` that hold whole numbers or nothing
    naming: ClassVar[int] = 2  # the first columns of `columns` that name a unit

    drawn_by_step: ClassVar[bool] = False  # of a continuation: drawn once per token, not once with the sums

    scored: ClassVar[tuple[str, ...]] = ("scores",)  # the fields that hold scores: each step has its own

    name: str  # the model's own name for the input
    by_step: tuple[Any, ...] = ()  # of several steps, per step its own values of the fields `scored`

    if TYPE_CHECKING:  # fields or properties of the kinds: a property here would be taken for a field's default

        @property
        def units(self) -> Sequence[Any]:
            """What the scores belong to, in their order."""

    def __repr__(self) -> str:
        """Short: how many units there are, and what their scores come to."""
        return f"{type(self).__name__}({self.name}: {len(self.units)} units, sum of scores {self.total:+.2f})"

    # Several numbers of one example: `scores` are the sums of what each step has.

    def step_values(self, index: int) -> tuple[Any, ...]:
        """The values that the fields `scored` have at one step."""
        return tuple(self.by_step[index])

    def with_steps(self, steps: Sequence[tuple[Any, ...]]) -> Self:
        """The same part with these steps, and with their sums as its scores; without steps the scores stay."""
        sums = {name: _added(values) for name, *values in zip(self.scored, *steps, strict=True)} if steps else {}
        return replace(self, **sums, by_step=tuple(map(tuple, steps)))  # type: ignore[type-var]

    def at_step(self, index: int) -> Self:
        """The same part with the scores of one step alone."""
        own = dict(zip(self.scored, self.step_values(index), strict=True))
        return replace(self, **own, by_step=())  # type: ignore[type-var]

    def joined_steps(self, groups: Sequence[Sequence[int]]) -> Self:
        """Steps added together; those in no group are left out. The sums over all steps stay."""
        steps = [[self.step_values(i) for i in group] for group in groups]
        added = tuple(tuple(map(_added, zip(*each, strict=True))) for each in steps)
        return replace(self, by_step=added)  # type: ignore[type-var]

    def step_rows(self) -> NDArray[np.float64]:
        """The scores of every step [steps, units]."""
        import numpy as np

        rows = [self.at_step(i).unit_scores() for i in range(len(self.by_step))]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.units))

    def unit_scores(self) -> NDArray[np.float64]:
        """One number per unit, in their order."""
        import numpy as np

        return np.asarray(getattr(self, self.scored[0]), dtype=np.float64).ravel()

    @property
    @abstractmethod
    def total(self) -> float:
        """The sum of all scores, those of special units included."""

    @abstractmethod
    def top(self, count: int) -> Sequence[tuple[Any, float]]:
        """The units that weigh most, either way, with their scores."""

    def named_scores(self) -> Iterator[tuple[str, float]]:
        """Every unit's name and score, special units included, in their order."""
        columns = self.columns()
        scores: Sequence[Any] = columns["score"]
        for *cells, score in zip(*list(columns.values())[: self.naming], scores, strict=True):
            yield " ".join(str(cell) for cell in cells if cell is not None) or "(special)", float(score)

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


def joined_parts(parts: Sequence[Part]) -> Part:
    """One part from those of several steps, which differ in their scores alone."""
    first = parts[0]
    return first.with_steps([tuple(getattr(part, name) for name in first.scored) for part in parts])


def _added(values: Sequence[Any]) -> Any:
    """The sum of numbers or arrays; of tuples, number by number; None where there are none."""
    if values[0] is None:
        return None
    if isinstance(values[0], tuple):
        return tuple(map(sum, zip(*values, strict=True)))
    return sum(values[1:], start=values[0])


def only(parts: Sequence[Part], what: str) -> Part:
    """The only part; an error that names all where there are several."""
    if len(parts) != 1:
        names = ", ".join(f'"{part.name}"' for part in parts)
        raise InputError(f"the {what} are of {len(parts)} inputs that are never added: take .parts[...] of {names}")
    return parts[0]


def refuse_sum(parts: Sequence[Part]) -> NoReturn:
    """Raise where each part explains the whole value by itself, so that their sum says nothing."""
    names = ", ".join(f'"{part.name}"' for part in parts)
    raise InputError(f"each part explains the whole value by itself: take .parts[...].total of one of {names}")


def kinds_of(parts: Sequence[Part]) -> str:
    """The kinds of the parts, for people: "image and text"."""
    return " and ".join(sorted({part.kind for part in parts}))


def strongest_names(part: Part, signed: bool, count: int = 2) -> list[str]:
    """The units of a part that weigh most, with their scores; a plus sign is for scores that speak for something."""
    sign = "+" if signed else ""
    pairs = [(unit, score) for unit, score in part.top(count + 4) if not getattr(unit, "special", False)]
    return [f"{_unit_name(unit)} {score:{sign}.2f}" for unit, score in pairs[:count]]


def _unit_name(unit: object) -> str:
    if isinstance(unit, tuple):  # a pair
        return " - ".join(map(_unit_name, unit))
    if isinstance(unit, str):
        return unit
    text = getattr(unit, "text", None)
    return str(text) if text is not None else f"({getattr(unit, 'row', '?')}, {getattr(unit, 'column', '?')})"
