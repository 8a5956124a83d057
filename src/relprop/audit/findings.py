"""What an audit found: the mentions of names, and their numbers by group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from relprop.audit.statistics import Comparison, Floats, GroupSummary, compare_groups, group_summary
from relprop.explanation import Explanation

K = TypeVar("K", bound=Hashable)

# What counts as one number. Names come first: a group is a set of names, so tests permute the groups of names. Mentions
# of one name, or in one sentence, depend on each other; counted one by one they make p too small.
LEVELS = ("names", "sentences", "mentions")
PRIMARY = LEVELS[0]
SHUFFLED = LEVELS[:2]  # each shuffle adds mentions, but neither names nor sentences


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


def _means(mentions: Iterable[Mention], key: Callable[[Mention], K]) -> dict[K, list[float]]:
    found: dict[K, list[float]] = {}
    for one in mentions:
        found.setdefault(key(one), []).append(one.relevance)
    return found


@dataclass(frozen=True)
class AuditFindings:
    """The relevance of groups of names in a corpus.

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
