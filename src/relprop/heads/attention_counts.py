"""Counts on attention maps: the offset and the word that get most of a token's attention, per head. [Song24]"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relprop.heads.alignment import AlignedSentence
from relprop.heads.treebank import RELATIONS, Arc, Sentence, Word

Variant = Literal["paper", "released"]
Counts = NDArray[np.int64]

# Directions of a relation, as indices: attention from the dependent to its governor, and from the governor.
TO_GOVERNOR, TO_DEPENDENT = 0, 1


@dataclass(frozen=True)
class AttentionCounts:
    """Counts over a corpus; the counts of its parts can be added."""

    rows: int  # tokens whose attention was counted
    offsets: Counts  # [blocks, heads, 2 * longest - 1]: rows by the offset of their maximum; offset 0 is in the middle
    arcs: Counts  # [relations]
    hits: Counts  # [blocks, heads, relations, directions]: arcs whose one word has its maximum at the other

    def __add__(self, other: AttentionCounts) -> AttentionCounts:
        return AttentionCounts(
            self.rows + other.rows, self.offsets + other.offsets, self.arcs + other.arcs, self.hits + other.hits
        )

    def best_offset(self, variant: Variant = "paper") -> tuple[Counts, Counts]:
        """Per head, the most frequent offset and its number of rows. Offset 0 counts in the released code only."""
        middle = self.offsets.shape[-1] // 2
        counted = self.offsets.copy()
        if variant == "paper":
            counted[..., middle] = 0
        return counted.argmax(-1) - middle, counted.max(-1)


def count_attention(
    maps: Sequence[Tensor],
    rows: Sequence[AlignedSentence],
    sentences: Sequence[Sentence],
    *,
    relations: Sequence[str] = RELATIONS,
    longest: int | None = None,
    variant: Variant = "paper",
) -> AttentionCounts:
    """The counts of a batch without padding, from the maps [batch, heads, tokens, tokens] of every block.

    `longest` is the number of tokens of the corpus's longest sentence, so that the counts of its batches can be added.
    """
    anywhere = np.stack([_strongest(one) for one in maps])  # [blocks, batch, heads, tokens]
    special = torch.tensor([row.special for row in rows], device=maps[0].device)
    on_words = anywhere if variant == "released" else np.stack([_strongest(one, special) for one in maps])
    parts = []
    for i, (row, sentence) in enumerate(zip(rows, sentences, strict=True)):
        kept = np.array([variant == "released" or not one for one in row.special])
        offsets = _offsets(anywhere[:, i], kept, longest or len(row))
        parts.append(
            AttentionCounts(
                int(kept.sum()), offsets, *_arcs_and_hits(on_words[:, i], row, sentence, relations, variant)
            )
        )
    return sum(parts[1:], parts[0])


def _strongest(weights: Tensor, left_out: Tensor | None = None) -> Counts:
    """The key with most attention in each row [batch, heads, tokens]."""
    if left_out is not None:
        weights = weights.masked_fill(left_out[:, None, None, :], -1)
    strongest: Counts = weights.argmax(-1).cpu().numpy()
    return strongest


def _offsets(strongest: Counts, kept: NDArray[np.bool_], longest: int) -> Counts:
    """How many of the kept rows have their maximum at each offset [blocks, heads, offsets].

    Every token is a key: attention that rests on [SEP] counts there, not at the neighbour that comes second.
    """
    columns = (strongest - np.arange(len(kept)))[..., kept] + longest - 1
    width = 2 * longest - 1
    counts = [np.bincount(columns[at], minlength=width) for at in np.ndindex(*strongest.shape[:2])]
    return np.array(counts, np.int64).reshape(*strongest.shape[:2], width)


def _arcs_and_hits(
    strongest: Counts, row: AlignedSentence, sentence: Sentence, relations: Sequence[str], variant: Variant
) -> tuple[Counts, Counts]:
    """Arcs [relations], and those where the first token of one word attends most to a piece of the other.

    Every arc counts, in both directions, also where a governor has several dependents: so a head with one fixed offset
    i has alpha = lambda_k(i), and the threshold means the same in both directions.
    """
    arcs: Counts = np.zeros(len(relations), np.int64)
    hits: Counts = np.zeros((*strongest.shape[:2], len(relations), 2), np.int64)
    first = row.first_tokens()
    attended = np.array(row.words)[strongest]  # the word that each token attends to most [blocks, heads, tokens]
    for arc in sentence.arcs(relations):
        if arc.dependent not in first or arc.governor not in first:
            continue
        if variant == "released" and not _released_counts(sentence.words[arc.dependent]):
            continue
        k = relations.index(arc.relation)
        arcs[k] += 1
        governor = _spelt_like_governor(sentence, arc) if variant == "released" else [arc.governor]
        hits[:, :, k, TO_GOVERNOR] += np.isin(attended[..., first[arc.dependent]], governor)
        if variant == "paper":
            hits[:, :, k, TO_DEPENDENT] += attended[..., first[arc.governor]] == arc.dependent
    return arcs, hits


def _released_counts(word: Word) -> bool:
    """The released code skips subtypes of relations, and words with punctuation, of digits, or of one letter."""
    text = word.text
    skipped = len(text) == 1 or set(text) & set(string.punctuation) or (text[0].isdigit() and text[-1].isdigit())
    return not skipped and word.label in (word.relation, "dobj")


def _spelt_like_governor(sentence: Sentence, arc: Arc) -> list[int]:
    """The released code matches by spelling: any word that is spelt like the governor counts as the governor."""
    governor = sentence.words[arc.governor].text.lower()
    return [i for i, word in enumerate(sentence.words) if word.text.lower() == governor]
