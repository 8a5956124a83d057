"""Texts and text pairs: to token ids and units with their places in the original text."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relprop.errors import InputError
from relprop.types import Unit

Text = str | tuple[str, str]
_ENDLESS = 1_000_000  # transformers' stand-in for "no limit" is larger than this

# A word: letters and digits with inner apostrophes; one CJK character; or a run of the same mark.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+(?:['’_][^\W_]+)*|(\S)\1*")


class TruncationWarning(UserWarning):
    """A text was longer than the model can read."""


@dataclass(frozen=True)
class Encoded:
    """One text as the model will read it."""

    ids: dict[str, list[int]]  # input_ids, and token_type_ids where the model has them
    units: tuple[Unit, ...]
    cut: str | None  # says what was cut off, if anything was


def parts_of(text: Text) -> tuple[str, ...]:
    """The text, or the two texts of a pair, checked."""
    parts = (text,) if isinstance(text, str) else tuple(text) if isinstance(text, tuple | list) else ()
    if not parts or len(parts) > 2 or not all(isinstance(part, str) for part in parts):
        raise InputError(f"a text is a string or a pair of strings, got {text!r:.80}")
    for part in parts:
        if not part.strip():
            raise InputError("the text is empty: there is nothing to explain")
    return parts


def limit_of(model: nn.Module, tokenizer: Any) -> int | None:
    """How many tokens the model can read; None where it does not say."""
    limits = [getattr(tokenizer, "model_max_length", None), _positions(model)]
    known = [int(limit) for limit in limits if isinstance(limit, int) and 0 < limit < _ENDLESS]
    return min(known, default=None)


def _positions(model: nn.Module) -> int | None:
    config = getattr(model, "config", None)
    count = getattr(config, "max_position_embeddings", None)
    if not isinstance(count, int) or count <= 0:
        return None
    for name, module in model.named_modules():  # RoBERTa's positions start behind the padding index
        if isinstance(module, nn.Embedding) and "position" in name and module.padding_idx is not None:
            return count - module.padding_idx - 1
    return count


def encode(tokenizer: Any, text: Text, limit: int | None) -> Encoded:
    """Token ids and units of one text, cut to `limit` tokens."""
    parts = parts_of(text)
    options: dict[str, Any] = {"return_special_tokens_mask": True, "return_attention_mask": False}
    if tokenizer.is_fast:
        options["return_offsets_mapping"] = True
    whole = tokenizer(*parts, **options, verbose=False)
    cut = limit is not None and len(whole["input_ids"]) > limit
    kept = tokenizer(*parts, **options, truncation=True, max_length=limit) if cut else whole
    units = tuple(_units(tokenizer, parts, kept))
    note = _cut_note(parts, units, len(whole["input_ids"]), limit) if cut else None
    if note:
        warnings.warn(note, TruncationWarning, stacklevel=2)
    names = [name for name in getattr(tokenizer, "model_input_names", ["input_ids"]) if name in kept]
    ids = {name: list(kept[name]) for name in dict.fromkeys(["input_ids", *names]) if name != "attention_mask"}
    if all(unit.special for unit in units):
        raise InputError(f"the tokenizer finds no token in the text {parts[0]!r:.60}")
    return Encoded(ids, units, note)


def _units(tokenizer: Any, parts: tuple[str, ...], encoding: Any) -> list[Unit]:
    ids, special = encoding["input_ids"], encoding["special_tokens_mask"]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    segments = _segments(encoding, len(ids))
    places = encoding["offset_mapping"] if "offset_mapping" in encoding else [None] * len(ids)
    words = [list(_WORD.finditer(part)) for part in parts]
    units = []
    for token, is_special, place, segment in zip(tokens, special, places, segments, strict=True):
        if is_special or segment is None:
            units.append(Unit(token, special=True, segment=segment or 0))
        elif place is None:
            units.append(Unit(tokenizer.convert_tokens_to_string([token]).strip() or token, segment=segment))
        else:
            start, end = _trimmed(parts[segment], *place)
            word = next((number for number, match in enumerate(words[segment]) if match.end() > start), None)
            units.append(Unit(parts[segment][start:end], start, end, segment=segment, word=word))
    return units


def _segments(encoding: Any, count: int) -> list[int | None]:
    """Which text of a pair each token is from; None for special tokens."""
    try:
        return list(encoding.sequence_ids())
    except (ValueError, AttributeError):  # slow tokenizers do not know
        types = encoding.get("token_type_ids", [0] * count)
        return [1 if kind == 1 else 0 for kind in types]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Byte-level tokens carry the blank before the word: it is no part of the unit."""
    while start < end and text[start].isspace():
        start += 1
    return start, end


def _cut_note(parts: tuple[str, ...], units: Sequence[Unit], count: int, limit: int | None) -> str:
    lost = []
    for segment, part in enumerate(parts):
        ends = [unit.end for unit in units if unit.segment == segment and unit.end is not None]
        rest = part[max(ends, default=0) :].strip()
        if rest and (ends or len(parts) > 1):
            where = f"character {max(ends, default=0)}" + (f" of text {segment + 1}" if len(parts) > 1 else "")
            lost.append(f"from {where} on: {rest[:40]!r}{'...' if len(rest) > 40 else ''}")
    return f"the text has {count} tokens, the model reads {limit}; cut off {'; '.join(lost) or 'at the end'}"


def pad(tokenizer: Any, rows: Sequence[Encoded], pad_id: int | None, device: Any = None) -> dict[str, Tensor]:
    """A padded batch, on the tokenizer's own side, with its attention mask."""
    width = max(len(row.units) for row in rows)
    left = getattr(tokenizer, "padding_side", "right") == "left"
    fill = {"input_ids": pad_id or 0, "token_type_ids": getattr(tokenizer, "pad_token_type_id", 0)}

    def padded(values: list[int], filler: int) -> list[int]:
        blank = [filler] * (width - len(values))
        return blank + values if left else values + blank

    batch = {name: [padded(row.ids[name], fill.get(name, 0)) for row in rows] for name in rows[0].ids}
    batch["attention_mask"] = [padded([1] * len(row.units), 0) for row in rows]
    return {name: torch.tensor(values, device=device) for name, values in batch.items()}


def unpad(tokenizer: Any, scores: Tensor, row: Encoded) -> list[float]:
    """One example's scores, without its padding."""
    count = len(row.units)
    left = getattr(tokenizer, "padding_side", "right") == "left"
    values: list[float] = (scores[len(scores) - count :] if left else scores[:count]).double().tolist()
    return values
