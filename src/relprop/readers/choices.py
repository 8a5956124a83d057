"""A text and one of its choices, for models that read [batch, choices, tokens]: here one choice at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow


class ChoiceReader(TextReader):
    """A row is a text with one choice. What makes the choice's score is in that row alone, which the task checks."""

    def inputs(self, rows: Sequence[TokenRow]) -> dict[str, Tensor]:
        return {name: values.unsqueeze(1) for name, values in super().inputs(rows).items()}

    def together(self, rows: Sequence[TokenRow]) -> dict[str, Tensor]:
        """All choices of one text, as the model compares them."""
        return {name: values.unsqueeze(0) for name, values in super().inputs(rows).items()}

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[TokenRow], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        flat = {name: values.squeeze(1) for name, values in inputs.items()}
        settled = super().options(known, given, rows, flat)
        start = settled.get("baseline")
        if isinstance(start, dict) and "baseline" not in given:
            settled["baseline"] = {name: torch.as_tensor(values).unsqueeze(1) for name, values in start.items()}
        return settled
