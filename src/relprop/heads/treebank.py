"""Parsed sentences, read from CoNLL-U files, and how far apart the two words of a relation are."""

from __future__ import annotations

import gzip
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from relprop.errors import InputError

RELATIONS = ("nsubj", "obj", "amod", "advmod")  # the relations of [Song24]
SAMPLE = Path(__file__).parent / "data" / "ewt-sample.conllu.gz"

# Names of Stanford Dependencies, which spaCy's English models still use, and the universal relations.
_UNIVERSAL = {"dobj": "obj", "nsubjpass": "nsubj"}
_COLUMNS = 10  # id, form, lemma, two tags, features, head, relation, enhanced relations, the rest
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Word:
    """One syntactic word and its arc to the governor."""

    text: str
    head: int | None  # the governor's index in the sentence; None for the root
    label: str  # the relation as the parse has it, for instance "nsubj:pass"
    space_after: bool = True

    @property
    def relation(self) -> str:
        """The universal relation, without its subtype: nsubj:pass is nsubj."""
        base = self.label.split(":")[0]
        return _UNIVERSAL.get(base, base)


@dataclass(frozen=True)
class Arc:
    """A relation between two words of a sentence, by index."""

    dependent: int
    governor: int
    relation: str


@dataclass(frozen=True)
class Sentence:
    """A parsed sentence."""

    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        """The sentence as it was written, as far as the parse shows."""
        return "".join(word.text + " " * word.space_after for word in self.words).rstrip(" ")

    def spans(self) -> list[tuple[int, int]]:
        """Start and end of each word in `text`."""
        spans, start = [], 0
        for word in self.words:
            spans.append((start, start + len(word.text)))
            start += len(word.text) + word.space_after
        return spans

    def arcs(self, relations: Sequence[str] = RELATIONS) -> list[Arc]:
        named = ((i, word.head, word.relation) for i, word in enumerate(self.words))
        return [Arc(i, head, name) for i, head, name in named if head is not None and name in relations]


def relation_offsets(sentences: Iterable[Sentence], relations: Sequence[str] = RELATIONS) -> dict[str, dict[int, int]]:
    """How often the dependent of relation k comes i words after its governor (before it, for i < 0)."""
    counts: dict[str, Counter[int]] = {relation: Counter() for relation in relations}
    for sentence in sentences:
        for arc in sentence.arcs(relations):
            counts[arc.relation][arc.dependent - arc.governor] += 1
    return {relation: dict(sorted(offsets.items())) for relation, offsets in counts.items()}


def offset_shares(counts: Mapping[int, int]) -> dict[int, float]:
    """lambda_k(i): the counts of one relation as shares."""
    total = sum(counts.values())
    return {offset: count / total for offset, count in counts.items()}


def read_conllu(path: str | os.PathLike[str]) -> list[Sentence]:
    """All sentences of a CoNLL-U file, plain or gzipped.

    The words are the syntactic ones. A range such as `1-2 don't` only shows how its words were written, and a node such
    as `1.1`, a word that is left out in the text, is skipped: neither is in the tree.
    """
    where = f'"{os.fspath(path)}"'
    sentences = list(_sentences(_text(Path(path), where).split("\n"), where))
    if not sentences:
        raise InputError(f"{where} holds no sentence; a CoNLL-U file was expected")
    return sentences


def _text(path: Path, where: str) -> str:
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content.startswith(_GZIP) else content
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8 text (at byte {error.start})") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{where} is a damaged gzip file ({error})") from None
    except OSError as error:
        raise InputError(f"cannot read {where}: {error.strerror}") from None


def _sentences(lines: Iterable[str], where: str) -> Iterator[Sentence]:
    """One sentence per block of lines; blocks end at a blank line."""
    numbered = ((line.rstrip("\r"), f"{where}, line {number}") for number, line in enumerate(lines, 1))
    for blank, block in groupby(numbered, key=lambda one: not one[0].strip()):
        rows = [_conllu_line(line, at) for line, at in block if not blank and not line.startswith("#")]
        if rows:
            yield _sentence(rows)


class _ConlluLine(NamedTuple):
    """The columns of one line that are used, and where it is in the file."""

    id: str
    form: str
    head: str
    label: str
    spaced: bool
    where: str


def _conllu_line(line: str, where: str) -> _ConlluLine:
    columns = line.split("\t")
    if len(columns) != _COLUMNS:
        raise InputError(f"{where}: expected {_COLUMNS} columns separated by tabs, got {len(columns)}: {line!r:.60}")
    number, form, _, _, _, _, head, label, _, misc = columns
    return _ConlluLine(number, form, head, label, "SpaceAfter=No" not in misc.split("|"), where)


def _sentence(lines: Sequence[_ConlluLine]) -> Sentence:
    nodes = [line for line in lines if "-" not in line.id and "." not in line.id]
    for number, line in enumerate(nodes, 1):
        if line.id != str(number):
            raise InputError(f"{line.where}: expected word {number} of the sentence, got id {line.id!r:.20}")
    if not nodes:
        raise InputError(f"{lines[0].where}: the sentence has no syntactic word")
    words = [_word(line, number, len(nodes)) for number, line in enumerate(nodes)]
    for line in lines:
        if "-" in line.id:
            _respace(words, line)
    return Sentence(tuple(words))


def _word(line: _ConlluLine, index: int, count: int) -> Word:
    if not line.head.isascii() or not line.head.isdigit() or int(line.head) > count:
        raise InputError(f"{line.where}: expected a head from 0 to {count}, got {line.head!r:.20}")
    head = int(line.head) - 1
    if head == index:
        raise InputError(f"{line.where}: the word is its own head")
    return Word(line.form, head if head >= 0 else None, line.label, line.spaced)


def _respace(words: list[Word], written: _ConlluLine) -> None:
    """Words written as one, such as `don't`, have no space between them if they spell it; `de` `el` are not `del`."""
    first, _, last = written.id.partition("-")
    if not (first.isdigit() and last.isdigit() and 1 <= int(first) < int(last) <= len(words)):
        raise InputError(
            f"{written.where}: expected a range of the sentence's words, such as 1-2, got {written.id!r:.20}"
        )
    inside = range(int(first) - 1, int(last))
    apart = "".join(words[i].text for i in inside) != written.form
    for i in inside:
        words[i] = replace(words[i], space_after=written.spaced if i == inside[-1] else apart)
