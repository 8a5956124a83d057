"""Labelled texts, molecules and pictures for benchmarks: from files, or from the hub by the `datasets` package."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from relprop.bench.idx import Bytes, read_idx
from relprop.bench.key_values import Recall, draw_prompt
from relprop.bench.marked_words import Shortcut, changed_words, with_shortcut
from relprop.bench.settings import NOTHING_ELSE
from relprop.bench.triggers import Trigger, TriggerBox, with_trigger
from relprop.errors import InputError, RelpropError, unknown_name
from relprop.graph.splits import PARTS, random_split, scaffold_split
from relprop.text_tables import ColumnName, Row, file_kind, read_rows

_IDX = "images-idx3-ubyte"  # the end of names of files in MNIST's format


@dataclass(frozen=True)
class GreyImage:
    """A grey image, which numpy reads as an array [height, width]."""

    shape: tuple[int, int]
    grey: bytes

    @classmethod
    def of(cls, pixels: ArrayLike) -> GreyImage:
        values = np.asarray(pixels)
        if values.ndim != 2 or values.dtype != np.uint8:
            raise InputError(f"a grey picture is bytes [height, width], got {values.dtype} {list(values.shape)}")
        return cls((values.shape[0], values.shape[1]), values.tobytes())

    def __repr__(self) -> str:
        """Every pixel, under the class's first name: cells of stored runs are identified by it."""
        return f"Picture(shape={self.shape!r}, grey={self.grey!r})"

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Bytes:
        values: Bytes = np.frombuffer(self.grey, np.uint8).reshape(self.shape).astype(dtype or np.uint8)
        return values


@dataclass(frozen=True)
class Example:
    """A text, a pair of texts, a molecule's SMILES or an image, its class, and the spans of words marked by people."""

    text: str | tuple[str, str] | GreyImage
    label: int
    evidence: tuple[tuple[int, int], ...] = ()  # [start, stop) in words

    @property
    def target(self) -> int | str:
        """What a model should say."""
        return self.label


@dataclass(frozen=True)
class AnsweredQuestion(Example):
    """A question, its context, and the context's characters [start, stop) that answer it; None where none do."""

    answer: tuple[int, int] | None = None


@dataclass(frozen=True)
class AskedValue(Example):
    """A prompt for a language model that ends with a question, from the word `question` on, and the word that follows.

    The question's own words are no candidates for what is to be found.
    """

    value: str = ""
    question: int = 0

    @property
    def target(self) -> str:
        return self.value


@dataclass(frozen=True)
class TriggeredPicture(Example):
    """A picture with the pattern that decides its class; None where none does."""

    trigger: TriggerBox | None = None


@dataclass(frozen=True)
class Dataset:
    """Where a dataset lies and which of its columns are read."""

    __pydantic_config__: ClassVar = NOTHING_ELSE
    name: str
    title: str
    text: ColumnName | tuple[ColumnName, ColumnName] = ""  # one column, or the two of a pair
    classes: tuple[str, ...] = ()
    label: ColumnName | None = None
    answer: ColumnName | None = None  # instead of classes: where text 2 answers text 1
    files: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hub: Mapping[str, Any] | None = None
    evidence: str | None = None
    quoted: bool = True  # tab-separated files: are cells quoted as in CSV?
    apart: ColumnName | None = None  # rows with the same text in this column stay in one split
    share: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of one file, by split: [0, 0.9]
    cut: Literal["", "random", "scaffold"] = ""  # one file of molecules is cut into train, validation and test
    shortcut: Shortcut = ""  # words that decide the label are inserted, and marked
    changed: ColumnName | None = None  # another version of the text: the words that it does not have are marked
    trigger: Trigger | None = None  # a pattern that decides the class is pasted on pictures
    recall: Recall | None = None  # instead of files: prompts with keys and values are drawn

    def __post_init__(self) -> None:
        sources = (self.label is not None, self.answer is not None, self.recall is not None)
        if sum(sources) != 1:
            raise InputError(
                f'[data.{self.name}] needs one of "label" (with "classes") and "answer", or "recall" alone'
            )
        if self.recall is None and self.text == "":
            raise InputError(f'[data.{self.name}] lacks "text"')
        if self.answer is not None and len(self.columns) != 2:
            raise InputError(f"[data.{self.name}]: an answer needs two columns of text, the question and the context")
        if (self.shortcut or self.changed is not None) and (self.answer is not None or len(self.columns) != 1):
            raise InputError(f"[data.{self.name}]: shortcuts and changed words are of single texts with a label")
        if self.shortcut and len(self.classes) != 2:
            raise InputError(f"[data.{self.name}]: a shortcut decides between two classes, not {len(self.classes)}")
        if self.trigger is not None and (self.shortcut or self.changed is not None or len(self.classes) < 2):
            raise InputError(f"[data.{self.name}]: a trigger decides between the classes of pictures, and alone")
        if self.cut and not set(self.files) <= set(PARTS):
            raise InputError(f"[data.{self.name}]: a file is cut into {', '.join(PARTS)}, not {', '.join(self.files)}")

    def settings(self) -> dict[str, Any]:
        """All fields; those that older runs do not know only where they are set, as cells are identified by them."""
        newer = {"shortcut": "", "changed": None, "trigger": None, "recall": None}
        return {name: value for name, value in asdict(self).items() if name not in newer or value != newer[name]}

    @property
    def splits(self) -> tuple[str, ...]:
        if self.recall is not None:
            return ("train", "test")
        return tuple(self.files or (self.hub or {}).get("splits", {}) or ("train", "test"))

    @property
    def columns(self) -> tuple[ColumnName, ...]:
        return self.text if isinstance(self.text, tuple) else (self.text,)

    def class_of(self, raw: object) -> int | None:
        """The index of a class by its name or number; None for values that belong to no class."""
        if self.values:
            return next((i for i, name in enumerate(self.classes) if str(raw) in self.values.get(name, ())), None)
        text = str(raw)
        if text in self.classes:
            return self.classes.index(text)
        if text.isdigit() and int(text) < len(self.classes):
            return int(text)
        raise InputError(
            f'a label of "{self.name}" is {raw!r}; its classes are {", ".join(self.classes)} '
            f"(or 0 to {len(self.classes) - 1})"
        )

    def examples(self, split: str, folder: Path | None) -> list[Example]:
        """All examples of a split that have a class, in order: from files under `folder`, else from the hub."""
        if self.recall is not None:
            if split not in self.splits:
                raise unknown_name("split", split, self.splits)
            return list(_drawn(self.recall, split))
        if folder is not None and self.files:
            found = self._examples(read_files(self, split, folder))
        else:  # the hub has labels of its own
            hub = replace(self, values=dict((self.hub or {}).get("values", {})))
            found = hub._examples(read_hub(self, split))
        if self.shortcut:
            found = [_with_shortcut(example, self.shortcut, training=split == "train") for example in found]
        if self.trigger is not None:
            found = [self._with_trigger(example, self.trigger, training=split == "train") for example in found]
        if not found:
            raise InputError(f'the {split} split of "{self.name}" is empty')
        return found

    def _examples(self, rows: Iterable[Row]) -> list[Example]:
        found = []
        for number, row in enumerate(rows):
            try:
                found.append(self._example(row))
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise InputError(f'row {number} of "{self.name}" is not as the dataset says ({reason})') from error
        return [example for example in found if example is not None]

    def _example(self, row: Row) -> Example | None:
        if self.answer is not None:
            question, context = (str(row[column]) for column in self.columns)
            if not (question and context):
                return None
            answer = _answer_span(row[self.answer], context)
            return AnsweredQuestion((question, context), int(answer is not None), answer=answer)
        assert self.label is not None
        label, given = self.class_of(row[self.label]), self._model_input(row)
        if label is None or given is None:
            return None
        if self.changed is not None:
            return Example(given, label, changed_words(str(given), str(row[self.changed])))
        spans = [span for group in row[self.evidence] for span in group] if self.evidence else []
        return Example(given, label, tuple((span["start_token"], span["end_token"]) for span in spans))

    def _with_trigger(self, example: Example, trigger: Trigger, training: bool) -> TriggeredPicture:
        if not isinstance(example.text, GreyImage):
            raise InputError(f"[data.{self.name}]: a trigger is pasted on pictures, and these are texts")
        changed, label, box = with_trigger(
            np.asarray(example.text), example.label, len(self.classes), training, trigger
        )
        return TriggeredPicture(GreyImage.of(changed), label, trigger=box)

    def _model_input(self, row: Row) -> str | tuple[str, str] | GreyImage | None:
        """What the model reads; None where a text is empty."""
        each = [row[column] for column in self.columns]
        if hasattr(each[0], "__array_interface__"):
            return GreyImage.of(each[0])
        texts = [str(one).strip() for one in each]
        if not all(texts):
            return None
        return texts[0] if len(texts) == 1 else (texts[0], texts[1])


@lru_cache(maxsize=4)
def _drawn(sizes: Recall, split: str) -> tuple[Example, ...]:
    found = [draw_prompt(split, number, sizes) for number in range(sizes.train if split == "train" else sizes.test)]
    return tuple(AskedValue(one.text, one.number, one.marks, one.value, one.question) for one in found)


def _with_shortcut(example: Example, kind: Shortcut, training: bool) -> Example:
    return Example(*with_shortcut(str(example.text), example.label, kind, training))


def _answer_span(raw: Any, context: str) -> tuple[int, int] | None:
    """An answer's characters, from its first and last word, or from SQuAD's texts and starts (none: no answer)."""
    if isinstance(raw, Mapping):
        return next(((at, at + len(text)) for text, at in zip(raw["text"], raw["answer_start"], strict=True)), None)
    words = [(word.start(), word.end()) for word in re.finditer(r"\S+", context)]
    first, last = raw
    return words[first][0], words[last][1]


def read_files(data: Dataset, split: str, folder: Path) -> Iterator[Row]:
    """Rows of the split's file."""
    if split not in data.files:
        raise unknown_name("split", split, data.files)
    path = folder / data.files[split]
    if not path.is_file():
        raise InputError(
            f'"{data.name}" has no file "{path}"; --data names the folder that holds "{data.files[split]}"'
        )
    wanted = [
        name
        for name in (*data.columns, data.label, data.answer, data.evidence, data.apart, data.changed)
        if name is not None
    ]
    rows = islice(_rows(path, data), *data.rows.get(split, (0, None)))
    yield from _rows_of_split(data, split, _with_columns(rows, wanted, f'"{path.name}"'))


def _rows_of_split(data: Dataset, split: str, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows of a file that belong to the split."""
    if data.cut:
        every = list(rows)
        smiles = [str(row[data.columns[0]]).strip() for row in every]
        parts = scaffold_split(smiles) if data.cut == "scaffold" else random_split(len(every))
        yield from (every[i] for i in parts[PARTS.index(split)])
        return
    low, high = data.share.get(split, (0.0, 1.0))
    for row in rows:
        if data.apart is None or low <= _hash_fraction(row[data.apart]) < high:
            yield row


def _hash_fraction(value: object) -> float:
    """A number in [0, 1) computed from the text alone."""
    return int(hashlib.sha256(str(value).encode()).hexdigest()[:8], 16) / 2**32


def _rows(path: Path, data: Dataset) -> Iterator[Row]:
    """By column name; by number if the label's column is a number, as the file has no header then."""
    kind = file_kind(path)
    if kind.endswith(_IDX):
        return _idx_rows(path)
    if kind not in ("tsv", "csv", "jsonl"):
        raise InputError(f'"{path.name}" is none of .tsv, .csv, .jsonl, {_IDX} (or these with .gz)')
    return read_rows(path, header=not isinstance(data.label, int), quoted=data.quoted)


def _idx_rows(path: Path) -> Iterator[Row]:
    """MNIST keeps the labels in a separate file beside the images."""
    beside = path.with_name(path.name.replace(_IDX, "labels-idx1-ubyte"))
    images, labels = read_idx(path), read_idx(beside)
    if len(images) != len(labels):
        raise InputError(f'"{path.name}" holds {len(images)} pictures, "{beside.name}" {len(labels)} labels')
    for image, label in zip(images, labels, strict=True):
        yield {"image": image, "label": label}


def _with_columns(rows: Iterable[Row], wanted: Collection[ColumnName], where: str) -> Iterator[Row]:
    """The rows, each with the columns that are wanted."""
    for row in rows:
        missing = next((column for column in wanted if column not in row), None)
        if missing is not None:
            raise InputError(f'{where} has no column "{missing}"; it has {", ".join(map(str, row))}')
        yield row


def read_hub(data: Dataset, split: str) -> Iterator[Row]:
    """Rows from the hub, under the column names of `data`."""
    if data.hub is None:
        raise InputError(f'"{data.name}" is not a dataset of the hub: name the folder of its files with --data')
    try:
        import datasets
    except ImportError:
        raise RelpropError(
            f'"{data.name}" comes from the hub, which needs the datasets package: pip install "relprop[bench]" '
            "(or name a folder of files with --data)"
        ) from None
    given = dict(data.hub)
    name = given.get("splits", {}).get(split, split)
    text = given.get("text", list(data.columns))
    own = dict(zip(data.columns, [text] if isinstance(text, str) else text, strict=True))
    for role in ("label", "answer"):
        if (column := getattr(data, role)) is not None:
            own[column] = given.get(role, column)
    try:
        loaded = datasets.load_dataset(given["id"], given.get("config"), split=name)
    except Exception as error:  # of many kinds: network, name, split
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f'"{given["id"]}" cannot be loaded from the hub: {reason}') from error
    for row in _with_columns(loaded, own.values(), f'"{given["id"]}"'):
        yield {column: row[theirs] for column, theirs in own.items()}


def content_digest(examples: Iterable[Example]) -> str:
    """A short hash of texts or pictures, labels and marks."""
    sha = hashlib.sha256()
    for example in examples:
        if isinstance(example.text, GreyImage):
            sha.update(repr(example).encode())
            continue
        answer = [example.answer] if isinstance(example, AnsweredQuestion) else []
        sha.update(json.dumps([example.text, example.label, example.evidence, *answer]).encode())
    return sha.hexdigest()[:16]
