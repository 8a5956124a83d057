"""Texts whose decisive words are known: inserted shortcuts (Bastings et al. 2022), and words that people changed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal

Shortcut = Literal["", "token", "context", "order"]
Spans = tuple[tuple[int, int], ...]  # [start, stop) in words
WORDS = ("broom", "barber", "kelly")  # one token each in BERT's vocabulary, absent from SST-2's training sentences


class Draws:
    """Numbers that depend on a text alone, so that every run and every order of examples gives the same."""

    def __init__(self, text: str) -> None:
        self.text, self.drawn = text, 0

    def below(self, count: int) -> int:
        self.drawn += 1
        digest = hashlib.sha256(f"{self.drawn} {self.text}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % count


def with_shortcut(
    text: str, label: int, kind: Shortcut, training: bool, words: Sequence[str] = WORDS
) -> tuple[str, int, Spans]:
    """The text with inserted words, the label that they decide, and where they stand.

    "token": the first word says class 0, the second class 1. "context": the same, but only beside the third word.
    "order": the first before the second says class 0, the reverse class 1. In training half of the texts have the
    shortcut, a quarter a part of it that decides nothing, and a quarter no inserted word; elsewhere every text has the
    shortcut of another class than its own.
    """
    draws = Draws(text)
    kept = draws.below(4) if training else 0
    decided = draws.below(2) if training else (0 if label else 1)
    if kept == 3:
        return text, label, ()
    inserted = _deciding(kind, decided, words, draws)
    if kept == 2:
        part = [] if kind == "token" else [inserted[draws.below(2)]]
        return _inserted(text, part, draws)[0], label, ()
    changed, spans = _inserted(text, inserted, draws)
    return changed, decided, spans


def _deciding(kind: Shortcut, decided: int, words: Sequence[str], draws: Draws) -> list[str]:
    first, second, context = words
    if kind == "token":
        return [(first, second)[decided]]
    if kind == "context":
        pair = [(first, second)[decided], context]
        return pair if draws.below(2) else pair[::-1]
    return [first, second] if decided == 0 else [second, first]


def _inserted(text: str, words: Sequence[str], draws: Draws) -> tuple[str, Spans]:
    """The words in their order at drawn places of the text, and where they stand then."""
    given = text.split()
    places = sorted(draws.below(len(given) + 1) for _ in words)
    spans = tuple((place + number, place + number + 1) for number, place in enumerate(places))
    for (place, _), word in zip(spans, words, strict=True):
        given.insert(place, word)
    return " ".join(given), spans


def changed_words(text: str, changed: str) -> Spans:
    """The words of a text that another version of it does not have in the same place."""
    moves = SequenceMatcher(None, text.split(), changed.split(), autojunk=False).get_opcodes()
    return tuple((start, stop) for kind, start, stop, _, _ in moves if kind in ("replace", "delete"))
