"""`relprop.audit.names`: find the mentions, explain the texts that hold them, compare the groups ([Ali22] 6.4)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relprop.audit.findings import SHUFFLED, Findings, Mention
from relprop.audit.mentions import Place, cased, find, swap_mentions
from relprop.audit.result import NameAudit
from relprop.audit.terms import ambiguous_words, check_groups, first_names, read_terms, without
from relprop.errors import InputError, ModelError, TargetError
from relprop.explainer import Explainer
from relprop.explanation import Explanation
from relprop.model_config import model_name
from relprop.progress import tracked
from relprop.readers.text import TextReader
from relprop.readers.tokens import parts_of, without_truncation_warnings
from relprop.registry import METHODS
from relprop.tasks.answers import AnswerSpan
from relprop.tasks.token import TokenScore

ClassName = int | str
METHOD, DRAWS = "lrp_ah_ln", 9999  # the paper's method


def names(
    explainer: Explainer,
    texts: Sequence[str],
    terms: Mapping[str, str] | str | os.PathLike[str] | None = None,
    *,
    contrast: tuple[ClassName, ClassName] | None = None,
    method: str = METHOD,
    exclude: Iterable[str] | None = None,
    ignore_case: bool | None = None,
    shuffles: int = 0,
    draws: int = DRAWS,
    seed: int = 0,
    batch_size: int = 32,
    progress: bool | None = None,
    **options: Any,
) -> NameAudit:
    """How much names of each group speak for one class against another, over a corpus.

    `terms`: group by term, or a CSV of them; None takes relprop's first names, female and male. `contrast`: two
    classes; None is positive against negative, or class 1 against class 0 of two. `exclude`: words not to look for;
    None leaves ambiguous ones (will, grace, may) out of relprop's own names, and nothing out of others. `ignore_case`:
    None does so where the corpus is in lower case. `shuffles`: how many times the names swap places at random, which
    separates the effect of the names from that of their sentences. `draws`: of the permutation tests.
    Other options are the method's own.
    """
    record = METHODS[method]
    _check_request(explainer, record.signed, method, shuffles, draws)
    target = _contrast(explainer, contrast)
    wanted, left_out = _wanted_terms(terms, exclude)
    every = list(dict.fromkeys(texts))  # the same text twice is one piece of evidence
    lower = not cased(every) if ignore_case is None else ignore_case
    places = find(every, wanted, ignore_case=lower)
    _check_found(every, places, len(wanted), lower)
    asked = {**options, "target": target, "method": record.name, "ledger": False, "batch_size": batch_size}
    mentions, kept = _measure_mentions(explainer, every, places, asked, progress)
    if not mentions:
        raise InputError("every mention lies beyond the part of its text that the model reads")
    groups = list(dict.fromkeys(wanted.values()))
    found = Findings.of(mentions, groups, draws=draws, seed=seed)
    shown = [found.example(name).sentence for side in found.extremes() for name in side]
    examples = tuple(_explain(explainer, shown, asked))
    audit = NameAudit(
        model=model_name(explainer.model),
        method=record.name,
        contrast=examples[0].target,
        texts=len(every),
        ignored_case=lower,
        left_out=left_out,
        cut=len(places) - len(mentions),
        found=found,
        examples=examples,
        shuffles=shuffles,
    )
    if not shuffles:
        return audit
    again = [_shuffle_and_measure(explainer, every, kept, asked, progress, seed + i) for i in range(shuffles)]
    by_name, by_place = ([one for pair in again for one in pair[side]] for side in (0, 1))
    return replace(
        audit,
        by_name=Findings.of(by_name, groups, draws=draws, seed=seed, levels=SHUFFLED),
        by_place=Findings.of(by_place, groups, draws=draws, seed=seed, levels=SHUFFLED),
    )


def _check_request(explainer: Explainer, signed: bool, method: str, shuffles: int, draws: int) -> None:
    if not isinstance(explainer.reader, TextReader) or isinstance(explainer.task, AnswerSpan):
        raise InputError("an audit of names needs a model that classifies texts")
    if not signed:
        raise InputError(
            f'method "{method}" gives no signs, so it cannot tell support from opposition: take one that does '
            "(relprop methods: signed), such as lrp_ah_ln"
        )
    if shuffles < 0 or draws < 1:
        raise InputError(f"shuffles are 0 or more and draws 1 or more, got {shuffles} and {draws}")


def _contrast(explainer: Explainer, given: tuple[ClassName, ClassName] | None) -> tuple[ClassName, ClassName]:
    if given is not None:
        if not isinstance(given, tuple | list) or len(given) != 2 or given[0] == given[1]:
            raise TargetError(f"a contrast is two different classes, got {given!r}")
        return given[0], given[1]
    labels = {} if isinstance(explainer.task, TokenScore) else explainer.labels
    by_name = {name.casefold(): index for index, name in labels.items()}
    if {"positive", "negative"} <= set(by_name):
        return by_name["positive"], by_name["negative"]
    if len(labels) == 2:
        return 1, 0
    known = f"the model's classes are {', '.join(labels.values())}" if labels else "the model names no classes"
    raise TargetError(f"{known}: say which two to compare, as contrast=(A, B) or --contrast A,B")


def _wanted_terms(
    terms: Mapping[str, str] | str | os.PathLike[str] | None, exclude: Iterable[str] | None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The terms to look for, and those left out."""
    if isinstance(exclude, str):
        raise InputError("exclude is a list of words, not one word")
    if exclude is None:
        exclude = ambiguous_words() if terms is None else ()
    given = first_names() if terms is None else terms if isinstance(terms, Mapping) else read_terms(terms)
    wanted = without(given, exclude)
    return check_groups(wanted), tuple(sorted(set(given) - set(wanted)))


def _check_found(texts: Sequence[str], places: Sequence[Place], terms: int, ignore_case: bool) -> None:
    if not texts:
        raise InputError("there are no texts to audit")
    if not places:
        hint = "" if ignore_case else " in this case; to match in any case, ignore_case=True (--ignore-case)"
        raise InputError(f"none of the {terms:,} names occurs in the {len(texts):,} texts{hint}")
    for number in {place.text for place in places}:
        parts_of(texts[number])


def _measure_mentions(
    explainer: Explainer, texts: Sequence[str], places: Sequence[Place], asked: dict[str, Any], progress: bool | None
) -> tuple[list[Mention], list[Place]]:
    """The mentions with their relevance, and their places, in order; without those that the model cut off."""
    order = sorted({place.text for place in places}, key=lambda i: len(texts[i]))
    by_text: dict[int, list[Place]] = {}
    for place in places:
        by_text.setdefault(place.text, []).append(place)
    found: dict[Place, Mention] = {}
    size = max(1, asked["batch_size"])
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    for batch in tracked(batches, "explaining", progress):
        for number, one in zip(batch, _explain(explainer, [texts[i] for i in batch], asked), strict=True):
            for place in by_text[number]:
                score = _relevance(one, place)
                if score is not None:
                    found[place] = Mention(
                        number, place.start, place.end, place.term, place.group, score, one.value, texts[number]
                    )
    kept = [place for place in places if place in found]
    return [found[place] for place in kept], kept


def _relevance(explanation: Explanation, place: Place) -> float | None:
    """The sum over the sub-words that overlap the mention; None if the model does not read that far."""
    inside, read = [], []
    for unit, score in zip(explanation.units, explanation.scores, strict=True):
        if unit.special:
            continue
        if unit.start is None or unit.end is None:
            raise InputError("names cannot be found: the tokenizer gives no positions (use a fast tokenizer)")
        read += [unit.start, unit.end]
        if unit.start < place.end and unit.end > place.start:
            inside.append(score)
    if not inside or (explanation.part.truncated and not min(read) <= place.start < place.end <= max(read)):
        return None
    if not all(map(math.isfinite, inside)):
        raise ModelError(f'relevance is not finite at "{place.term}" in {explanation.text[0]!r:.60}')
    return float(sum(inside))


def _explain(explainer: Explainer, texts: list[str], asked: dict[str, Any]) -> list[Explanation]:
    """The explanations, without warnings about texts that are cut: mentions that are lost are counted instead."""
    with without_truncation_warnings():
        found: list[Explanation] = explainer(texts, progress=False, **asked) if texts else []
    return found


def _shuffle_and_measure(
    explainer: Explainer,
    texts: Sequence[str],
    places: Sequence[Place],
    asked: dict[str, Any],
    progress: bool | None,
    seed: int,
) -> tuple[list[Mention], list[Mention]]:
    """The mentions after a random swap of names: grouped by the new name, and by the name that was there before."""
    order = np.random.default_rng([seed, len(places)]).permutation(len(places))
    written, moved = swap_mentions(texts, places, order.tolist())
    mentions, kept = _measure_mentions(explainer, written, moved, asked, progress)
    before = dict(zip(moved, places, strict=True))
    owners = [before[place] for place in kept]
    by_place = [replace(one, name=own.term, group=own.group) for one, own in zip(mentions, owners, strict=True)]
    return mentions, by_place
