"""Readers: what a user gives of one modality -> model inputs with their units, and scores -> parts.

A new modality is one file here and one package in `relprop.render`. Readers of other packages join by the entry point
group "relprop.readers": a function of (model, processor) that returns a reader, or None for models it does not read.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from torch import Tensor, nn

from relprop.deadline import check_deadline
from relprop.engine.model_call import generates
from relprop.errors import InputError
from relprop.model_config import config_value
from relprop.part import Part
from relprop.types import Attribution

if TYPE_CHECKING:
    from relprop.metrics import Nodes, Tokens

Row = TypeVar("Row")  # one example as the model reads it


class Reader(Protocol[Row]):
    """A model's way to read one modality, or several that belong together."""

    name: str  # what it reads, as messages say it: "texts"

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


def reader_of(model: nn.Module, processor: Any) -> Reader[Any]:
    """The reader of a model, chosen by its signature, config and processor. Only that one is imported."""
    for point in entry_points(group="relprop.readers"):
        other: Reader[Any] | None = point.load()(model, processor)
        if other is not None:
            return other
    if {"nodes", "adjacency"} <= set(inspect.signature(model.forward).parameters):
        from relprop.readers.graph import GraphReader

        return GraphReader(model)
    if "pixel_values" in (getattr(processor, "model_input_names", None) or []):
        from relprop.readers.image import ImageReader

        return ImageReader(model, processor)
    if generates(model) and config_value(model, "is_encoder_decoder"):
        from relprop.readers.decoder_text import SourceAndTargetReader

        return SourceAndTargetReader(model, processor)
    from relprop.readers.text import TextReader

    return TextReader(model, processor)
