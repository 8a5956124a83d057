"""Untrusted text made safe to show: what a terminal or a browser would obey is spelt out instead."""

from __future__ import annotations

import unicodedata

SPELT: dict[str, str] = {"\n": "↵", "\t": "⇥"}
JOINERS = "\u200c\u200d"  # format characters that emoji and Persian words are written with; they move nothing
# Unicode categories: control, format (bidi overrides, tags), lone surrogates, ends of lines and of paragraphs.
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def visible(text: str) -> str:
    """The text with every control, bidi and other unseen character spelt out; nothing and blanks get a sign too."""
    if not text.strip(" "):
        return "␣" * len(text) or "∅"
    return "".join(_spelt(char) for char in text)


def _spelt(char: str) -> str:
    if char in SPELT:
        return SPELT[char]
    if char in JOINERS or unicodedata.category(char) not in UNSEEN:
        return char
    return f"‹U+{ord(char):04X}›"
