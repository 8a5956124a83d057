"""How large inputs are for a model and how much work a request makes of them, before any of it is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relprop.engine.module_stack import stacks
from relprop.explainer import Explainer
from relprop.graph.superpixels import MOST as MOST_REGIONS
from relprop.model_config import config_value
from relprop.readers.choices import ChoiceReader
from relprop.readers.document import DocumentReader
from relprop.readers.encoder import EncoderReader
from relprop.readers.image_text import ImageTextReader
from relprop.readers.text import TextReader
from relprop.serve.body import ExplainRequest
from relprop.serve.instances import atoms_and_bonds, texts_in
from relprop.serve.limits import Limits, too_large

SPECIAL_TOKENS = 8  # that a tokenizer may add to a text
OTHER_UNITS = 1_024  # of inputs whose number of units is known only after a pass


class InputSizes:
    """Units of inputs, and work: passes x units x blocks."""

    def __init__(self, explainer: Explainer) -> None:
        self._reader = explainer.reader
        self._model = explainer.model
        self._blocks = max(1, sum(map(len, stacks(explainer.model))))

    def at_most(self, value: Any) -> int:
        """A number of units that the input does not exceed, found without reading it."""
        if isinstance(self._reader, TextReader):
            texts, limit = texts_in(value), self._reader.limit()
            size = sum(len(text.encode(errors="replace")) for text in texts) + SPECIAL_TOKENS
            if isinstance(self._reader, ChoiceReader):  # the text is read again with every choice
                size += (len(texts) - 2) * (len(texts[0].encode(errors="replace")) + SPECIAL_TOKENS)
                limit = limit and limit * (len(texts) - 1)
            if isinstance(self._reader, EncoderReader):
                size, limit = size + SPECIAL_TOKENS, limit and 2 * limit
            return min(size, limit or size)
        if self._reader.name == "graphs":
            return 1 + (atoms_and_bonds(value)[0] if isinstance(value, str) else MOST_REGIONS)
        side, patch = (config_value(self._model, name) for name in ("image_size", "patch_size"))
        return (side // patch) ** 2 if isinstance(side, int) and isinstance(patch, int) else OTHER_UNITS

    def units(self, value: Any) -> int:
        """The number of units; texts are read for it."""
        if isinstance(self._reader, ChoiceReader | EncoderReader):
            single = (
                [(value[0], one) for one in value[1]] if isinstance(self._reader, ChoiceReader) else texts_in(value)
            )
            return sum(len(self._reader.read(one).units) for one in single)
        if isinstance(self._reader, ImageTextReader):
            picture, texts = value[0], texts_in(value[1])
            return sum(self._reader.size(self._reader.read((picture, text))) for text in texts)
        if isinstance(self._reader, DocumentReader) and isinstance(value, tuple):
            return max(len(window.units) for window in self._reader.windows(*value))
        return len(self._reader.read(value).units) if isinstance(self._reader, TextReader) else self.at_most(value)

    def check(self, request: ExplainRequest, values: Sequence[Any], limits: Limits) -> None:
        """Raises if an input has too many tokens, or the request takes too much work."""
        pairs = isinstance(self._reader, ImageTextReader)  # their patches are known only when they are read
        most = limits.tokens if isinstance(self._reader, TextReader) else math.inf
        units = [self.at_most(value) for value in values]
        if max(units) <= most and self._work(request, units) <= limits.work and not pairs:
            return
        units = [self.units(value) for value in values]
        if max(units) > most:
            which = f"instance {units.index(max(units))}" if len(units) > 1 else "the instance"
            raise too_large(f"{which} has {max(units):,} tokens; at most {limits.tokens:,} are taken")
        work = self._work(request, units)
        if work > limits.work:
            passes = sum(request.passes(count) for count in units)
            raise too_large(
                f"this takes {passes:,} passes over up to {max(units):,} units and {self._blocks} blocks, work of "
                f"{work:,}; at most {limits.work:,} is taken: send fewer or shorter instances, or ask for less of each"
            )

    def _work(self, request: ExplainRequest, units: Sequence[int]) -> int:
        return sum(request.passes(count) * count * self._blocks for count in units)
