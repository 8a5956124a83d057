"""What an encoder-decoder reads, and the text that its decoder writes: parts of their own."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from relprop.engine.model_call import device_of, evaluating
from relprop.engine.plain_calls import stoppable
from relprop.engine.restoring import restoring
from relprop.engine.wrappers import arguments_of
from relprop.errors import InputError, ModelError
from relprop.library_logging import quiet
from relprop.readers import tokens
from relprop.readers.product import ProductReader, RowTuple
from relprop.readers.reader import Reader
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow
from relprop.tokenising import tokenise
from relprop.types import Unit

_PREFIXED = ("lang_to_id", "task_to_id", "forced_decoder_ids", "no_timestamps_token_id")
_WHOLE = "force_unique_generate_call"  # without it, Whisper leaves out the tokens that it was started with
_IDS, _MASK = "decoder_input_ids", "decoder_attention_mask"


class DecoderReader(TextReader):
    """The decoder's own text: the tokens that it starts from, and what was written so far."""

    explains = (_IDS,)

    def read(self, given: object = "", max_length: int | None = None, start: Sequence[int] | None = None) -> TokenRow:
        """The tokens that the decoder starts from (`start`, or what the config says), and a text where one is given."""
        start = self._start if start is None else list(start)
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
        ids: list[int] = tokenise(self.tokenizer, text_target=continuation, add_special_tokens=False, verbose=False)[
            "input_ids"
        ]
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
        pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], str)
        if pair and not isinstance(self.source, TextReader | ProductReader):
            given, text = given  # type: ignore[misc]
        source = self.source.read(given, max_length)
        return (source, self.decoder.read(text, start=self._asked_start(source)))

    @restoring
    def _asked_start(self, source: Any) -> list[int] | None:
        """The tokens that the model's own `generate` puts before what it writes, where they depend on the source.

        Speech models have tokens for the language, which they detect, for the task, and for times.
        """
        settings = getattr(self.model, "generation_config", None)
        if not any(getattr(settings, name, None) for name in _PREFIXED):
            return None
        asked: dict[str, Any] = {
            "max_new_tokens": 1,
            "do_sample": False,
            "num_beams": 1,
            "return_dict_in_generate": True,
        }
        if _WHOLE in inspect.signature(self.model.generate).parameters:  # type: ignore[arg-type]
            asked[_WHOLE] = True
        with torch.no_grad(), evaluating(self.model), stoppable(), quiet():
            found = self.model.generate(**self.source.inputs([source]), **asked)  # type: ignore[operator]
        start: list[int] = found["sequences"][0, :-1].tolist()
        return start

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
