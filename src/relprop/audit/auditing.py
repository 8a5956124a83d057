"""`relprop.audit.names`: find the mentions, explain the texts that hold them, compare the groups ([Ali22] 6.4)."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from relprop.audit.mentions import Place, cased, find, shuffled
from relprop.audit.result import SHUFFLED, Findings, Mention, NameAudit
from relprop.audit.terms import ambiguous_words, checked, first_names, read_terms, without
from relprop.domains.text import TruncationWarning, parts_of
from relprop.errors import InputError, ModelError, TargetError
from relprop.explainer import Explainer
from relprop.explanation import Explanation
from relprop.questions import Questions
from relprop.registry import METHODS
from relprop.texts import Texts

METHOD, DRAWS = "lrp_ah_ln", 9999  # the paper's method
_BLOCK = 16  # batches whose explanations are held at a time
_LONG_WORK = 8  # batches from which on a progress bar is worth its line


def names(
    explainer: Explainer,
    texts: Sequence[str],
    terms: Mapping[str, str] | str | os.PathLike[str] | None = None,
    *,
    contrast: tuple[Any, Any] | None = None,
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
    None does so where the corpus is in lower case. `shuffles`: so many times the names change places at random, which
    parts what is due to the names from what is due to their sentences. `draws`: of the permutation tests.
    Other options are the method's own.
    """
    record = METHODS[method]
    _check(explainer, record.signed, method, shuffles, draws)
    target = _contrast(explainer, contrast)
    wanted, left_out = _wanted(terms, exclude)
    every = list(dict.fromkeys(texts))  # the same text twice is one piece of evidence
    lower = not cased(every) if ignore_case is None else ignore_case
    places = find(every, wanted, ignore_case=lower)
    _check_found(every, places, len(wanted), lower)
    asked = {**options, "target": target, "method": record.name, "ledger": False, "batch_size": batch_size}
    mentions, kept = _measured(explainer, every, places, asked, progress)
    if not mentions:
        raise InputError("every mention stands where the model no longer reads: its texts are cut before")
    groups = list(dict.fromkeys(wanted.values()))
    found = Findings.of(mentions, groups, draws=draws, seed=seed)
    shown = [found.example(name).sentence for side in found.extremes() for name in side]
    examples = tuple(_quietly(explainer, shown, asked))
    audit = NameAudit(
        model=_model_name(explainer.model),
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
    again = [_shuffled(explainer, every, kept, asked, progress, seed + i) for i in range(shuffles)]
    by_name, by_place = ([one for pair in again for one in pair[side]] for side in (0, 1))
    return replace(
        audit,
        by_name=Findings.of(by_name, groups, draws=draws, seed=seed, levels=SHUFFLED),
        by_place=Findings.of(by_place, groups, draws=draws, seed=seed, levels=SHUFFLED),
    )


def _check(explainer: Explainer, signed: bool, method: str, shuffles: int, draws: int) -> None:
    if not isinstance(explainer.domain, Texts) or isinstance(explainer.domain, Questions):
        raise InputError("an audit of names needs a model that classifies texts")
    if not signed:
        raise InputError(
            f'method "{method}" gives no signs, so it cannot tell for from against: take one that does '
            "(relprop methods: signed), such as lrp_ah_ln"
        )
    if shuffles < 0 or draws < 1:
        raise InputError(f"shuffles are 0 or more and draws 1 or more, got {shuffles} and {draws}")


def _contrast(explainer: Explainer, given: tuple[Any, Any] | None) -> tuple[Any, Any]:
    if given is not None:
        if not isinstance(given, tuple | list) or len(given) != 2 or given[0] == given[1]:
            raise TargetError(f"a contrast is two different classes, got {given!r}")
        return given[0], given[1]
    labels = {} if getattr(explainer.domain, "generates", False) else explainer.labels
    by_name = {name.casefold(): index for index, name in labels.items()}
    if {"positive", "negative"} <= set(by_name):
        return by_name["positive"], by_name["negative"]
    if len(labels) == 2:
        return 1, 0
    known = f"the model's classes are {', '.join(labels.values())}" if labels else "the model names no classes"
    raise TargetError(f"{known}: say which two to compare, as contrast=(A, B) or --contrast A,B")


def _wanted(
    terms: Mapping[str, str] | str | os.PathLike[str] | None, exclude: Iterable[str] | None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The terms to look for, and those that were left out."""
    if isinstance(exclude, str):
        raise InputError("exclude is a list of words, not one word")
    if exclude is None:
        exclude = ambiguous_words() if terms is None else ()
    given = first_names() if terms is None else terms if isinstance(terms, Mapping) else read_terms(terms)
    wanted = without(given, exclude)
    return checked(wanted), tuple(sorted(set(given) - set(wanted)))


def _check_found(texts: Sequence[str], places: Sequence[Place], terms: int, ignore_case: bool) -> None:
    if not texts:
        raise InputError("there are no texts to audit")
    if not places:
        hint = "" if ignore_case else " in this case; to match in any case, ignore_case=True (--ignore-case)"
        raise InputError(f"none of the {terms:,} names stands in the {len(texts):,} texts{hint}")
    for number in {place.text for place in places}:
        parts_of(texts[number])


def _measured(
    explainer: Explainer, texts: Sequence[str], places: Sequence[Place], asked: dict[str, Any], progress: bool | None
) -> tuple[list[Mention], list[Place]]:
    """The mentions with their relevance, in the order of their places, and these without what the model cut off."""
    order = sorted({place.text for place in places}, key=lambda i: len(texts[i]))
    by_text: dict[int, list[Place]] = {}
    for place in places:
        by_text.setdefault(place.text, []).append(place)
    found: dict[Place, Mention] = {}
    for block in _blocks(order, asked["batch_size"], progress):
        for number, one in zip(block, _quietly(explainer, [texts[i] for i in block], asked), strict=True):
            for place in by_text[number]:
                score = _relevance(one, place)
                if score is not None:
                    found[place] = Mention(
                        number, place.start, place.end, place.term, place.group, score, one.value, texts[number]
                    )
    kept = [place for place in places if place in found]
    return [found[place] for place in kept], kept


def _relevance(explanation: Explanation, place: Place) -> float | None:
    """The sum over the sub-words that reach into the mention; None where the model does not read so far."""
    inside, read = [], []
    for unit, score in zip(explanation.units, explanation.scores, strict=True):
        if unit.special:
            continue
        if unit.start is None or unit.end is None:
            raise InputError("names cannot be found: the tokenizer gives no places in the text (use a fast tokenizer)")
        read += [unit.start, unit.end]
        if unit.start < place.end and unit.end > place.start:
            inside.append(score)
    if not inside or (explanation.truncated and not min(read) <= place.start < place.end <= max(read)):
        return None
    if not all(map(math.isfinite, inside)):
        raise ModelError(f'relevance is no finite number at "{place.term}" in {explanation.text[0]!r:.60}')
    return sum(inside)


def _quietly(explainer: Explainer, texts: list[str], asked: dict[str, Any]) -> list[Explanation]:
    """Explained; texts that are cut are counted by what is lost of them, not warned of one by one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        found: list[Explanation] = explainer(texts, progress=False, **asked) if texts else []
    return found


def _shuffled(
    explainer: Explainer,
    texts: Sequence[str],
    places: Sequence[Place],
    asked: dict[str, Any],
    progress: bool | None,
    seed: int,
) -> tuple[list[Mention], list[Mention]]:
    """The names at random in each other's places: grouped by the name that came, and by the one that stood there."""
    order = np.random.default_rng([seed, len(places)]).permutation(len(places))
    written, moved = shuffled(texts, places, order.tolist())
    mentions, kept = _measured(explainer, written, moved, asked, progress)
    before = dict(zip(moved, places, strict=True))
    owners = [before[place] for place in kept]
    by_place = [replace(one, name=own.term, group=own.group) for one, own in zip(mentions, owners, strict=True)]
    return mentions, by_place


def _blocks(order: list[int], batch_size: int, progress: bool | None) -> Iterator[list[int]]:
    """Texts of similar length, some batches at a time; on long work at a terminal, with a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    size = max(1, batch_size)
    console = Console(stderr=True)
    shown = console.is_terminal and len(order) > _LONG_WORK * size if progress is None else progress
    columns = (TextColumn("explaining"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not shown, transient=console.is_terminal) as bar:
        task = bar.add_task("explaining", total=len(order))
        step = size if shown else size * _BLOCK
        for start in range(0, len(order), step):
            block = order[start : start + step]
            yield block
            bar.advance(task, len(block))


def _model_name(model: Any) -> str:
    """The hub id, the folder's own name or the class: no path of anybody's machine in a file that travels."""
    source = str(getattr(getattr(model, "config", None), "name_or_path", None) or type(model).__name__)
    return Path(source).name if Path(source).is_absolute() or Path(source).is_dir() else source
