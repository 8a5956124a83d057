"""What is counted on attention maps: at which offset, and at which word, a head looks most."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relprop.heads.alignment import Aligned
from relprop.heads.treebank import RELATIONS, Arc, Sentence, Word

Variant = Literal["paper", "released"]
Counts = NDArray[np.int64]

# Directions of a relation, as indices: dependents that look at their governor, governors that look at their dependent.
TO_GOVERNOR, TO_DEPENDENT = 0, 1


@dataclass(frozen=True)
class Tally:
    """Counts over a corpus; those of two parts add up."""

    rows: int  # tokens whose attention was looked at
    offsets: Counts  # [blocks, heads, 2 * longest - 1]: rows that look at each offset; offset 0 is in the middle
    arcs: Counts  # [relations]
    hits: Counts  # [blocks, heads, relations, directions]: arcs of which one word looks at the other

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.rows + other.rows, self.offsets + other.offsets, self.arcs + other.arcs, self.hits + other.hits
        )

    def best_offset(self, variant: Variant = "paper") -> tuple[Counts, Counts]:
        """Per head, the offset that most rows look at, and how many. Offset 0 counts in the released code only."""
        middle = self.offsets.shape[-1] // 2
        counted = self.offsets.copy()
        if variant == "paper":
            counted[..., middle] = 0
        return counted.argmax(-1) - middle, counted.max(-1)


def count(
    maps: Sequence[Tensor],
    rows: Sequence[Aligned],
    sentences: Sequence[Sentence],
    *,
    relations: Sequence[str] = RELATIONS,
    longest: int | None = None,
    variant: Variant = "paper",
) -> Tally:
    """Count a batch without padding: maps [batch, heads, tokens, tokens] of every block.

    `longest`: the tokens of the corpus's longest sentence, so that the tallies of its batches fit together.
    """
    anywhere = np.stack([_strongest(one) for one in maps])  # [blocks, batch, heads, tokens]
    special = torch.tensor([row.special for row in rows], device=maps[0].device)
    on_words = anywhere if variant == "released" else np.stack([_strongest(one, special) for one in maps])
    parts = []
    for i, (row, sentence) in enumerate(zip(rows, sentences, strict=True)):
        kept = np.array([variant == "released" or not one for one in row.special])
        offsets = _offsets(anywhere[:, i], kept, longest or len(row))
        parts.append(Tally(int(kept.sum()), offsets, *_relations(on_words[:, i], row, sentence, relations, variant)))
    return sum(parts[1:], parts[0])


def _strongest(weights: Tensor, left_out: Tensor | None = None) -> Any:
    """The key that each row looks at most [batch, heads, tokens]."""
    if left_out is not None:
        weights = weights.masked_fill(left_out[:, None, None, :], -1)
    return weights.argmax(-1).cpu().numpy()


def _offsets(strongest: Counts, kept: NDArray[np.bool_], longest: int) -> Counts:
    """Of the kept rows, how many look at each offset.

    Every token is a key: a head that rests on [SEP] looks there, not at the neighbour it would look at otherwise.
    """
    places = (strongest - np.arange(len(kept)))[..., kept] + longest - 1
    width = 2 * longest - 1
    counts = [np.bincount(places[at], minlength=width) for at in np.ndindex(*strongest.shape[:2])]
    return np.array(counts, np.int64).reshape(*strongest.shape[:2], width)


def _relations(
    strongest: Counts, row: Aligned, sentence: Sentence, relations: Sequence[str], variant: Variant
) -> tuple[Counts, Counts]:
    """Of every arc: does the first token of one word look most at a piece of the other?

    A trial is an arc, in both directions, also where a governor has several dependents: so a head that looks at one
    fixed offset i has alpha = lambda_k(i), and the threshold means the same both ways.
    """
    arcs: Counts = np.zeros(len(relations), np.int64)
    hits: Counts = np.zeros((*strongest.shape[:2], len(relations), 2), np.int64)
    first = row.first()
    landed = np.array(row.words)[strongest]  # the word that each token looks at [blocks, heads, tokens]
    for arc in sentence.arcs(relations):
        if arc.dependent not in first or arc.governor not in first:
            continue
        if variant == "released" and not _released_counts(sentence.words[arc.dependent]):
            continue
        k = relations.index(arc.relation)
        arcs[k] += 1
        governor = _spelt_like_governor(sentence, arc) if variant == "released" else [arc.governor]
        hits[:, :, k, TO_GOVERNOR] += np.isin(landed[..., first[arc.dependent]], governor)
        if variant == "paper":
            hits[:, :, k, TO_DEPENDENT] += landed[..., first[arc.governor]] == arc.dependent
    return arcs, hits


def _released_counts(word: Word) -> bool:
    """The released code knows no subtypes, and passes over words with punctuation, of digits, or of one letter."""
    text = word.text
    passed = len(text) == 1 or set(text) & set(string.punctuation) or (text[0].isdigit() and text[-1].isdigit())
    return not passed and word.label in (word.relation, "dobj")


def _spelt_like_governor(sentence: Sentence, arc: Arc) -> list[int]:
    """The released code matches by spelling: any word that reads like the governor passes for it."""
    governor = sentence.words[arc.governor].text.lower()
    return [i for i, word in enumerate(sentence.words) if word.text.lower() == governor]
