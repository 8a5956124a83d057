"""Words that were split before, and what the tokenizer makes of each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from relprop.errors import InputError
from relprop.types import Unit


@dataclass(frozen=True)
class WordList:
    """A text given as its words: `WordList(["Angela", "lives", "in", "New York"])`. A plain list is several texts."""

    words: tuple[str, ...]

    def __init__(self, words: Iterable[str]) -> None:
        every = tuple(words) if not isinstance(words, str) else ()
        if not every or not all(isinstance(word, str) for word in every):
            raise InputError(f'words are a list of strings, such as WordList(["New", "York"]); got {words!r:.80}')
        for number, word in enumerate(every):
            if not word.strip():
                raise InputError(f"word {number} of the list is empty: leave it out")
        object.__setattr__(self, "words", every)

    @property
    def text(self) -> str:
        """The words with blanks between them."""
        return " ".join(self.words)

    @property
    def starts(self) -> list[int]:
        """Where in the text each word begins."""
        ends = [0]
        for word in self.words:
            ends.append(ends[-1] + len(word) + 1)
        return ends[:-1]


def word_lists(given: object) -> tuple[WordList, ...]:
    """The word list, or the two of a pair; none where it is something else."""
    every = (given,) if isinstance(given, WordList) else given if isinstance(given, tuple | list) else ()
    lists = tuple(one for one in every if isinstance(one, WordList))
    if lists and (len(lists) != len(every) or len(lists) > 2):
        raise InputError("a text of words goes alone or with another one: WordList(...), or a pair of these")
    return lists


def word_units(
    lists: tuple[WordList, ...],
    tokenizer: Any,
    encoding: Any,
    words: Sequence[int | None] | None = None,
    segments: Sequence[int | None] | None = None,
) -> tuple[Unit, ...]:
    """The tokens of split words, at their places in the words with blanks between.

    `words` and `segments`: of which word of which list each token is, where the encoding itself does not say.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            "words that are split before need a fast tokenizer: only these know which word a token belongs to"
        )
    starts, units = [one.starts for one in lists], []
    tokens = tokenizer.convert_ids_to_tokens(encoding["input_ids"])
    words = encoding.word_ids() if words is None else words
    segments = encoding.sequence_ids() if segments is None else segments
    for i, (token, word, segment) in enumerate(zip(tokens, words, segments, strict=True)):
        if word is None or segment is None:
            units.append(Unit(token, special=True, segment=segment or 0))
            continue
        own, (first, last) = lists[segment].words[word], encoding["offset_mapping"][i]
        while first < last and own[first].isspace():  # byte-level tokens carry the blank before the word
            first += 1
        start = starts[segment][word]
        units.append(Unit(own[first:last], start + first, start + last, segment=segment, word=word))
    return tuple(units)
