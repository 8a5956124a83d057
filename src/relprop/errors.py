"""Errors in the caller's words: what was expected, what came, what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class RelpropError(Exception):
    """Base of every error relprop raises on purpose. The message is one sentence for the user, on one line."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(one) if isinstance(one, str) else one for one in args))


def printable(text: str) -> str:
    """One line that any terminal can show: names of files and texts may hold line breaks and half characters."""
    line = " ".join(text.splitlines())
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)


class InputError(RelpropError):
    """The text, tensor or option cannot be explained as given."""


class TargetError(RelpropError):
    """The target does not exist in the model's output."""


class ModelError(RelpropError):
    """The model cannot be loaded, or cannot be explained."""


class OneByOneError(RelpropError):
    """The examples of a batch cannot be explained together; `attribute` then explains them one by one."""


class RelpropWarning(UserWarning):
    """Something that an explanation's numbers do not say."""


class UnknownNameError(RelpropError):
    """A name that no registry holds."""


class UnruledOpError(RelpropError):
    """Relevance reached an operation for which the rule set has no rule."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest known name as the rest of a sentence; nothing where none is near."""
    near = get_close_matches(name, list(known), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def unknown_name(kind: str, name: object, known: Iterable[str], hint: str = "") -> UnknownNameError:
    """An error that repeats the name and suggests the nearest known one."""
    choices = sorted(known)
    known_names = f"; known: {', '.join(choices)}" if len(choices) < 12 else ""
    guess = did_you_mean(str(name), choices) or known_names
    return UnknownNameError(f'{kind} "{name}" is unknown{guess}{f" ({hint})" if hint else ""}')
