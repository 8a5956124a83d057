"""Sentences parsed by the user's spaCy or Stanza pipeline. Neither package is imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from relprop.errors import InputError
from relprop.heads.treebank import Sentence, Word


def parse_texts(pipeline: Any, texts: Iterable[str]) -> list[Sentence]:
    """The sentences of plain texts, parsed by a spaCy or Stanza pipeline.

    The result shows which it is: Stanza's documents have `sentences` of `words`, spaCy's hold tokens.
    """
    sentences: list[Sentence] = []
    for text in texts:
        document = pipeline(text)
        sentences += _from_stanza(document) if hasattr(document, "sentences") else _from_spacy(document)
    return sentences


def _from_spacy(document: Any) -> Iterator[Sentence]:
    tokens = list(document)
    if not all(hasattr(token, "dep_") and hasattr(token, "head") for token in tokens):
        raise InputError(f"expected a spaCy or Stanza pipeline; this one gave {type(document).__name__}")
    if tokens and not any(token.dep_ for token in tokens):
        raise InputError("the spaCy pipeline gives no relations: it needs a parser (nlp.pipe_names lists its parts)")
    for sentence in getattr(document, "sents", [tokens]):
        members = list(sentence)
        first = members[0].i
        yield Sentence(
            tuple(
                Word(
                    token.text,
                    None if token.head.i == token.i else token.head.i - first,
                    token.dep_,
                    bool(getattr(token, "whitespace_", " ")),
                )
                for token in members
            )
        )


def _from_stanza(document: Any) -> Iterator[Sentence]:
    for sentence in document.sentences:
        words = sentence.words
        if any(word.head is None or word.deprel is None for word in words):
            raise InputError(
                'the Stanza pipeline gives no relations: it needs processors="tokenize,pos,lemma,depparse"'
            )
        yield Sentence(
            tuple(
                Word(word.text, word.head - 1 if word.head else None, word.deprel, _space_after(words, i))
                for i, word in enumerate(words)
            )
        )


def _space_after(words: Sequence[Any], i: int) -> bool:
    """Whether a space follows the word, by the characters' positions; true where the parser has none."""
    end = getattr(words[i], "end_char", None)
    start = getattr(words[i + 1], "start_char", None) if i + 1 < len(words) else None
    return end is None or start is None or start > end
