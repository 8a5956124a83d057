"""Syntactic and positional heads: identified on parsed sentences, saved in a file, used as masks."""

from relprop.heads.head_counts import HeadFinding, Heads, heads_of, known_heads
from relprop.heads.identification import identify
from relprop.heads.masks import corrupted, random_mask
from relprop.heads.parsers import parse_texts
from relprop.heads.treebank import SAMPLE, Sentence, Word, read_conllu, relation_offsets

Finding, parsed = HeadFinding, parse_texts  # their names before version 0.2

__all__ = [
    "SAMPLE",
    "HeadFinding",
    "Heads",
    "Sentence",
    "Word",
    "corrupted",
    "heads_of",
    "identify",
    "known_heads",
    "parse_texts",
    "random_mask",
    "read_conllu",
    "relation_offsets",
]
