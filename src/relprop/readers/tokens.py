"""Texts and text pairs as token ids, and as units with their places in the original text."""

from __future__ import annotations

import re
import unicodedata
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.model_call import positions_of
from relprop.errors import InputError
from relprop.readers.words import WordList, word_lists, word_units
from relprop.render.text.part import TextPart
from relprop.tokenising import tokenise
from relprop.types import Unit

_WHOLE = 100_000  # characters of a text that are always read
_ENDLESS = 1_000_000  # transformers' stand-in for "no limit" is larger than this

# A word: one Chinese or Japanese character; letters and digits with inner apostrophes or decimal points; blanks; a run
# of the same mark.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003134f]"
    r"|[^\W_]+(?:(?:['’_]|(?<=[0-9])[.,](?=[0-9]))[^\W_]+)*"
    r"|\s+|(\S)\1*"
)
_JOINS = {"Mn", "Mc", "Me", "Cf"}  # Unicode's accents, vowel signs and joiners: parts of the character before


class TruncationWarning(UserWarning):
    """A text was longer than the model can read."""


_truncation_is_told: ContextVar[bool] = ContextVar("truncation_is_told", default=True)


@contextmanager
def without_truncation_warnings() -> Iterator[None]:
    """Texts are cut without a warning, in this thread alone: `warnings.catch_warnings` would change all threads."""
    token = _truncation_is_told.set(False)
    try:
        yield
    finally:
        _truncation_is_told.reset(token)


@dataclass(frozen=True)
class TokenRow:
    """One text as the model will read it."""

    ids: dict[str, list[int]]  # input_ids, and token_type_ids where the model has them
    units: tuple[Unit, ...]
    cut: str | None  # says what was cut off, if anything was
    texts: tuple[str, ...] = ()  # one text, or the two of a pair
    answer: tuple[int, int] | None = None  # characters of the second text that are marked as the answer
    rendered: str = ""  # what the tokens spell, where that is more than the text: a chat template, places of pictures

    def part(self, name: str, scores: Sequence[float]) -> TextPart:
        """The units with their scores; `name`: the model's own name for the input."""
        return TextPart(name, self.texts, self.units, tuple(scores), truncated=self.cut, answer=self.answer)

    @property
    def own_ids(self) -> list[int]:
        """The tokens that a continuation continues: a decoder's own, or the text's."""
        return self.ids.get("decoder_input_ids") or self.ids["input_ids"]


def truncation_is_told() -> bool:
    """Whether this thread is warned of texts that are cut."""
    return _truncation_is_told.get()


def _shown(given: object) -> str:
    """What was given, short: the kind of a picture or array, also in a pair."""
    if isinstance(given, tuple) and any(hasattr(one, "shape") or hasattr(one, "size") for one in given):
        return f"({', '.join(map(_shown, given))})"
    return type(given).__name__ if hasattr(given, "shape") or hasattr(given, "size") else f"{given!r:.80}"


def parts_of(text: object) -> tuple[str, ...]:
    """The text, or the two texts of a pair, checked."""
    parts = (text,) if isinstance(text, str) else tuple(text) if isinstance(text, tuple | list) else ()
    if not parts or len(parts) > 2 or not all(isinstance(part, str) for part in parts):
        raise InputError(f"a text is a string or a pair of strings, got {_shown(text)}")
    for part in parts:
        if not part.strip():
            raise InputError("the text is empty: there is nothing to explain")
        try:
            part.encode()
        except UnicodeEncodeError:
            raise InputError(f"the text {part!r:.60} is not valid Unicode: it holds half a character") from None
    return parts


def limit_of(model: nn.Module, tokenizer: object) -> int | None:
    """How many tokens the model can read; None where it does not say."""
    limits = [getattr(tokenizer, "model_max_length", None), positions_of(model)]
    known = [int(limit) for limit in limits if isinstance(limit, int) and 0 < limit < _ENDLESS]
    return min(known, default=None)


def encode(tokenizer: Any, text: object, limit: int | None, special: bool = True) -> TokenRow:
    """Token ids and units of one text, cut to `limit` tokens; `special`: with the tokens that the tokenizer adds."""
    if lists := word_lists(text):
        return _encode_words(tokenizer, lists, limit)
    parts = parts_of(text)
    options = {"return_special_tokens_mask": True, "return_attention_mask": False}
    if not special:
        options["add_special_tokens"] = False
    if tokenizer.is_fast:
        options["return_offsets_mapping"] = True
    pieces, whole = _readable(tokenizer, parts, options, limit)
    count, tokenised = len(whole["input_ids"]), pieces == parts
    if limit is None or (count <= limit and tokenised):
        cut, kept = False, whole
    else:
        cut, (pieces, kept) = True, _truncated(tokenizer, pieces, whole, options, limit)
    units = units_of(tokenizer, pieces, kept)
    if _cuts_left(tokenizer):
        units = _moved(units, [len(part) - len(piece) for part, piece in zip(parts, pieces, strict=True)])
    if limit is not None and len(units) > limit:  # the special tokens alone are more: nothing was cut
        units = ()
    if all(unit.special for unit in units):
        none = f"a limit of {limit} tokens leaves no room for" if cut else "the tokenizer finds no token in"
        raise InputError(f"{none} the text {parts[0]!r:.60}")
    size = f"{count} tokens, {limit}" if tokenised else f"{sum(map(len, parts)):,} characters, {len(units)} tokens"
    note = f"the text has {size} are read: {lost(parts, units)}" if cut else None
    if note and _truncation_is_told.get():
        warnings.warn(note, TruncationWarning, stacklevel=2)
    return TokenRow(ids_of(tokenizer, kept), units, note, parts)


def _encode_words(tokenizer: Any, lists: tuple[WordList, ...], limit: int | None) -> TokenRow:
    """Token ids and units of words that were split before, cut to `limit` tokens."""
    texts = parts_of(tuple(one.text for one in lists))
    options: dict[str, Any] = {"return_attention_mask": False, "is_split_into_words": True}
    options |= {"return_offsets_mapping": True} if tokenizer.is_fast else {}
    words: Any = tuple(list(one.words) for one in lists)
    kept = _tokenized(tokenizer, words, options)
    count = len(kept["input_ids"])
    cut = limit is not None and count > limit
    if cut:
        kept = _tokenized(tokenizer, words, {**options, "truncation": True, "max_length": limit})
    units = word_units(lists, tokenizer, kept)
    if all(unit.special for unit in units) or (limit is not None and len(units) > limit):
        raise InputError(f"a limit of {limit} tokens leaves no room for the words {texts[0]!r:.60}")
    note = f"the words have {count} tokens, {limit} are read: {lost(texts, units)}" if cut else None
    if note and _truncation_is_told.get():
        warnings.warn(note, TruncationWarning, stacklevel=3)
    return TokenRow(ids_of(tokenizer, kept), units, note, texts)


def _cuts_left(tokenizer: Any) -> bool:
    return getattr(tokenizer, "truncation_side", "right") == "left"


def _readable(
    tokenizer: Any, parts: tuple[str, ...], options: dict[str, Any], limit: int | None
) -> tuple[tuple[str, ...], Any]:
    """The texts as far as the model can read them, and their tokens. Texts that are not very long are left whole.

    A piece is enough if it has twice the tokens that are read: what is beyond its edge is then beyond what is read.
    Only of words or blanks of a thousand characters per token less is kept.
    """
    size = max(_WHOLE, 16 * limit) if limit is not None else max(map(len, parts))
    while True:
        pieces = tuple(part[-size:] if _cuts_left(tokenizer) else part[:size] for part in parts)
        found = _tokenized(tokenizer, pieces, options)
        if pieces == parts or limit is None or size >= 1000 * limit:
            return pieces, found
        segments = _segments(found, len(found["input_ids"]))
        if all(segments.count(i) >= 2 * limit for i, part in enumerate(parts) if len(part) > size):
            return pieces, found
        size *= 4


def _truncated(
    tokenizer: Any, pieces: tuple[str, ...], whole: Any, options: dict[str, Any], limit: int
) -> tuple[tuple[str, ...], Any]:
    """The tokenizer's own truncation, and the texts that it was given.

    It makes encodings of all that it cuts off too, of a pair each with each: so it gets no more text than it needs,
    as long as the tokens that it keeps are those of the whole text.
    """
    options = {**options, "truncation": True, "max_length": limit}
    segments, left = _segments(whole, len(whole["input_ids"])), _cuts_left(tokenizer)
    own = [[k for k, segment in enumerate(segments) if segment == i] for i in range(len(pieces))]
    tokens = 2 * limit
    while "offset_mapping" in whole and max(map(len, own)) > tokens:
        shorter = []
        for piece, numbers in zip(pieces, own, strict=True):
            places = [whole["offset_mapping"][k] for k in (numbers[-tokens:] if left else numbers[:tokens])]
            every = len(numbers) <= tokens
            shorter.append(piece if every else piece[places[0][0] :] if left else piece[: places[-1][1]])
        kept = _tokenized(tokenizer, tuple(shorter), options)
        if _same_tokens(whole, kept, left):
            return tuple(shorter), kept
        tokens *= 4
    return pieces, _tokenized(tokenizer, pieces, options)


def _same_tokens(whole: Any, kept: Any, left: bool) -> bool:
    """Whether the kept tokens of each text are its first ones, or its last."""

    def by_segment(encoding: Any) -> dict[int | None, list[int]]:
        found: dict[int | None, list[int]] = {}
        ids = encoding["input_ids"]
        for number, segment in zip(ids, _segments(encoding, len(ids)), strict=True):
            found.setdefault(segment, []).append(number)
        return found

    every = by_segment(whole)
    own = {segment: ids for segment, ids in by_segment(kept).items() if segment is not None}
    return all(
        ids == (every[segment][-len(ids) :] if left else every[segment][: len(ids)]) for segment, ids in own.items()
    )


def _moved(units: Sequence[Unit], shifts: Sequence[int]) -> tuple[Unit, ...]:
    """Units of texts whose beginnings were left out, at their places in the whole texts."""
    return tuple(
        replace(unit, start=unit.start + shifts[unit.segment], end=unit.end + shifts[unit.segment])
        if unit.start is not None and unit.end is not None
        else unit
        for unit in units
    )


def _tokenized(tokenizer: Any, parts: tuple[str, ...], options: dict[str, Any]) -> Any:
    try:
        return tokenise(tokenizer, *parts, **options, verbose=False)
    except Exception as error:  # a tokenizer of the user's own, or one with odd settings
        raise InputError(f"the tokenizer failed: {type(error).__name__}: {error!s:.300}") from error


def ids_of(tokenizer: object, encoding: Mapping[str, Iterable[int]]) -> dict[str, list[int]]:
    """What the tokenizer makes for the model, but for the attention mask, which follows from the length."""
    names = [name for name in getattr(tokenizer, "model_input_names", ["input_ids"]) if name in encoding]
    return {name: list(encoding[name]) for name in dict.fromkeys(["input_ids", *names]) if name != "attention_mask"}


def units_of(
    tokenizer: Any, parts: tuple[str, ...], encoding: Any, segments: Sequence[int | None] | None = None
) -> tuple[Unit, ...]:
    """The tokens with their places in the texts. `segments`: which text each is from, None for special tokens."""
    ids, special = encoding["input_ids"], encoding["special_tokens_mask"]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    segments = _segments(encoding, len(ids)) if segments is None else segments
    places = encoding["offset_mapping"] if "offset_mapping" in encoding else [None] * len(ids)
    ends = [word_ends(part) for part in parts]
    units = []
    for token, is_special, place, segment in zip(tokens, special, places, segments, strict=True):
        if is_special or segment is None:
            units.append(Unit(token, special=True, segment=segment or 0))
        elif place is None:
            units.append(Unit(tokenizer.convert_tokens_to_string([token]).strip() or token, segment=segment))
        else:
            units.append(unit_at(parts[segment], ends[segment], place[0], place[1], segment))
    return tuple(units)


def unit_at(text: str, ends: Sequence[int], start: int, end: int, segment: int = 0) -> Unit:
    """The token at these characters; `ends`: where the text's words do."""
    start, end = _trimmed(text, start, end)
    piece = text[start:end]
    word = bisect_right(ends, end if piece == " " else start)  # a lone blank leads the next word
    return Unit(piece, start, end, segment=segment, word=word)


def word_ends(text: str) -> list[int]:
    """Where each word ends. Accents and joiners read as the character before them, so they part no word."""
    plain: list[str] = []
    for i, char in enumerate(text):
        joined = unicodedata.category(char) in _JOINS or (text[i - 1 : i] == "\u200d" and not char.isalnum())
        plain.append(plain[-1] if joined and plain else char)
    return [word.end() for word in _WORD.finditer("".join(plain))]


def occurrences(piece: str, text: str) -> list[tuple[int, int]]:
    """The characters of every place of a piece of text; those inside other words only where there are no others."""
    piece = piece.strip()
    if not piece:
        return []
    ends = {0, *word_ends(text)}
    starts = [i for i in range(len(text)) if text.startswith(piece, i)]
    starts = [i for i in starts if i in ends and i + len(piece) in ends] or starts
    return [(start, start + len(piece)) for start in starts]


def _segments(encoding: Any, count: int) -> list[int | None]:
    """Which text of a pair each token is from; None for special tokens."""
    try:
        return list(encoding.sequence_ids())
    except (ValueError, AttributeError):  # slow tokenizers do not know
        types = encoding.get("token_type_ids", [0] * count)
        return [1 if kind == 1 else 0 for kind in types]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Byte-level tokens carry the blank before the word: it is no part of the unit, unless it is all there is."""
    if not text[start:end].strip():
        return (start - 1, end) if start == end and text[start - 1 : start].isspace() else (start, end)
    while text[start].isspace():
        start += 1
    return start, end


def lost(parts: tuple[str, ...], units: Sequence[Unit]) -> str:
    """What was cut off, in the user's words."""
    if all(unit.start is None for unit in units):
        return "the rest was cut off"
    lost = []
    for segment, part in enumerate(parts):
        places = [(u.start, u.end) for u in units if u.segment == segment and u.start is not None and u.end is not None]
        first, last = min(places, default=(0, 0))[0], max(places, default=(0, 0))[1]
        where = f" of text {segment + 1}" if len(parts) > 1 else ""
        if head := part[:first].strip():
            lost.append(f"up to character {first}{where} ({_short(head)})")
        if tail := part[last:].strip():
            lost.append(f"from character {last}{where} on ({_short(tail)})")
    return f"cut off {' and '.join(lost)}"


def _short(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}..."


def pad(
    tokenizer: object, rows: Sequence[TokenRow], pad_id: int | None, device: torch.device | None = None
) -> dict[str, Tensor]:
    """A padded batch, on the tokenizer's own side, with its attention mask."""
    fill = {"input_ids": pad_id or 0, "token_type_ids": getattr(tokenizer, "pad_token_type_id", 0)}
    batch = {name: even(tokenizer, [row.ids[name] for row in rows], fill.get(name, 0)) for name in rows[0].ids}
    batch["attention_mask"] = even(tokenizer, [[1] * len(row.units) for row in rows], 0)
    return {name: values.to(device) for name, values in batch.items()}


def content(tokenizer: object, rows: Sequence[TokenRow]) -> Tensor:
    """Where a padded batch holds the texts' own tokens: no special ones, no padding."""
    return even(tokenizer, [[int(not unit.special) for unit in row.units] for row in rows], 0).bool()


def even(tokenizer: object, rows: Sequence[list[Any]], filler: Any) -> Tensor:
    """Rows of one length, filled up on the tokenizer's own side."""
    width = max(len(row) for row in rows)
    blanks = [[filler] * (width - len(row)) for row in rows]
    return torch.tensor([b + row if pads_left(tokenizer) else row + b for row, b in zip(rows, blanks, strict=True)])


def unpad(tokenizer: object, scores: Tensor, row: TokenRow) -> list[float]:
    """One example's scores, without its padding."""
    count = len(row.units)
    values: list[float] = (scores[-count:] if pads_left(tokenizer) else scores[:count]).double().tolist()
    return values


def pads_left(tokenizer: object) -> bool:
    return getattr(tokenizer, "padding_side", "right") == "left"
