"""Errors of the library in the words of the command line: options in place of Python's arguments."""

from __future__ import annotations

import re

_CALL = re.compile(r"[\w.]+\(((?:\w+=\.\.\.(?:, )?)+)\)")  # explainer(question=..., context=...)
_PAIR = re.compile(r"\b(\w+)=\(([\w, ]+)\)")  # target=(this, that)
_ARGUMENT = re.compile(r"\b(\w+)=\.\.\.")  # xi_pos=...
_UNDERSCORED = ("batch_size", "max_length", "drop_special")


def option_name(argument: str) -> str:
    """batch_size -> --batch-size."""
    return "--" + argument.replace("_", "-")


def command_words(message: str) -> str:
    """The message with every argument spelt as an option. What stands in quotes is the user's own, and stays."""
    pieces = re.split(r'("[^"]*")', message)
    pieces[::2] = map(_spelt, pieces[::2])
    return "".join(pieces)


def _spelt(text: str) -> str:
    text = _CALL.sub(lambda call: call[1].replace(", ", " "), text)
    text = _PAIR.sub(lambda pair: f"{option_name(pair[1])} {pair[2].replace(', ', ',').upper()}", text)
    text = _ARGUMENT.sub(lambda one: f"{option_name(one[1])} ...", text)
    return re.sub(rf"\b({'|'.join(_UNDERSCORED)})\b", lambda one: option_name(one[1]), text)
