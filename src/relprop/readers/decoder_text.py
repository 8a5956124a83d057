"""A text that is read and a text that is written, for encoder-decoders: two parts, each with its own tokens."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import torch
from torch import Tensor

from relprop.errors import InputError, ModelError
from relprop.readers import tokens
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow
from relprop.render.text.part import TextPart
from relprop.types import Attribution, Unit


class SourceAndTargetReader(TextReader):
    """A row's units are the source's tokens, then the decoder's own."""

    ids = ("input_ids", "decoder_input_ids")

    def read(self, given: object, max_length: int | None = None) -> TokenRow:
        """The source, with the tokens that the decoder starts from."""
        row, start = super().read(given, max_length), self._start
        units = [Unit(token, special=True, segment=1) for token in self.tokenizer.convert_ids_to_tokens(start)]
        ids = {**row.ids, "decoder_input_ids": start}
        return replace(row, ids=ids, units=(*row.units, *units), texts=(*row.texts, ""))

    @property
    def _start(self) -> list[int]:
        configs = [getattr(self.model, "generation_config", None), self.model.config]

        def named(name: str) -> list[int]:
            return [one for config in configs if isinstance(one := getattr(config, name, None), int)]

        start = named("decoder_start_token_id") or named("bos_token_id")
        if not start:
            raise ModelError("the model does not say which token its decoder starts from (decoder_start_token_id)")
        return start[:1] + named("forced_bos_token_id")[:1]

    @property
    def _even_only(self) -> bool:
        return True  # so that the decoder's units lie at the same places

    def inputs(self, rows: Sequence[TokenRow]) -> dict[str, Tensor]:
        """Both sides, each padded on its own; the decoder's on the right."""
        own = [row.own_ids for row in rows]
        batch = super().inputs([_source(row) for row in rows])
        width, device = max(map(len, own)), batch["input_ids"].device
        pad = self.padding or 0
        batch["decoder_input_ids"] = torch.tensor([ids + [pad] * (width - len(ids)) for ids in own], device=device)
        if "decoder_attention_mask" in inspect.signature(self.model.forward).parameters:
            mask = [[1] * len(ids) + [0] * (width - len(ids)) for ids in own]
            batch["decoder_attention_mask"] = torch.tensor(mask, device=device)
        return batch

    def hidden(self, rows: Sequence[TokenRow], inputs: dict[str, Tensor], replacement: str | int | None) -> NoReturn:
        raise InputError("evaluate is for models that read one text, not for an encoder-decoder that writes another")

    def parts(self, row: TokenRow, found: Attribution, number: int) -> tuple[TextPart, ...]:
        source, count = _source(row), len(row.own_ids)
        sides = (source.units, tuple(replace(unit, segment=0) for unit in row.units[len(source.units) :]))
        scores = (
            tokens.unpad(self.tokenizer, found.parts["input_ids"][number], source),
            found.parts["decoder_input_ids"][number, :count].double().tolist(),
        )
        texts = (row.texts[:-1], row.texts[-1:])
        notes = (row.cut, None)
        return tuple(
            TextPart(name, text, units, tuple(own), truncated=note)
            for name, text, units, own, note in zip(self.ids, texts, sides, scores, notes, strict=True)
        )


def _source(row: TokenRow) -> TokenRow:
    """The text without the decoder's tokens."""
    ids = {name: values for name, values in row.ids.items() if name != "decoder_input_ids"}
    return replace(row, ids=ids, units=row.units[: len(ids["input_ids"])], texts=row.texts[:-1])
