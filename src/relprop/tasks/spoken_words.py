"""Words that a CTC model hears: each is the sum of the logits of its characters at their frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.model_call import call, evaluating
from relprop.engine.restoring import restoring
from relprop.errors import InputError, ModelError, TargetError
from relprop.outputs import logits_of
from relprop.readers import read_all
from relprop.readers.audio import AudioReader, SoundRow
from relprop.readers.tokens import occurrences
from relprop.targets import SumOf, TokenAt
from relprop.tasks.task import Answered, Query
from relprop.types import Attribution, ExplainedStep

READ_AT_ONCE = 8
_BEGINS = ("▁", "Ġ", " ")  # how tokens of several characters say that a word begins
_FORMS = "a target is a word of the transcript, its (start, stop) characters, or None for every word"


@dataclass(frozen=True)
class SpokenWord:
    """A word of the transcript: its characters there, and the frames and tokens that it was read from."""

    text: str
    start: int
    tokens: tuple[tuple[int, int], ...]  # (frame, token id)

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class SpokenWords:
    """The sum of the logits of a word's characters, each at the frames where it is the likeliest.

    `target`: a word of the transcript, its characters there, or None for every word, a step for each.
    """

    name = "sounds"

    def __init__(self, model: nn.Module, reader: AudioReader) -> None:
        self.model, self.reader = model, reader
        if reader.tokenizer is None:
            raise ModelError(
                "the model writes down what it hears, and its vocabulary is missing: give its processor, with its "
                "tokenizer, not the feature extractor alone"
            )
        self.tokenizer = reader.tokenizer

    def target(self, target: object) -> object:
        return target

    def check_evaluation(self) -> None:
        raise InputError("evaluate reads the probability of one class per sound, and this model has words")

    def queries(self, given: Sequence[object], targets: Sequence[object], max_length: int | None = None) -> list[Query]:
        rows = read_all(self.reader, given, max_length)
        logits = _logits(self.reader, rows)
        queries = []
        for number, (row, own, target) in enumerate(zip(rows, logits, targets, strict=True)):
            try:
                queries.append(self._query(row, own, target))
            except TargetError as error:
                which = f"sound {number} of the list: " if len(given) > 1 else ""
                raise TargetError(f"{which}{error}") from None
        return queries

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        return query.answer if query.answer is not None else Answered(found.target[number])

    def _query(self, row: SoundRow, logits: Tensor, target: object) -> Query:
        if callable(target):
            return Query(row, target)
        words = self.words(logits)
        transcript = " ".join(word.text for word in words)
        if target is None:
            steps = tuple(self._word(row, logits, [word], transcript) for word in words)
            if not steps:
                raise InputError(
                    "the model hears no word in the sound: the likeliest token of every frame is the blank"
                )
            count = f"sum of {len(steps)} words" if len(steps) != 1 else "the only word"
            return Query(row, None, Answered(count, transcript), steps)
        return self._word(row, logits, _named(words, transcript, target), transcript)

    def _word(self, row: SoundRow, logits: Tensor, words: Sequence[SpokenWord], transcript: str) -> Query:
        places = [place for word in words for place in word.tokens]
        text = " ".join(word.text for word in words)
        step = row.sound.duration / len(logits)
        first, last = places[0][0] * step, (places[-1][0] + 1) * step
        target = f"{text!r} heard at {first:.2f}-{last:.2f} s"
        sure = math.exp(sum(logits[frame].log_softmax(-1)[token].item() for frame, token in places))
        answer = Answered(target, transcript, None, ExplainedStep((), repr(text), target, math.nan, sure))
        terms = tuple(TokenAt(frame, token) for frame, token in places)
        return Query(row, terms[0] if len(terms) == 1 else SumOf(terms), answer)

    def words(self, logits: Tensor) -> list[SpokenWord]:
        """What greedy decoding reads from [frames, vocabulary]: runs of the likeliest token, without blanks."""
        best, blank = logits.argmax(-1).tolist(), self._blank
        delimiter = getattr(self.tokenizer, "word_delimiter_token_id", None)
        special = {blank, *self.tokenizer.all_special_ids} - {delimiter}
        words: list[list[list[tuple[int, int]]]] = [[]]  # per word its runs
        for token, group in groupby(enumerate(best), key=lambda pair: pair[1]):
            run = list(group)
            if token in special:
                continue
            if token == delimiter or self._spelt(token).startswith(_BEGINS):
                words.append([])
            if token != delimiter:
                words[-1].append(run)
        found, start = [], 0
        for runs in words:
            text = "".join(self._spelt(run[0][1]) for run in runs).strip("".join(_BEGINS))
            if text:
                found.append(SpokenWord(text, start, tuple(place for run in runs for place in run)))
                start += len(text) + 1
        return found

    @property
    def _blank(self) -> int:
        """CTC's blank: in transformers the token of padding."""
        for owner in (self.tokenizer, getattr(self.model, "config", None)):
            token = getattr(owner, "pad_token_id", None)
            if isinstance(token, int):
                return token
        raise ModelError("neither tokenizer nor config say which token is CTC's blank (pad_token_id)")

    def _spelt(self, token: int) -> str:
        return str(self.tokenizer.convert_ids_to_tokens(token))


def _named(words: Sequence[SpokenWord], transcript: str, target: object) -> list[SpokenWord]:
    """The words that a target names."""
    if isinstance(target, str):
        places = occurrences(target, transcript) or occurrences(target.casefold(), transcript.casefold())
        if len(places) != 1:
            heard = f"not in the transcript {transcript!r:.200}" if not places else f"{len(places)} times in it"
            more = f": give the characters of one, {', '.join(map(str, places[:5]))}" if places else ""
            raise TargetError(f"the word {target!r:.60} is {heard}{more}")
        begin, stop = places[0]
    elif isinstance(target, tuple) and len(target) == 2 and all(isinstance(one, Integral) for one in target):
        begin, stop = target
    else:
        raise TargetError(f"{_FORMS}; got {target!r:.80}")
    inside = [word for word in words if word.start < stop and word.end > begin]
    if not inside:
        raise TargetError(f"characters {begin} to {stop} are no word of the transcript {transcript!r:.200}")
    return inside


@restoring
def _logits(reader: AudioReader, rows: Sequence[SoundRow]) -> list[Tensor]:
    """What the model hears at every frame of each sound: [frames, vocabulary], without a backward pass."""
    found: dict[int, Any] = {}
    for batch in reader.batches(rows, READ_AT_ONCE):
        with torch.no_grad(), evaluating(reader.model):
            logits = logits_of(call(reader.model, reader.inputs([rows[i] for i in batch])))
        if logits.dim() != 3:
            raise ModelError(f"a CTC model gives scores for every frame; this one gave {list(logits.shape)}")
        found |= {i: logits[number].double().cpu() for number, i in enumerate(batch)}
    return [found[i] for i in range(len(rows))]
