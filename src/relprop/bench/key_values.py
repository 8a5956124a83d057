"""Key-value recall: a prompt lists keys, each followed by its value, and asks for the value of one of them.

    k3 v7 k0 v1 k9 v4 ? k0        is followed by v1

The pair that holds the answer is known, so it is known which words the scores should find. The question ends with the
key itself: two layers learned this in 800 steps, and "k0 ->" not in 1,900.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from relprop.bench.marked_words import Draws, Spans
from relprop.bench.settings import NOTHING_ELSE
from relprop.errors import InputError

ASKS = "?"  # stands before the key of a question: the value follows that key


@dataclass(frozen=True)
class Recall:
    """The sizes of prompts and splits."""

    __pydantic_config__: ClassVar = NOTHING_ELSE
    words: int  # of different keys, and as many values
    pairs: int  # in each prompt; in training from 2 to so many, as few are learned first
    train: int  # how many prompts
    test: int
    questions: int = 1  # in each prompt for training; all but the last are answered there
    marked: Literal["pair", "value"] = "pair"  # the words to be found: the key and its value, or the value alone

    def __post_init__(self) -> None:
        if not 2 <= self.pairs <= self.words:
            raise InputError(f"a prompt has 2 to {self.words} pairs, as many as there are words, got {self.pairs}")
        if min(self.questions, self.train, self.test) < 1:
            raise InputError("there is at least one prompt for training and one for testing, each with a question")


@dataclass(frozen=True)
class Prompt:
    """What the model reads, the word that follows and its number, and where marked words and question stand."""

    text: str
    value: str
    number: int
    marks: Spans  # the words to be found, [start, stop)
    question: int  # the first word of the last question


def draw_prompt(split: str, number: int, sizes: Recall) -> Prompt:
    """The prompt with this number; keys and values are drawn without replacement, so that the answer is unique."""
    draws = Draws(f"{split} {number}")
    training = split == "train"
    pairs = 2 + draws.below(sizes.pairs - 1) if training else sizes.pairs
    keys, values = (_shuffled(draws, sizes.words, pairs) for _ in range(2))
    asked = [draws.below(pairs) for _ in range(sizes.questions if training else 1)]
    words = [word for key, value in zip(keys, values, strict=True) for word in (f"k{key}", f"v{value}")]
    for place in asked:
        words += [ASKS, f"k{keys[place]}", f"v{values[place]}"]
    *words, value = words
    key = 2 * asked[-1]
    first = key if sizes.marked == "pair" else key + 1
    return Prompt(" ".join(words), value, values[asked[-1]], ((first, key + 2),), len(words) - 2)


def _shuffled(draws: Draws, of: int, count: int) -> list[int]:
    """The first `count` of a random order of 0 to `of` - 1."""
    left = list(range(of))
    return [left.pop(draws.below(len(left))) for _ in range(count)]
