"""`NameAudit`: the result of an audit, to be shown, drawn and saved."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from relprop.audit.statistics import Comparison, Floats, GroupSummary, Interval, compare_groups, group_summary
from relprop.errors import InputError
from relprop.explanation import FIGURES, Explanation
from relprop.files import check_writable, write_text, writing

# What counts as one number. Names come first: a group is a set of names, so tests permute the groups of names. Mentions
# of one name, or in one sentence, depend on each other; counted one by one they make p too small.
LEVELS = ("names", "sentences", "mentions")
PRIMARY = LEVELS[0]
SHUFFLED = LEVELS[:2]  # each shuffle adds mentions, but neither names nor sentences
TABLES = ("mentions", "ranking", "summary")
ENDINGS = (".html", ".csv", *FIGURES)


@dataclass(frozen=True)
class Mention:
    """A name in a text, and its relevance: the sum over its sub-words."""

    text: int  # the text's number among the different texts read
    start: int
    end: int
    name: str
    group: str
    relevance: float
    value: float  # what was explained: the difference of the two classes' outputs
    sentence: str


@dataclass(frozen=True)
class Ranked:
    """A name, with the mean of its mentions."""

    name: str
    group: str
    count: int
    relevance: float


@dataclass(frozen=True)
class Findings:
    """Mentions, and by level ("names", "sentences", "mentions") a summary per group and a comparison per pair."""

    mentions: tuple[Mention, ...]
    summaries: Mapping[str, tuple[GroupSummary, ...]]
    comparisons: Mapping[str, tuple[Comparison, ...]]

    @classmethod
    def of(
        cls,
        mentions: Sequence[Mention],
        groups: Sequence[str],
        *,
        draws: int,
        seed: int,
        levels: Sequence[str] = LEVELS,
    ) -> Findings:
        by_level = {level: by_group(mentions, groups, level) for level in levels}
        return cls(
            tuple(mentions),
            {level: tuple(group_summary(group, one) for group, one in own.items()) for level, own in by_level.items()},
            {level: compare_groups(own, draws=draws, seed=seed) for level, own in by_level.items()},
        )

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(one.group for one in self.summaries[PRIMARY])

    def values(self, level: str = PRIMARY) -> dict[str, Floats]:
        """The numbers that are compared, by group."""
        return by_group(self.mentions, self.groups, level)

    def ranking(self) -> list[Ranked]:
        """All names, the most relevant first."""
        means = _means(self.mentions, lambda one: (one.name, one.group))
        ranked = [Ranked(name, group, len(own), float(np.mean(own))) for (name, group), own in means.items()]
        return sorted(ranked, key=lambda one: (-one.relevance, one.name))

    def extremes(self, count: int = 5) -> tuple[list[Ranked], list[Ranked]]:
        """The most and the least relevant names; no name is in both lists."""
        ranking = self.ranking()
        most = ranking[: min(count, (len(ranking) + 1) // 2)]
        return most, ranking[len(most) :][-count:][::-1]

    def example(self, name: Ranked) -> Mention:
        """The mention whose relevance is nearest to the mean of its name; of two as near, the stronger one."""
        own = [one for one in self.mentions if (one.name, one.group) == (name.name, name.group)]
        return min(own, key=lambda one: (round(abs(one.relevance - name.relevance), 6), -abs(one.relevance)))


def by_group(mentions: Iterable[Mention], groups: Sequence[str], level: str) -> dict[str, Floats]:
    """By group, one number per name, sentence or mention: the mean of its mentions."""
    keys: dict[str, Callable[[Mention], Hashable]] = {
        "names": lambda one: one.name,
        "sentences": lambda one: one.text,
        "mentions": lambda one: (one.text, one.start, one.name, one.sentence),
    }
    means = {group: _means((one for one in mentions if one.group == group), keys[level]) for group in groups}
    return {group: np.array([np.mean(own) for own in found.values()]) for group, found in means.items()}


def _means(mentions: Iterable[Mention], key: Callable[[Mention], Any]) -> dict[Any, list[float]]:
    found: dict[Any, list[float]] = {}
    for one in mentions:
        found.setdefault(key(one), []).append(one.relevance)
    return found


@dataclass(frozen=True)
class NameAudit:
    """The relevance of groups of names in a corpus; printed, it is a table.

    `found` is the corpus as it is. With shuffles, the names swapped places at random: `by_name` groups them by the new
    names (the effect of the names alone), `by_place` by the names that were there before (the effect of the sentences
    alone).
    """

    model: str
    method: str
    contrast: str  # "positive - negative"
    texts: int  # different texts read
    ignored_case: bool
    left_out: tuple[str, ...]  # ambiguous words
    cut: int  # mentions in what the model could not read
    found: Findings
    examples: tuple[Explanation, ...]  # a sentence for each of the most and the least relevant names
    by_name: Findings | None = None
    by_place: Findings | None = None
    shuffles: int = 0

    def parts(self) -> Iterator[tuple[str, Findings]]:
        """The findings, then those of the shuffled controls, with their headings."""
        yield "As found", self.found
        if self.by_name and self.by_place:
            yield "Names shuffled, by name", self.by_name
            yield "Names shuffled, by place", self.by_place

    def show(self) -> None:
        """Print the tables to the terminal."""
        from rich.console import Console

        from relprop.audit.terminal import terminal

        Console().print(terminal(self))

    def __str__(self) -> str:
        from rich.console import Console

        from relprop.audit.terminal import terminal

        console = Console(file=io.StringIO(), width=100, color_system=None)
        with console.capture() as caught:
            console.print(terminal(self))
        return "\n".join(line.rstrip() for line in caught.get().splitlines())

    def to_html(self) -> str:
        """A self-contained page."""
        from relprop.audit.page import audit_page

        return audit_page(self)

    def to_csv(self, table: str = TABLES[0]) -> str:
        """A table as CSV: "mentions" with their sentences, the "ranking" of names, or the "summary" of all numbers."""
        if table not in TABLES:
            raise InputError(f'there is no table "{table}": it is {", ".join(TABLES[:-1])} or {TABLES[-1]}')
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(_table(self, table))
        return text.getvalue()

    def save(self, path: str | os.PathLike[str], table: str = TABLES[0]) -> None:
        """Write .html, .csv (one of the tables), .png, .svg or .pdf. A file is replaced whole or not at all."""
        path = Path(path)
        check_writable(path, ENDINGS)
        with writing(path):
            if path.suffix.lower() in FIGURES:
                from relprop.audit.figure import audit_figure
                from relprop.render import saving

                saving.write(audit_figure(self), path)
            else:
                write_text(path, self.to_html() if path.suffix.lower() == ".html" else self.to_csv(table))


def _table(audit: NameAudit, table: str) -> Iterator[Sequence[Any]]:
    if table == "mentions":
        yield [field.name for field in fields(Mention)]
        yield from ([getattr(one, field.name) for field in fields(Mention)] for one in audit.found.mentions)
    elif table == "ranking":
        yield [field.name for field in fields(Ranked)]
        yield from ([one.name, one.group, one.count, one.relevance] for one in audit.found.ranking())
    else:
        yield ["part", "level", "group", "against", "measure", "value"]
        for part, findings in audit.parts():
            for level, summaries in findings.summaries.items():
                for one in summaries:
                    yield from ([part, level, one.group, "", *line] for line in _measures(one))
                for pair in findings.comparisons[level]:
                    yield from ([part, level, pair.first, pair.second, *line] for line in _measures(pair))


def _measures(one: GroupSummary | Comparison) -> Iterator[tuple[str, Any]]:
    for field in fields(one):
        value = getattr(one, field.name)
        if isinstance(value, Interval):
            yield from ((f"{field.name}_{end}", number) for end, number in value._asdict().items())
        elif isinstance(value, float | int):
            yield field.name, value
