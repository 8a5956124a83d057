"""Syntactic and positional heads: found on parsed sentences, kept in a file, used as masks."""

from relprop.heads.head_counts import Finding, Heads, heads_of, known_heads
from relprop.heads.identification import identify
from relprop.heads.masks import corrupted, random_mask
from relprop.heads.parsers import parsed
from relprop.heads.treebank import SAMPLE, Sentence, Word, read_conllu, relation_offsets

__all__ = [
    "SAMPLE",
    "Finding",
    "Heads",
    "Sentence",
    "Word",
    "corrupted",
    "heads_of",
    "identify",
    "known_heads",
    "parsed",
    "random_mask",
    "read_conllu",
    "relation_offsets",
]
