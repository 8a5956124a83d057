"""Questions about a context: which window answers, and what is explained of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.model_call import call, evaluating
from relprop.engine.restoring import restoring
from relprop.errors import InputError, ModelError, TargetError
from relprop.outputs import output_field
from relprop.readers import tokens
from relprop.readers.boxed_words import Document
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow
from relprop.targets import ANSWER_PARTS, Against, Answer, name_of
from relprop.tasks.spans import Span, WindowLogits, no_answer_span, span_of
from relprop.tasks.task import Answered, Query
from relprop.types import Attribution

NO_ANSWER = "(no answer)"
LONGEST = 1_000_000  # characters: a context is read whole, window by window
READ_AT_ONCE = 8  # windows, which are long
Characters = tuple[int, int]


def paired(given: object, question: object, context: object) -> Any:
    """A question with its context, or a list of both: one context serves many questions, and the other way round."""
    if given is not None or question is None or context is None:
        raise InputError("a question needs its context: explainer(question=..., context=...), and no other text")
    if isinstance(question, str) and isinstance(context, str | Document):
        return question, context
    if not (isinstance(question, str | list) and isinstance(context, str | list | Document)):
        got = " and ".join(type(one).__name__ for one in (question, context))
        raise InputError(f"question and context are texts, or lists of texts, got {got}")
    count = max(len(one) for one in (question, context) if isinstance(one, list))
    questions, contexts = (one if isinstance(one, list) else [one] * count for one in (question, context))
    if len(questions) != len(contexts):
        raise InputError(f"{len(questions)} questions for {len(contexts)} contexts")
    return list(zip(questions, contexts, strict=True))


@dataclass(frozen=True)
class WantedAnswer:
    """An answer that is to be explained: the places where the context has it. Without any, that there is no answer."""

    places: tuple[Characters, ...] = ()
    part: str = "span"
    predicted: tuple[int, Span] | None = None  # the window that says it, and its tokens there

    def spans(self, number: int, read: WindowLogits) -> list[Span]:
        """Where it stands in a window."""
        if self.predicted is not None and self.predicted[0] == number:
            return [self.predicted[1]]
        if not self.places:
            return [read.nowhere]
        return [span for place in self.places if (span := span_of(read.window, *place)) is not None]

    def target(self, span: Span) -> Answer:
        return Answer(None if self.part == "end" else span.first, None if self.part == "start" else span.last)

    def named(self, context: str) -> str:
        said = repr(context[slice(*self.places[0])]) if self.places else NO_ANSWER
        return said if self.part == "span" else f"{self.part} of {said}"


class AnswerSpan:
    """The logits of an answer's first and last token.

    `target`: "start", "end", an answer of the context by its text or its characters, "" for no answer, a pair of
    answers, or None for the predicted one.
    """

    takes_questions = True

    def __init__(self, model: nn.Module, reader: TextReader) -> None:
        self.model = model
        self.reader = reader
        self.tokenizer = reader.tokenizer

    @property
    def name(self) -> str:
        return "questions"

    def target(self, target: object) -> object:
        return target

    def check_evaluation(self) -> None:
        raise InputError(
            "evaluate reads the probability of a class, and an answer has none; to compare methods on answers run "
            "relprop bench run song24-qa"
        )

    def queries(self, given: Sequence[object], targets: Sequence[object], max_length: int | None = None) -> list[Query]:
        """Of each context the window that answers, or that holds the answer which the target names."""
        every = [self._windows(one, max_length, _which(number, given)) for number, one in enumerate(given)]
        logits = iter(self._logits([window for own in every for window in own]))
        queries = []
        for number, target in enumerate(targets):
            windows = [next(logits) for _ in every[number]]
            try:
                queries.append(_query(windows[0].window.texts[1], windows, target))
            except TargetError as error:
                raise TargetError(f"{_which(number, given)}{error}") from None
        return queries

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        assert query.answer is not None
        return query.answer

    def _windows(self, pair: object, max_length: int | None, which: str) -> list[TokenRow]:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"{which}a question needs its context: explainer(question=..., context=...)")
        question, context = pair
        for name, part in (("question", question), ("context", context)):
            if isinstance(part, str) and not part.strip():
                raise InputError(f"{which}the {name} is empty")
            if isinstance(part, str) and len(part) > LONGEST:
                raise InputError(f"{which}the {name} has {len(part):,} characters; at most {LONGEST:,} are read")
        try:
            return self.reader.windows(question, context, max_length)
        except InputError as error:
            raise InputError(f"{which}{error}") from None

    @restoring
    def _logits(self, windows: Sequence[TokenRow]) -> list[WindowLogits]:
        """What the model says of every window, in batches and without a backward pass."""
        found: dict[int, WindowLogits] = {}
        for batch in self.reader.batches(windows, READ_AT_ONCE):
            with torch.no_grad(), evaluating(self.model):
                outputs = call(self.model, self.reader.inputs([windows[i] for i in batch]))
            start, end = (_output(outputs, name) for name in ("start_logits", "end_logits"))
            for row, i in enumerate(batch):
                ends = [tokens.unpad(self.tokenizer, one[row], windows[i]) for one in (start, end)]
                first, last = torch.tensor(ends, dtype=torch.float64)
                found[i] = WindowLogits(windows[i], first, last, no_answer_span(self.tokenizer, windows[i]))
        return [found[i] for i in range(len(windows))]


def _which(number: int, given: Sequence[object]) -> str:
    return f"question {number} of the list: " if len(given) > 1 else ""


def _output(outputs: object, name: str) -> Tensor:
    logits = output_field(outputs, name)
    if logits is None:
        raise ModelError(f"the model answers without {name}: relprop explains heads that score every token's place")
    return logits


def _query(context: str, reads: Sequence[WindowLogits], target: object) -> Query:
    """The window that is explained, and the target there."""
    number, span = _predicted(reads)
    characters = reads[number].characters(span)
    prediction = NO_ANSWER if characters is None else context[slice(*characters)]
    probability = reads[number].probability(span)
    likeliest = WantedAnswer(() if characters is None else (characters,), predicted=(number, span))
    if callable(target):
        return Query(_row(reads, number), target, Answered(name_of(target), prediction, probability))
    wanted = [_wanted(one, context, likeliest) for one in _answers(target)]
    number, spans = _window(reads, wanted, context)
    exact = [answer.target(span) for answer, span in zip(wanted, spans, strict=True)]
    name = " - ".join(answer.named(context) for answer in wanted)
    row = replace(_row(reads, number), answer=reads[number].characters(spans[0]))
    answer = Answered(name, prediction, probability)
    return Query(row, exact[0] if len(exact) == 1 else Against(*exact), answer)


def _predicted(reads: Sequence[WindowLogits]) -> tuple[int, Span]:
    """The answer that stands out most from none, and its window; none, where none does."""
    number = max(range(len(reads)), key=lambda i: _promise(reads[i]))
    best = reads[number].best
    return number, reads[number].nowhere if best is None or _promise(reads[number]) <= 0 else best


def _promise(read: WindowLogits) -> float:
    """How near a window comes to an answer."""
    return -torch.inf if read.best is None else read.lead(read.best)


def _answers(target: object) -> tuple[object, ...]:
    """A pair is two answers, unless it is the characters of one."""
    if isinstance(target, tuple) and len(target) == 2 and not all(isinstance(one, Integral) for one in target):
        return target
    return (target,)


def _wanted(target: object, context: str, predicted: WantedAnswer) -> WantedAnswer:
    if target is None or target in ANSWER_PARTS:
        return replace(predicted, part=target or "span")
    if isinstance(target, str):
        return WantedAnswer(_occurrences(target.strip(), context))
    if not isinstance(target, tuple) or len(target) != 2 or not all(isinstance(one, Integral) for one in target):
        raise TargetError(
            'a question-answering target is "start", "end", "span", an answer by its text or by its characters '
            f'(start, stop) of the context, "" for no answer, or a pair of answers; got {target!r}'
        )
    begin, stop = target
    inside = context[begin:stop]
    if not 0 <= begin < stop <= len(context) or not inside.strip():
        raise TargetError(
            f"characters {begin} to {stop} are no answer: the context has {len(context)}, and blanks are none"
        )
    return WantedAnswer(((begin + len(inside) - len(inside.lstrip()), stop - len(inside) + len(inside.rstrip())),))


def _occurrences(answer: str, context: str) -> tuple[Characters, ...]:
    """Every place of the answer; those inside other words only where there are no others."""
    if not answer:
        return ()
    places = tokens.occurrences(answer, context)
    if not places:
        raise TargetError(
            f"the answer {answer!r} does not occur in the context; spell it as the context does, or give its "
            'characters (start, stop); target="" explains that there is no answer'
        )
    return tuple(places)


def _window(reads: Sequence[WindowLogits], wanted: Sequence[WantedAnswer], context: str) -> tuple[int, list[Span]]:
    """The window that holds all that is wished and scores it best; of equals, the one nearest to an answer."""
    options: list[tuple[float, float, int, list[Span]]] = []
    for number, read in enumerate(reads):
        found = [answer.spans(number, read) for answer in wanted]
        if all(found):
            spans = [max(own, key=read.lead) for own in found]
            options.append((sum(map(read.lead, spans)), _promise(read), number, spans))
    if not options:
        names = " and ".join(answer.named(context) for answer in wanted)
        raise TargetError(f"no window of the context holds {names}: give a larger max_length, or a shorter answer")
    *_, number, spans = max(options, key=lambda option: option[:2])
    return number, spans


def _row(reads: Sequence[WindowLogits], number: int) -> TokenRow:
    """A window; where it is one of several, with a note that says which."""
    window = reads[number].window
    if len(reads) == 1:
        return window
    places = [
        (unit.start, unit.end) for unit in window.units
        if unit.segment == 1 and unit.start is not None and unit.end is not None
    ]  # fmt: skip
    covered = f"characters {places[0][0]} to {places[-1][1]} of the context"
    return replace(window, cut=f"window {number + 1} of {len(reads)}: {covered}")
