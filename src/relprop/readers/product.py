"""Several inputs of one example, each with a reader of its own: a picture with a text, a sound with what is written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from torch import Tensor, nn

from relprop.errors import InputError
from relprop.part import Part
from relprop.readers.reader import Reader
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow
from relprop.types import Attribution

RowTuple = tuple[Any, ...]  # one row per reader


class ProductReader:
    """A row holds one row per reader; inputs are merged, parts come one behind the other.

    Where the model writes text, the reader of what it writes is the last one.
    """

    name = "inputs"

    def __init__(self, model: nn.Module, readers: Sequence[Reader[Any]]) -> None:
        self.model = model
        self.readers = tuple(readers)

    @property
    def explains(self) -> tuple[str, ...]:
        return tuple(name for reader in self.readers for name in reader.explains)

    def read(self, given: object, max_length: int | None = None) -> RowTuple:
        """A tuple with one input per reader, in their order."""
        if not isinstance(given, tuple) or len(given) != len(self.readers):
            wanted = ", ".join(reader.name.removesuffix("s") for reader in self.readers)
            raise InputError(f"the model reads several inputs together: give a tuple ({wanted}), got {given!r:.80}")
        return tuple(
            reader.read(one, max_length if isinstance(reader, TextReader) else None)
            for reader, one in zip(self.readers, given, strict=True)
        )

    def batches(self, rows: Sequence[RowTuple], size: int) -> list[list[int]]:
        """Examples that every reader puts together."""
        groups = [list(range(len(rows)))]
        for k, reader in enumerate(self.readers):
            most = size if k == len(self.readers) - 1 else max(size, len(rows))
            groups = [
                [group[i] for i in batch]
                for group in groups
                for batch in reader.batches([rows[i][k] for i in group], most)
            ]
        return groups

    def inputs(self, rows: Sequence[RowTuple]) -> dict[str, Tensor]:
        each = zip(self.readers, zip(*rows, strict=True), strict=True)
        return {name: value for reader, own in each for name, value in reader.inputs(own).items()}

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[RowTuple], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        """Each reader's defaults; a baseline has one entry per input."""
        if isinstance(given.get("mask"), str):
            raise InputError("heads by name are told by texts alone: give the mask as an array")
        settled: dict[str, object] = {}
        baselines: dict[str, object] = {}
        for reader, own in zip(self.readers, zip(*rows, strict=True), strict=True):
            found = reader.options(known, {}, own, inputs)
            baseline = found.pop("baseline", None)
            baselines |= baseline if isinstance(baseline, Mapping) else {}
            settled |= found
        return {**settled, **({"baseline": baselines} if baselines else {}), **given}

    def hidden(self, rows: Sequence[RowTuple], inputs: dict[str, Tensor], replacement: str | int | None) -> NoReturn:
        raise InputError("evaluate is for models that read one input, not for those that read several")

    def parts(self, row: RowTuple, found: Attribution, number: int) -> tuple[Part, ...]:
        each = zip(self.readers, row, strict=True)
        return tuple(part for reader, own in each for part in reader.parts(own, only_of(found, reader), number))

    # Text that the model writes: the last reader's.

    @property
    def writer(self) -> TextReader | None:
        """The reader of the text that the model writes."""
        last = self.readers[-1]
        return last if isinstance(last, TextReader) else None

    @property
    def tokenizer(self) -> Any:
        return None if self.writer is None else self.writer.tokenizer

    @property
    def pads_right(self) -> bool:
        return self.writer is not None and all(getattr(reader, "pads_right", False) for reader in self.readers)

    def prompt(self, given: object, max_length: int | None) -> RowTuple:
        """What is to be continued."""
        return self.read(given, max_length)

    def text_of(self, row: RowTuple) -> TokenRow:
        """The text that is continued."""
        text: TokenRow = row[-1]
        return text

    def with_text(self, row: RowTuple, text: TokenRow) -> RowTuple:
        return (*row[:-1], text)


def only_of(found: Attribution, reader: Reader[Any]) -> Attribution:
    """What was found of one reader's inputs."""
    own = [name for name in reader.explains if name in found.parts]
    return replace(
        found,
        parts={name: found.parts[name] for name in own},
        windows={name: found.windows[name] for name in own if name in found.windows},
        place={name: found.place[name] for name in own if name in found.place},
    )
