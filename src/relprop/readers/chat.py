"""Chats: messages with roles, put through the tokenizer's own template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from relprop.errors import InputError
from relprop.readers import tokens
from relprop.readers.tokens import TokenRow

_MARK = "\ue000{}\ue001"  # stands for a message's content while the template is looked at: characters of no script


def is_chat(given: object) -> bool:
    """Whether it is one chat: a list of messages, not a list of texts or of chats."""
    return isinstance(given, list) and any(isinstance(one, Mapping) for one in given)


def read_chat(tokenizer: Any, messages: Sequence[Any], limit: int | None) -> TokenRow:
    """The chat as the model reads it, ready for its answer. What the template adds is special, as special tokens are.

    It is never cut: without its end a chat asks something else.
    """
    checked = [_checked(number, one) for number, one in enumerate(messages)]
    if not tokenizer.is_fast:
        raise InputError("chats need a fast tokenizer: only those know where a token lies in the text")
    text = _rendered(tokenizer, checked)
    spans = _contents(tokenizer, checked, text)
    row = tokens.encode(tokenizer, text, None, special=False)
    if limit is not None and len(row.units) > limit:
        raise InputError(f"the chat has {len(row.units)} tokens, and {limit} are read: shorten it, chats are not cut")
    units = tuple(
        unit
        if unit.start is not None and unit.end is not None and any(unit.start < b and unit.end > a for a, b in spans)
        else replace(unit, special=True)
        for unit in row.units
    )
    return replace(row, units=units)


def _checked(number: int, message: Any) -> dict[str, str]:
    role, content = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else (None, None)
    if not isinstance(role, str) or not isinstance(content, str) or not role:
        raise InputError(
            f'message {number} of the chat should be {{"role": "user", "content": "..."}}, both texts; got '
            f"{message!r:.80}"
        )
    return {"role": role, "content": content}


def _rendered(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise InputError("the tokenizer has no chat template: write the prompt as a text")
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template may raise what it likes, for instance that roles must take turns
        raise InputError(f"the tokenizer's chat template refuses these messages: {error!s:.300}") from error
    if not isinstance(text, str) or not text.strip():
        raise InputError("the tokenizer's chat template makes no text of these messages")
    return text


def _contents(tokenizer: Any, messages: list[dict[str, str]], text: str) -> list[tuple[int, int]]:
    """Where the contents stand in the rendered text: the template is rendered with marks in their place."""
    marks = [_MARK.format(number) for number in range(len(messages))]
    outline = _rendered(tokenizer, [{**one, "content": mark} for one, mark in zip(messages, marks, strict=True)])
    spans, end, rest = [], 0, outline
    for message, mark in zip(messages, marks, strict=True):
        before, found, after = rest.partition(mark)
        contents = dict.fromkeys((message["content"], message["content"].strip()))
        begin = end + len(before)
        own = next((one for one in contents if found and text.startswith(one, begin)), None)
        if own is None or text[end:begin] != before or mark in after:
            raise InputError(
                f"where the chat template puts the content {message['content']!r:.60} cannot be told: write the prompt "
                "as a text"
            )
        spans.append((begin, begin + len(own)))
        end, rest = begin + len(own), after
    if text[end:] != rest:
        raise InputError("the chat template changes with what the messages say: write the prompt as a text")
    return spans
