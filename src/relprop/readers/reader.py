"""The protocol of a reader, and lists of examples read by one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from torch import Tensor

from relprop.deadline import check_deadline
from relprop.errors import InputError
from relprop.part import Part
from relprop.types import Attribution

if TYPE_CHECKING:
    from relprop.metrics import Nodes, Tokens

Row = TypeVar("Row")  # one example as the model reads it


class Reader(Protocol[Row]):
    """A model's way to read one modality, or several that belong together."""

    @property
    def name(self) -> str:
        """What it reads, as messages say it: "texts"."""

    @property
    def explains(self) -> tuple[str, ...]:
        """The model's arguments that get scores; a product of readers tells by them whose scores are whose."""

    def read(self, given: object, max_length: int | None = None) -> Row:
        """One example. Raises InputError for what cannot be read."""

    def batches(self, rows: Sequence[Row], size: int) -> list[list[int]]:
        """Indices of examples that go through the model together, at most `size` of them."""

    def inputs(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """A batch: the model's keyword arguments."""

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[Row], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        """A method's options with this modality's defaults. `known`: the options that the method has."""

    def parts(self, row: Row, found: Attribution, number: int) -> tuple[Part, ...]:
        """The parts of one example: its units with the scores of row `number` of the batch."""

    def hidden(self, rows: Sequence[Row], inputs: dict[str, Tensor], replacement: str | int | None) -> Tokens | Nodes:
        """A batch whose units metrics can hide."""


def read_all(reader: Reader[Row], given: Sequence[object], max_length: int | None = None) -> list[Row]:
    """Every example read; an error names the example where there are several."""
    rows = []
    for number, one in enumerate(given):
        check_deadline()
        try:
            rows.append(reader.read(one, max_length))
        except InputError as error:
            which = f"{reader.name.removesuffix('s')} {number} of the list: " if len(given) > 1 else ""
            raise InputError(f"{which}{error}") from None
    return rows
