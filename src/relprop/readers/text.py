"""Texts and pairs of texts: encoded, batched by length, and their scores put back to tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from relprop.engine.model_call import device_of, generates
from relprop.engine.wrappers import arguments_of
from relprop.errors import InputError, ModelError
from relprop.model_config import config_value
from relprop.readers import tokens
from relprop.readers.chat import is_chat, read_chat
from relprop.readers.context_windows import context_windows
from relprop.readers.tokens import TokenRow
from relprop.readers.words import WordList
from relprop.render.text.part import TextPart
from relprop.tokenising import tokenise
from relprop.types import Attribution

if TYPE_CHECKING:
    from relprop.heads import Heads
    from relprop.metrics import Tokens


class TextReader:
    """A model's tokenizer, and what the model says of its texts."""

    name = "texts"
    explains: tuple[str, ...] = ("input_ids",)

    def __init__(self, model: nn.Module, tokenizer: Any) -> None:
        if tokenizer is None:
            raise ModelError("an explainer of texts needs the model's tokenizer: Explainer(model, tokenizer)")
        self.model = model
        self.tokenizer = tokenizer

    def read(self, given: object, max_length: int | None = None) -> TokenRow:
        if is_chat(given):
            return self._read_chat(given, max_length)
        self._check_picture(given)
        return tokens.encode(self.tokenizer, given, self.limit(max_length))

    def is_one(self, given: object) -> bool:
        """Whether a list is one example: the messages of a chat."""
        return is_chat(given)

    def _read_chat(self, given: Any, max_length: int | None) -> TokenRow:
        """Messages, for a language model that answers them."""
        if not generates(self.model):
            raise InputError("a list of messages is for language models: give this one a text, or a list of texts")
        return read_chat(self.tokenizer, given, self.limit(max_length))

    def _check_picture(self, given: object) -> None:
        """Raise for a picture beside the text, where the model reads one and only its tokenizer was given."""
        beside = isinstance(given, tuple) and any(not isinstance(one, str | WordList) for one in given)
        if beside and "pixel_values" in arguments_of(self.model):
            raise InputError(
                "to read a picture beside a text the explainer needs the model's processor, with an image processor "
                "and a tokenizer: Explainer(model, processor)"
            )

    def windows(self, question: Any, context: Any, max_length: int | None = None) -> list[TokenRow]:
        """A question with its context, in windows where the context is long."""
        return context_windows(self.tokenizer, question, context, self.limit(max_length))

    def limit(self, max_length: int | None = None) -> int | None:
        """How many tokens are read: as many as the model can, unless fewer are wanted; None where it does not say."""
        limits = [limit for limit in (max_length, tokens.limit_of(self.model, self.tokenizer)) if limit is not None]
        return min(limits, default=None)

    @property
    def padding(self) -> int | None:
        """The token that the model itself knows as padding."""
        padding: int | None = config_value(self.model, "pad_token_id")
        return padding

    @property
    def _even_only(self) -> bool:
        """Whether the texts of a batch must be of the same length.

        Padding on the left would shift the positions of most models.
        """
        return tokens.pads_left(self.tokenizer)

    def batches(self, rows: Sequence[TokenRow], size: int) -> list[list[int]]:
        """Texts of similar length together. A model that knows no padding reads one text at a time."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].units))
        groups = [list(group) for _, group in groupby(order, key=lambda i: self._even_only and len(rows[i].units))]
        step = 1 if self.padding is None else size
        return [group[k : k + step] for group in groups for k in range(0, len(group), step)]

    def inputs(self, rows: Sequence[TokenRow]) -> dict[str, Tensor]:
        """A padded batch of what the model takes: some tokenizers give token types to models without them."""
        taken = {"input_ids", "attention_mask", *arguments_of(self.model)}
        batch = tokens.pad(self.tokenizer, rows, self.padding, device_of(self.model))
        return {name: values for name, values in batch.items() if name in taken}

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[TokenRow], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        """Integrated gradients starts with all but the special tokens masked; head masks may be given by name."""
        settled: dict[str, object] = {}
        mask: int | None = self.tokenizer.mask_token_id
        hidden = self.padding if mask is None else mask
        if "baseline" in known and hidden is not None:
            name = self.explains[0]
            content = self.content(rows).to(inputs[name].device)
            settled["baseline"] = {name: inputs[name].masked_fill(content, hidden)}
        if "replacement" in known and hidden is not None:
            settled["replacement"] = hidden
        if "internal_batch_size" in known and self.padding is None:
            settled["internal_batch_size"] = 1
        return {**settled, **self._with_mask(given)}

    def hidden(self, rows: Sequence[TokenRow], inputs: dict[str, Tensor], replacement: str | int | None) -> Tokens:
        """A batch whose tokens metrics can hide: by "mask", "unk", a token id, or (None) by leaving them out."""
        known = {"mask": self.tokenizer.mask_token_id, "unk": self.tokenizer.unk_token_id}
        token = known.get(replacement) if isinstance(replacement, str) else replacement
        if isinstance(replacement, str) and token is None:
            have = [name for name, value in known.items() if value is not None]
            raise InputError(
                f'the tokenizer has no "{replacement}" token; replacement is a token id, None to leave tokens out'
                + (f', or "{have[0]}"' if have else "")
            )
        from relprop.metrics import Tokens

        return Tokens(inputs, self.content(rows), token)

    def content(self, rows: Sequence[TokenRow]) -> Tensor:
        """Where a padded batch holds the texts' own tokens."""
        return tokens.content(self.tokenizer, rows)

    def unpadded(self, scores: Tensor, row: TokenRow) -> list[float]:
        """One example's scores, without its padding."""
        return tokens.unpad(self.tokenizer, scores, row)

    @cached_property
    def heads(self) -> Heads:
        """The syntactic and positional heads: saved beside the model, or found on relprop's own sample."""
        from relprop.heads import identify, known_heads

        return known_heads(self.model) or identify(self.model, self.tokenizer)

    def _with_mask(self, options: dict[str, Any]) -> dict[str, object]:
        """A head mask given by name, as an array."""
        if not isinstance(options.get("mask"), str):
            return options
        how = {name: options[name] for name in ("corrupt", "seed") if name in options}
        rest = {name: value for name, value in options.items() if name != "corrupt"}
        return {**rest, "mask": self.heads.mask(options["mask"], **how)}

    def parts(self, row: TokenRow, found: Attribution, number: int) -> tuple[TextPart, ...]:
        """One text, or a pair in one part: the model reads them as one sequence."""
        (name,) = found.parts
        return (row.part(name, self.unpadded(found.scores[number], row)),)

    # Text that the model writes.

    @property
    def writer(self) -> TextReader:
        """The reader of the text that the model writes: it continues what it reads."""
        return self

    @property
    def pads_right(self) -> bool:
        """Whether rows of different length may share a batch, each with its units at the same places as alone."""
        return self.padding is not None and not tokens.pads_left(self.tokenizer)

    def prompt(self, given: object, max_length: int | None) -> TokenRow:
        """What is to be continued, never cut."""
        if is_chat(given):
            return self._read_chat(given, max_length)
        self._check_picture(given)
        if not isinstance(given, str):
            raise InputError(f"a prompt is a text or a list of messages, got {given!r:.80}")
        return tokens.encode(self.tokenizer, given, None)

    def text_of(self, row: TokenRow) -> TokenRow:
        """The text that is continued."""
        return row

    def with_text(self, row: TokenRow, text: TokenRow) -> TokenRow:
        return text

    def continuation_ids(self, row: TokenRow, continuation: str) -> list[int]:
        """The tokens of a continuation given as text."""

        def ids(text: str) -> list[int]:
            return tokenise(self.tokenizer, text=text, add_special_tokens=False, verbose=False)["input_ids"]  # type: ignore[no-any-return]

        prompt = row.rendered or row.texts[0]
        before, whole = ids(prompt), ids(prompt + continuation)
        written = whole[len(before) :]
        if whole[: len(before)] != before or not written:
            raise InputError(
                f"the continuation {continuation!r:.60} changes the prompt's last token: begin it where a word "
                "begins, with the blank before it"
            )
        return written
