"""One metric on one task: our numbers, the paper's beside them, and whether both have the methods in the same order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import permutations
from typing import NamedTuple

import numpy as np

from relprop.bench.report.metric_statistics import known_examples, metric_statistic, share
from relprop.bench.report.published import fill_template, read_published
from relprop.bench.report.results import CEILING, REFERENCES, Results
from relprop.bench.suites import Table
from relprop.bootstrap import Estimate, bootstrap
from relprop.metrics import METRICS
from relprop.metrics.correlation import spearman


@dataclass(frozen=True)
class PaperComparison:
    """Numbers by method label, in the order of the suite; the references are the last of ours."""

    task: str
    examples: int
    better: str  # "higher", "lower", or "" where neither is
    ours: Mapping[str, Estimate]
    shares: Mapping[str, Estimate]  # share of what is possible
    paper: Mapping[str, Decimal]
    known: Mapping[str, int]  # number of examples that a method has a number for

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
        """Spearman's rank correlation of our order and the paper's; None for fewer than three methods."""
        both = [label for label in self.methods if label in self.paper]
        if len(both) < 3 or not self.better:
            return None
        ours, paper = [self.ours[label].value for label in both], [float(self.paper[label]) for label in both]
        found = float(spearman(np.array([ours]), np.array([paper]))[0])
        return None if np.isnan(found) else found

    def reversals(self) -> Iterator[Reversal]:
        """Pairs whose order is the opposite of the paper's, by more than the paired interval."""
        both = [label for label in self.methods if label in self.paper]
        for first, second in permutations(both, 2) if self.better else ():
            lead = self.ours[second].minus(self.ours[first])
            low, high = lead.interval()
            clear = low > 0 if self.better == "higher" else high < 0
            if clear and self.ahead(float(self.paper[first]), float(self.paper[second])):
                yield Reversal(first, second, lead)


class Reversal(NamedTuple):
    """In the paper `first` is ahead; here `second` is, by `lead`."""

    first: str
    second: str
    lead: Estimate


def shown_tasks(results: Results, table: Table) -> list[str]:
    """The tasks of a table that have results."""
    return [task for task in results.tasks if not table.tasks or task in table.tasks]


def compare(results: Results, table: Table, task: str) -> PaperComparison:
    """One column of a table: our numbers for a task and the published ones."""
    measurements = results.tasks[task]
    examples, seed = len(measurements.examples), results.suite.seed
    ours: dict[str, Estimate] = {}
    known = {}
    own = (one.label for one in results.suite.methods if not table.methods or one.label in table.methods)
    for label in (*own, *REFERENCES):
        columns = measurements.scores.get(label, {})
        statistic = metric_statistic(table.metric, columns)
        found = None if statistic is None else bootstrap(statistic, examples, seed)
        if found is not None:
            ours[label] = found.times(table.scale)
            known[label] = known_examples(table.metric, columns)
    shares: dict[str, Estimate] = {}
    random = results.random()
    if random in ours and CEILING in ours:
        scores = {label: np.asarray(measurements.scores[label][table.metric], np.float64) for label in ours}
        drawn = {one: bootstrap(share(scores[one], scores[random], scores[CEILING]), examples, seed) for one in ours}
        shares = {label: one for label, one in drawn.items() if one is not None}
    better = METRICS[table.metric].better if table.metric in METRICS else ""
    return PaperComparison(task, examples, better, ours, shares, _paper(results, table, task, ours), known)


def _paper(results: Results, table: Table, task: str, labels: Iterable[str]) -> dict[str, Decimal]:
    published = read_published(table.published) if table.published else {}
    found = {}
    for label in labels:
        name = results.printed(label)
        at = fill_template(table.row, name, task), fill_template(table.column, name, task)
        if at in published:
            found[label] = published[at]
    return found
