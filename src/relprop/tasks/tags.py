"""Labels of tokens: named entities, parts of speech and the like. A word's first token stands for it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from numbers import Integral

from torch import Tensor, nn

from relprop.engine.model_call import labels_of
from relprop.errors import InputError, TargetError, unknown_name
from relprop.readers import read_all
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow, occurrences
from relprop.targets import SumOf, TokenAt, class_index
from relprop.tasks.steps import step_of, token_logits
from relprop.tasks.task import Answered, Query
from relprop.types import Attribution, ExplainedStep

NO_ENTITY = "(no entity)"
OUTSIDE = "O"  # the label of a word that belongs to no entity
# How labels say where in an entity a word stands: begin, inside, end, single; or begin, inside, last, unit.
_POSITION = re.compile(r"([BIESLU])[-_](.+)", re.DOTALL)
_FORMS = (
    'a target is a word and its label, such as ("Berlin", "B-LOC"), where (start, stop) characters may stand for the '
    "word and a pair of labels for their difference; a label alone; or None for every entity"
)


@dataclass(frozen=True)
class TaggedWord:
    """A word of the text: the token that stands for it, and its characters."""

    token: int
    segment: int
    start: int
    end: int


@dataclass(frozen=True)
class TaggedText:
    """A text, its words, and the logits [words, labels] that the model gives them."""

    row: TokenRow
    words: tuple[TaggedWord, ...]
    logits: Tensor

    def quoted(self, words: Sequence[int]) -> str:
        """The words as the text has them; with their characters, where it has them more than once."""
        first, last = self.words[words[0]], self.words[words[-1]]
        text = self.row.texts[first.segment]
        said = text[first.start : last.end]
        places = [one for own in self.row.texts for one in occurrences(said, own)]
        return repr(said) if len(places) < 2 else f"{said!r} ({first.start}-{last.end})"


class TokenClass:
    """The logit of a label at a word.

    `target`: a pair of the word (its text, or its characters) and the label; a label alone is read where it is
    strongest; a pair of labels at a word is their difference; None is every entity that the model finds, a step for
    each. The type of an entity ("LOC" of "B-LOC" and "I-LOC") stands for the likeliest of its labels at each word.
    """

    name = "texts"

    def __init__(self, model: nn.Module, reader: TextReader) -> None:
        self.model = model
        self.reader = reader

    @property
    def labels(self) -> dict[int, str]:
        return dict(labels_of(self.model) or {})

    def target(self, target: object) -> object:
        return target

    def check_evaluation(self) -> None:
        raise InputError("evaluate reads the probability of one class per text, and this model has labels per token")

    def queries(self, given: Sequence[object], targets: Sequence[object], max_length: int | None = None) -> list[Query]:
        rows = read_all(self.reader, given, max_length)
        words = [_words(row) for row in rows]
        logits = token_logits(self.reader, rows, [[word.token for word in own] for own in words])
        queries = []
        for number, (row, own, scores, target) in enumerate(zip(rows, words, logits, targets, strict=True)):
            try:
                queries.append(self._query(TaggedText(row, own, scores), target))
            except TargetError as error:
                which = f"text {number} of the list: " if len(given) > 1 else ""
                raise TargetError(f"{which}{error}") from None
        return queries

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        return query.answer if query.answer is not None else Answered(found.target[number])

    def _query(self, text: TaggedText, target: object) -> Query:
        if callable(target):
            return Query(text.row, target)
        if target is None:
            return self._entities(text)
        if isinstance(target, str | Integral):
            if (
                isinstance(target, str)
                and occurrences(target, "\n".join(text.row.texts))
                and not self._is_known(target)
            ):
                raise TargetError(f"{target!r:.60} is a word of the text, and its label is missing: {_FORMS}")
            choices = self._choices(target)
            word = int(text.logits[:, choices].max(1).values.argmax())
            return self._labelled(text, [word], target)
        if not isinstance(target, tuple) or len(target) not in (2, 3):
            raise TargetError(f"{_FORMS}; got {target!r:.80}")
        where, label = target[0], target[1] if len(target) == 2 else target[1:]
        return self._labelled(text, _place(text, where), label)

    def _entities(self, text: TaggedText) -> Query:
        """A step for every entity that the model finds."""
        names = [self.labels.get(index, str(index)) for index in text.logits.argmax(1).tolist()]
        found = list(_spans(text.words, names, OUTSIDE in self.labels.values()))
        steps = [self._labelled(text, span, kind) for kind, span in found]
        none = (
            f"the model finds no entity in {text.row.texts[0]!r:.60}: the likeliest label of every word is "
            f'"{OUTSIDE}"; name a word and a label to explain how near one is'
        )
        said = ", ".join(one.answer.target for one in steps if one.answer is not None) or NO_ENTITY
        count = f"sum of {len(steps)} entities" if len(steps) != 1 else "the only entity"
        warnings = () if steps else (none,)
        return Query(text.row, None, Answered(count if steps else NO_ENTITY, said), tuple(steps), warnings=warnings)

    def _labelled(self, text: TaggedText, words: list[int], label: object) -> Query:
        """A label at words: at all of them if it is a type of entity, else ("B-LOC", a difference) at the first."""
        pair = label if isinstance(label, tuple) else (label,)
        if len(pair) > 2:
            raise TargetError(f"a difference takes two labels, got {len(pair)}: {pair!r:.80}")
        one = self._name(int(pair[0])) if isinstance(pair[0], Integral) else pair[0]
        every = len(pair) == 1 and isinstance(one, str) and _POSITION.fullmatch(one) is None
        words = words if every else words[:1]
        best = [self._best(text, word, one) for word in words]
        other = self._best(text, words[0], pair[1]) if len(pair) == 2 else None
        name = str(one) if every and not self._is_label(one) else self._name(best[0])
        difference = "" if other is None else f" - {self._name(other)}"
        target = f"{name}{difference} at {text.quoted(words)}"
        probabilities = text.logits[words].softmax(-1)
        step = step_of(target, best[0], probabilities[0], self._name)
        if len(words) > 1:
            step = ExplainedStep((), name, target, math.nan, probabilities[range(len(words)), best].prod().item())
        top = probabilities.max(1)
        prediction = " ".join(map(self._name, top.indices.tolist()))
        answer = Answered(target, prediction, top.values.prod().item(), step)
        tokens = [TokenAt(text.words[word].token, index, other) for word, index in zip(words, best, strict=True)]
        return Query(text.row, tokens[0] if len(tokens) == 1 else SumOf(tuple(tokens)), answer)

    def _best(self, text: TaggedText, word: int, label: object) -> int:
        """The label; of a type of entity the likeliest of its labels, and for None of all."""
        choices = list(range(text.logits.shape[1])) if label is None else self._choices(label)
        return choices[int(text.logits[word, choices].argmax())]

    def _is_known(self, label: object) -> bool:
        return self._is_label(label) or bool(self._of_type(str(label)))

    def _of_type(self, label: str) -> list[int]:
        """The labels of a type of entity."""
        return [index for index, name in self.labels.items() if _kind(name)[1].casefold() == label.casefold()]

    def _choices(self, label: object) -> list[int]:
        """The labels that are meant: one, or those of a type of entity."""
        labels = self.labels
        if isinstance(label, str) and not self._is_label(label):
            if kinds := self._of_type(label):
                return kinds
            raise TargetError(str(unknown_name("label", label, labels.values())))
        if not isinstance(label, str | Integral):
            raise TargetError(f"{_FORMS}; got the label {label!r:.80}")
        return [class_index(label, len(labels), labels)]

    def _is_label(self, label: object) -> bool:
        if not isinstance(label, str):
            return True
        return label.isdigit() or label.casefold() in {name.casefold() for name in self.labels.values()}

    def _name(self, index: int) -> str:
        return self.labels.get(index, str(index))


def _words(row: TokenRow) -> tuple[TaggedWord, ...]:
    """The words of a text, each with its first token."""
    if any(unit.start is None and not unit.special for unit in row.units):
        raise InputError("labels of words need a fast tokenizer: only those know where a token lies in the text")
    words = []
    inside = [(i, unit) for i, unit in enumerate(row.units) if not unit.special and unit.text.strip()]
    for (segment, _), group in groupby(inside, key=lambda pair: (pair[1].segment, pair[1].word)):
        own = list(group)
        (token, first), (_, last) = own[0], own[-1]
        words.append(TaggedWord(token, segment, first.start or 0, last.end or 0))
    return tuple(words)


def _kind(label: str) -> tuple[str, str]:
    """A label as its position in an entity and the entity's type: "B-LOC" is B and LOC; without a position, inside."""
    found = _POSITION.fullmatch(label)
    return (found[1], found[2]) if found else ("I", label)


def _spans(words: Sequence[TaggedWord], labels: Sequence[str], has_outside: bool) -> Iterator[tuple[str, list[int]]]:
    """The entities: their type and words. Where every word has a label (parts of speech), every word is one."""
    open_kind, span = "", list[int]()
    for i, label in enumerate(labels):
        position, kind = _kind(label)
        joins = has_outside and span and kind == open_kind and position in "IEL"
        if joins and words[i].segment == words[span[-1]].segment:
            span.append(i)
            continue
        if span:
            yield open_kind, span
        open_kind, span = (kind, []) if label == OUTSIDE else (kind, [i])
    if span:
        yield open_kind, span


def _place(text: TaggedText, where: object) -> list[int]:
    """The words that a target names, by their text or by their characters."""
    if isinstance(where, str):
        every = [(segment, *place) for segment, own in enumerate(text.row.texts) for place in occurrences(where, own)]
        if not every:
            raise TargetError(
                f"the word {where!r:.60} is not in the text; spell it as the text does, or give its characters"
            )
        if len(every) > 1:
            places = ", ".join(f"({start}, {stop})" for _, start, stop in every[:5])
            raise TargetError(
                f"the word {where!r:.60} stands {len(every)} times in the text: give the characters of one, {places}"
            )
        segment, begin, stop = every[0]
    elif isinstance(where, tuple) and len(where) == 2 and all(isinstance(one, Integral) for one in where):
        segment, (begin, stop) = 0, where
        if not 0 <= begin < stop <= len(text.row.texts[0]):
            raise TargetError(
                f"characters {begin} to {stop} are no word: the text has {len(text.row.texts[0])} characters"
            )
    else:
        raise TargetError(f"{_FORMS}; got the word {where!r:.80}")
    inside = [
        i for i, word in enumerate(text.words) if word.segment == segment and word.start < stop and word.end > begin
    ]
    if not inside:
        raise TargetError(f"no token that the model reads lies at {where!r:.60}: it is blank, or was cut off")
    return inside
