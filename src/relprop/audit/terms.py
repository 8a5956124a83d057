"""The terms to look for and their groups: relprop's own first names, or a CSV of term,group."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from relprop.errors import InputError
from relprop.text_tables import open_text

DATA = Path(__file__).parent / "data"
HEADER = ["term", "group"]

Terms = Mapping[str, str]  # group by term


def first_names() -> dict[str, str]:
    """First names that clearly belong to one gender, from the US census of 1990 (see data/README.md)."""
    return read_terms(DATA / "first_names.csv")


def ambiguous_words() -> frozenset[str]:
    """First names that are also everyday words, places or titles: will, grace, may, china (see data/README.md)."""
    return read_words(DATA / "words.txt")


def read_terms(path: str | os.PathLike[str]) -> dict[str, str]:
    """Group by term, from a CSV (.gz too) of term,group; a header is not needed."""
    terms: dict[str, str] = {}
    with open_text(Path(path)) as lines:
        for number, row in enumerate(csv.reader(lines), 1):
            cells = [cell.strip() for cell in row]
            if not any(cells) or (number == 1 and [cell.casefold() for cell in cells] == HEADER):
                continue
            if len(cells) != 2 or not all(cells):
                raise InputError(f'line {number} of "{path}" is not term,group: {",".join(row)!r:.80}')
            term, group = cells
            if terms.setdefault(term, group) != group:
                raise InputError(f'line {number} of "{path}": "{term}" is in two groups, {terms[term]} and {group}')
    return check_groups(terms)


def check_groups(terms: Terms) -> dict[str, str]:
    """The terms, if they have at least two groups."""
    groups = sorted(set(terms.values()))
    if len(groups) < 2:
        found = f"one, {groups[0]}" if groups else "none"
        raise InputError(f"an audit compares two groups or more; the list of names has {found}")
    return dict(terms)


def read_words(path: str | os.PathLike[str]) -> frozenset[str]:
    """Words, one per line; empty lines and lines that begin with # are skipped."""
    with open_text(Path(path)) as lines:
        return frozenset(word for line in lines if (word := line.strip()) and not word.startswith("#"))


def without(terms: Terms, words: Iterable[str]) -> dict[str, str]:
    """The terms without these words, in any case."""
    left_out = {word.casefold() for word in words}
    return {term: group for term, group in terms.items() if term.casefold() not in left_out}
