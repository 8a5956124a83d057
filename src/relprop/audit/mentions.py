"""Finds mentions of terms in a corpus: whole words, longest terms first."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relprop.errors import InputError

_WORD = re.compile(r"[\w\u0300-\u036f]+")  # a combining accent does not end a word


@dataclass(frozen=True)
class Place:
    """A mention: the characters [start, end) of a text, and its term and group."""

    text: int
    start: int
    end: int
    term: str
    group: str


def cased(texts: Sequence[str]) -> bool:
    """Does the corpus use capitals? More than half of its texts have one."""
    return 2 * sum(any(char.isupper() for char in text) for text in texts) > len(texts)


def find(texts: Sequence[str], terms: Mapping[str, str], *, ignore_case: bool = False) -> list[Place]:
    """All mentions, in order. A term with a capital matches words with one (Mary, MARY), one without matches all.

    With `ignore_case` every term matches in any case. A term may be of several words; where two overlap, the one that
    begins first counts, and of those the longest.
    """
    by_key: dict[str, tuple[str, str]] = {}
    for term, group in terms.items():
        whole = _WORD.search(term)
        if whole is None or whole.start() or not _WORD.fullmatch(term[-1]):
            raise InputError(f'the term "{term}" cannot be looked for: it must begin and end with a letter or digit')
        known = by_key.setdefault(_key(term), (term, group))
        if known[1] != group:
            raise InputError(f'"{term}" is in two groups: {known[1]} and {group}')
    longest = max((len(_WORD.findall(term)) for term in terms), default=0)
    return [place for i, text in enumerate(texts) for place in _in_text(i, text, by_key, longest, ignore_case)]


def _in_text(
    number: int, text: str, by_key: Mapping[str, tuple[str, str]], longest: int, ignore_case: bool
) -> Iterator[Place]:
    words = list(_WORD.finditer(text))
    first = 0
    while first < len(words):
        start, step = words[first].start(), 1
        for count in range(min(longest, len(words) - first), 0, -1):
            end = words[first + count - 1].end()
            term, group = by_key.get(_key(text[start:end]), ("", ""))
            if term and (ignore_case or _has_capitals_of(term, text[start:end])):
                yield Place(number, start, end, term, group)
                step = count
                break
        first += step


def _key(term: str) -> str:
    return unicodedata.normalize("NFC", " ".join(term.split())).casefold()


def _has_capitals_of(term: str, mention: str) -> bool:
    pairs = zip(_WORD.findall(term), _WORD.findall(mention), strict=False)
    return all(there[0].isupper() for wanted, there in pairs if wanted[0].isupper())


def swap_mentions(texts: Sequence[str], places: Sequence[Place], order: Sequence[int]) -> tuple[list[str], list[Place]]:
    """The texts with the mention of `places[order[i]]` in the place of `places[i]`, and the new places.

    Texts and places keep their order.
    """
    names = [texts[place.text][place.start : place.end] for place in places]
    written, moved = list(texts), list(places)
    shift = 0
    for i, (place, source) in enumerate(zip(places, order, strict=True)):
        if i == 0 or places[i - 1].text != place.text:
            shift = 0
        start, name = place.start + shift, names[source]
        text = written[place.text]
        written[place.text] = text[:start] + name + text[start + place.end - place.start :]
        moved[i] = Place(place.text, start, start + len(name), places[source].term, places[source].group)
        shift += len(name) - (place.end - place.start)
    return written, moved
