"""Texts for an encoder: with the prompts and the limit that it was saved with."""

from __future__ import annotations

from dataclasses import replace

from relprop.errors import InputError
from relprop.readers import tokens
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow


class EncoderReader(TextReader):
    """Reads a text with the prompt before it that the encoder's authors set; the prompt's tokens are special."""

    def limit(self, max_length: int | None = None) -> int | None:
        own = getattr(self.model, "max_length", None)
        limits = [limit for limit in (super().limit(max_length), own) if isinstance(limit, int)]
        return min(limits, default=None)

    def read(self, given: object, max_length: int | None = None) -> TokenRow:
        return self.read_side(given, 0, max_length)

    def read_side(self, given: object, side: int, max_length: int | None = None) -> TokenRow:
        """The first or the second text of a pair."""
        prompt: str = getattr(self.model, "prompts", ("", ""))[side]
        if not isinstance(given, str):
            raise InputError(f"a text is a string, got {given!r:.80}")
        if not given.strip():
            raise InputError("the text is empty: there is nothing to explain")
        row = tokens.encode(self.tokenizer, prompt + given, self.limit(max_length))
        if not prompt:
            return row
        units = tuple(
            replace(unit, special=True) if unit.end is not None and unit.end <= len(prompt) else unit
            for unit in row.units
        )
        return replace(row, units=units)
