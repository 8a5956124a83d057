"""A question and its context: in overlapping windows where the context is long."""

from __future__ import annotations

from typing import Any

from relprop.errors import InputError
from relprop.readers.tokens import TokenRow, ids_of, parts_of, units_of
from relprop.tokenising import tokenise

OVERLAP = 128  # tokens that neighbouring windows share, as is usual for SQuAD


def context_windows(
    tokenizer: Any, question: str, context: str, limit: int | None, overlap: int | None = None
) -> list[TokenRow]:
    """The question with as much of the context as fits, again and again until the context is read.

    Neighbouring windows share `overlap` tokens of the context: at most half of what fits.
    """
    parts = parts_of((question, context))
    if not tokenizer.is_fast:
        raise InputError("question answering needs a fast tokenizer: only those know where a token lies in the text")
    options = {"return_special_tokens_mask": True, "return_offsets_mapping": True, "verbose": False}
    whole = tokenise(tokenizer, *parts, **options)
    count = len(whole["input_ids"])
    if 1 not in whole.sequence_ids():
        raise InputError(f"the tokenizer finds no token in the context {context!r:.60}")
    if limit is None or count <= limit:
        return [TokenRow(ids_of(tokenizer, whole), units_of(tokenizer, parts, whole), None, parts)]
    room = limit - (count - whole.sequence_ids().count(1))
    if room < 2:
        asked = whole.sequence_ids().count(0)
        raise InputError(
            f"the question has {asked} tokens, which leaves no room for the context in the {limit} that are read: "
            "shorten the question"
        )
    stride = min(OVERLAP if overlap is None else overlap, room // 2)
    many = tokenise(
        tokenizer,
        *parts,
        **options,
        truncation="only_second",
        max_length=limit,
        stride=stride,
        return_overflowing_tokens=True,
    )
    rows = []
    for number in range(len(many["input_ids"])):
        one = {name: values[number] for name, values in many.items()}
        units = units_of(tokenizer, parts, one, many.sequence_ids(number))
        rows.append(TokenRow(ids_of(tokenizer, one), units, None, parts))
    return rows
