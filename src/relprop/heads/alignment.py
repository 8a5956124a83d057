"""Words and tokens: which tokens of the model's input are pieces of which word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from relprop.engine.model_call import positions_of
from relprop.heads.treebank import Sentence
from relprop.tokenising import tokenise

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NO_WORD = -1
_NO_LIMIT = 1_000_000  # transformers writes a larger number than this for "no limit"


@dataclass(frozen=True)
class AlignedSentence:
    """A sentence as the model reads it, and the word of each token."""

    ids: dict[str, list[int]]  # input_ids, and what else the tokenizer gives the model
    words: tuple[int, ...]  # per token: the index of the word it is a piece of; NO_WORD for special tokens
    special: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.words)

    def first_tokens(self) -> dict[int, int]:
        """The index of each word's first token; a word that the tokenizer drops has none."""
        return {word: token for token, word in reversed(list(enumerate(self.words))) if word != NO_WORD}


def align(tokenizer: PreTrainedTokenizerBase, sentence: Sentence) -> AlignedSentence:
    """The tokens of a sentence and the words they belong to, matched by character offset, never by spelling.

    A token belongs to the word in which it starts: where `do` and `n't` are read as `don`, `'` and `t`, the first is
    a piece of `do`. A slow tokenizer gives no offsets and reads word by word.
    """
    return _by_offset(tokenizer, sentence) if tokenizer.is_fast else _word_by_word(tokenizer, sentence)


def _by_offset(tokenizer: PreTrainedTokenizerBase, sentence: Sentence) -> AlignedSentence:
    text = sentence.text
    word_at = [NO_WORD] * len(text)
    for word, (start, end) in enumerate(sentence.spans()):
        word_at[start:end] = [word] * len(text[start:end])
    encoding = tokenise(tokenizer, text, return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False)
    special = tuple(map(bool, encoding["special_tokens_mask"]))
    words = tuple(
        NO_WORD if skip else _word_of(text, word_at, *offsets)
        for skip, offsets in zip(special, encoding["offset_mapping"], strict=True)
    )
    names = ["input_ids", *tokenizer.model_input_names]
    return AlignedSentence({name: list(encoding[name]) for name in names if name in encoding}, words, special)


def _word_of(text: str, word_at: list[int], start: int, end: int) -> int:
    """The word at a token's first character that is not blank: byte-level tokens begin with the blank before a word."""
    return next((word_at[i] for i in range(start, end) if not text[i].isspace()), NO_WORD)


def _word_by_word(tokenizer: PreTrainedTokenizerBase, sentence: Sentence) -> AlignedSentence:
    pieces: list[int] = []
    words: list[int] = []
    blank = ""
    for index, word in enumerate(sentence.words):
        ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(blank + word.text))
        pieces += ids
        words += [index] * len(ids)
        blank = " " if word.space_after else ""
    whole = list(tokenizer.build_inputs_with_special_tokens(pieces))
    added = len(whole) - len(pieces)
    before = next((k for k in range(added + 1) if whole[k : k + len(pieces)] == pieces), 0)
    word_of = (*[NO_WORD] * before, *words, *[NO_WORD] * (added - before))
    special = (*[True] * before, *[False] * len(pieces), *[True] * (added - before))
    return AlignedSentence({"input_ids": whole, "attention_mask": [1] * len(whole)}, word_of, special)


def token_limit(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """How many tokens the model can read; None where neither its config nor the tokenizer has a limit."""
    limits = [getattr(tokenizer, "model_max_length", None), positions_of(model)]
    return min((int(limit) for limit in limits if isinstance(limit, int) and 0 < limit < _NO_LIMIT), default=None)
