"""What an encoder-decoder reads, and the text that its decoder writes: parts of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from relprop.engine.model_call import device_of
from relprop.engine.wrappers import arguments_of
from relprop.errors import InputError, ModelError
from relprop.readers import tokens
from relprop.readers.product import ProductReader, RowTuple
from relprop.readers.reader import Reader
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow
from relprop.types import Unit

_IDS, _MASK = "decoder_input_ids", "decoder_attention_mask"


class DecoderReader(TextReader):
    """The decoder's own text: the tokens that it starts from, and what was written so far."""

    explains = (_IDS,)

    def read(self, given: object = "", max_length: int | None = None) -> TokenRow:
        """The tokens that the decoder starts from, and a text behind them where one is given."""
        start = self._start
        units = tuple(Unit(token, special=True) for token in self.tokenizer.convert_ids_to_tokens(start))
        row = TokenRow({_IDS: start}, units, None, ("",))
        if given == "":
            return row
        own = tokens.encode(self.tokenizer, given, None, special=False)
        return TokenRow({_IDS: [*start, *own.ids["input_ids"]]}, (*units, *own.units), None, own.texts)

    @property
    def _start(self) -> list[int]:
        configs = [getattr(self.model, "generation_config", None), self.model.config]

        def named(name: str) -> list[int]:
            return [one for config in configs if isinstance(one := getattr(config, name, None), int)]

        start = named("decoder_start_token_id") or named("bos_token_id")
        if not start:
            raise ModelError("the model does not say which token its decoder starts from (decoder_start_token_id)")
        return start[:1] + named("forced_bos_token_id")[:1]

    def batches(self, rows: Sequence[TokenRow], size: int) -> list[list[int]]:
        """The source decides what goes together."""
        return [list(range(k, min(k + size, len(rows)))) for k in range(0, len(rows), size)]

    def inputs(self, rows: Sequence[TokenRow]) -> dict[str, Tensor]:
        """Padded on the right, whatever the tokenizer does to texts that are read."""
        own = [row.own_ids for row in rows]
        width, device = max(map(len, own)), device_of(self.model)
        pad = self.padding or 0
        batch = {_IDS: torch.tensor([ids + [pad] * (width - len(ids)) for ids in own], device=device)}
        if _MASK in arguments_of(self.model):
            mask = [[1] * len(ids) + [0] * (width - len(ids)) for ids in own]
            batch[_MASK] = torch.tensor(mask, device=device)
        return batch

    def unpadded(self, scores: Tensor, row: TokenRow) -> list[float]:
        values: list[float] = scores[: len(row.units)].double().tolist()
        return values

    def content(self, rows: Sequence[TokenRow]) -> Tensor:
        width = max(len(row.units) for row in rows)
        return torch.tensor([[i < len(r.units) and not r.units[i].special for i in range(width)] for r in rows])

    def continuation_ids(self, row: TokenRow, continuation: str) -> list[int]:
        ids: list[int] = self.tokenizer(text_target=continuation, add_special_tokens=False, verbose=False)["input_ids"]
        return ids


class EncoderDecoderReader(ProductReader):
    """A source of any kind, and the decoder's text. What is given is the source, or a source with the text so far."""

    def __init__(self, model: nn.Module, source: Reader[Any], decoder: DecoderReader) -> None:
        super().__init__(model, (source, decoder))
        self.source, self.decoder = source, decoder

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.source.name

    def read(self, given: object, max_length: int | None = None) -> RowTuple:
        """`max_length`: of a source that is a text."""
        text: object = ""
        if not isinstance(self.source, TextReader) and isinstance(given, tuple) and len(given) == 2:
            given, text = given
        return (self.source.read(given, max_length), self.decoder.read(text))

    def prompt(self, given: object, max_length: int | None) -> RowTuple:
        if isinstance(self.source, TextReader) and not isinstance(given, str):
            raise InputError(f"a prompt is a text, got {given!r:.80}")
        return self.read(given, max_length)

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[RowTuple], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        if isinstance(self.source, TextReader) and isinstance(given.get("mask"), str):
            given = self.source.options((), given, [row[0] for row in rows], inputs)
        return super().options(known, given, rows, inputs)

    def hidden(self, rows: Sequence[RowTuple], inputs: dict[str, Tensor], replacement: str | int | None) -> NoReturn:
        raise InputError("evaluate is for models that read one text, not for an encoder-decoder that writes another")
