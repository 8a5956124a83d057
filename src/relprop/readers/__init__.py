"""Readers: what a user gives of one modality -> model inputs with their units, and scores -> parts.

A new modality is one file here and one package in `relprop.render`. Readers of other packages join by the entry point
group "relprop.readers": a function of (model, processor) that returns a reader, or None for models it does not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn

from relprop.deadline import check_deadline
from relprop.errors import InputError
from relprop.part import Part
from relprop.types import Attribution

Row = TypeVar("Row")  # one example as the model reads it


class Reader(Protocol[Row]):
    """A model's way to read one modality, or several that belong together."""

    name: str  # what it reads, as messages say it: "texts"

    def read(self, given: Any, max_length: int | None = None) -> Row:
        """One example. Raises InputError for what cannot be read."""

    def batches(self, rows: Sequence[Row], size: int) -> list[list[int]]:
        """Indices of examples that go through the model together, at most `size` of them."""

    def inputs(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """A batch: the model's keyword arguments."""

    def options(
        self, known: Mapping[str, Any], given: dict[str, Any], rows: Sequence[Row], inputs: dict[str, Tensor]
    ) -> dict[str, Any]:
        """A method's options with this modality's defaults. `known`: the options that the method has."""

    def parts(self, row: Row, found: Attribution, number: int) -> tuple[Part, ...]:
        """The parts of one example: its units with the scores of row `number` of the batch."""

    def hidden(self, rows: Sequence[Row], inputs: dict[str, Tensor], replacement: str | int | None) -> Any:
        """A batch whose units metrics can hide."""


def read_all(reader: Reader[Row], given: Sequence[Any], max_length: int | None = None) -> list[Row]:
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


def reader_of(model: nn.Module, processor: Any) -> Reader[Any]:
    """The reader of a model, chosen by its signature, config and processor."""
    from relprop.readers.decoder_text import SourceAndTargetReader, reads_and_writes
    from relprop.readers.graph import GraphReader, reads_graphs
    from relprop.readers.image import ImageReader
    from relprop.readers.picture import is_image_processor
    from relprop.readers.text import TextReader

    for point in entry_points(group="relprop.readers"):
        other: Reader[Any] | None = point.load()(model, processor)
        if other is not None:
            return other
    if reads_graphs(model):
        return GraphReader(model)
    if is_image_processor(processor):
        return ImageReader(model, processor)
    return SourceAndTargetReader(model, processor) if reads_and_writes(model) else TextReader(model, processor)
