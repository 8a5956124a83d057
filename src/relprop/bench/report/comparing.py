"""One metric on one task: our numbers, the paper's beside them, and whether both have the methods in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import numpy as np

from relprop.bench.measured import Measured
from relprop.bench.report.estimates import Estimate, estimate, known, share, statistic_of
from relprop.bench.report.published import Printed, place, read_published
from relprop.bench.report.results import CEILING, REFERENCES, Results
from relprop.bench.suites import Table
from relprop.metrics import METRICS
from relprop.metrics.correlation import spearman


@dataclass(frozen=True)
class Compared:
    """Numbers by method label, in the order of the suite; the references are among ours, last."""

    task: str
    examples: int
    better: str  # "higher", "lower", or "" where neither is
    ours: Mapping[str, Estimate]
    shares: Mapping[str, Estimate]  # of what is possible
    paper: Mapping[str, Printed]
    known: Mapping[str, int]  # examples that a method has a number for

    @property
    def methods(self) -> list[str]:
        return [label for label in self.ours if label not in REFERENCES]

    def ahead(self, one: float, other: float) -> bool:
        return one > other if self.better == "higher" else one < other

    def leads(self, label: str) -> dict[str, Estimate]:
        """How far a method is ahead of every other, over the same examples; below 0 it is behind."""
        if label not in self.ours or not self.better:
            return {}
        sign = 1 if self.better == "higher" else -1
        own = self.ours[label]
        return {other: own.minus(self.ours[other]).times(sign) for other in self.methods if other != label}

    def agreement(self) -> float | None:
        """Spearman's rank correlation of our order and the paper's; of two methods it says nothing."""
        both = [label for label in self.methods if label in self.paper]
        if len(both) < 3 or not self.better:
            return None
        ours, paper = (np.array([[source[label].value for label in both]]) for source in (self.ours, self.paper))
        found = float(spearman(ours, paper)[0])
        return None if np.isnan(found) else found

    def reversals(self) -> Iterator[Reversal]:
        """Pairs that the paper has one way and we the other, beyond the paired interval."""
        both = [label for label in self.methods if label in self.paper]
        for first, second in permutations(both, 2) if self.better else ():
            lead = self.ours[second].minus(self.ours[first])
            low, high = lead.interval()
            if self.ahead(self.paper[first].value, self.paper[second].value) and (
                low > 0 if self.better == "higher" else high < 0
            ):
                yield Reversal(first, second, lead)


class Reversal(NamedTuple):
    """The paper has `first` ahead; here `second` is, by `lead`."""

    first: str
    second: str
    lead: Estimate


def shown_tasks(results: Results, table: Table) -> list[str]:
    """Those of a table of which something is done."""
    return [task for task in results.tasks if not table.tasks or task in table.tasks]


def compared(results: Results, table: Table, task: str) -> Compared:
    measured = results.tasks[task]
    own: dict[str, Estimate] = {}
    counts = {}
    for label in _labels(results, table):
        statistic = statistic_of(table.metric, measured.scores.get(label, {}))
        found = None if statistic is None else estimate(statistic, len(measured.examples), results.suite.seed)
        if found is not None:
            own[label] = found.times(table.scale)
            counts[label] = known(table.metric, measured.scores[label])
    better = METRICS[table.metric].better if table.metric in METRICS else ""
    paper = _paper(results, table, task, list(own))
    return Compared(task, len(measured.examples), better, own, _shares(results, measured, table, own), paper, counts)


def _labels(results: Results, table: Table) -> list[str]:
    own = (one.label for one in results.suite.methods if not table.methods or one.label in table.methods)
    return [*own, *REFERENCES]


def _paper(results: Results, table: Table, task: str, labels: Sequence[str]) -> dict[str, Printed]:
    if not table.published:
        return {}
    printed = read_published(table.published)
    found = {}
    for label in labels:
        name = results.printed(label)
        at = place(table.row, name, task), place(table.column, name, task)
        if at in printed:
            found[label] = printed[at]
    return found


def _shares(results: Results, measured: Measured, table: Table, own: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Where a floor and a ceiling are known, how far between them every method is."""
    random = results.random()
    if random not in own or CEILING not in own:
        return {}
    columns = {label: np.asarray(measured.scores[label][table.metric], np.float64) for label in (*own, random)}
    found = {}
    for label in own:
        one = share(columns[label], columns[random], columns[CEILING])
        drawn = estimate(one, len(measured.examples), results.suite.seed)
        if drawn is not None:
            found[label] = drawn
    return found
