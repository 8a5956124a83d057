"""The claims of the papers, one by one: the paper's numbers, ours, and whether each one holds.

A claim says that a method is ahead of others by a metric, over some tasks of a suite. It holds where the paired lead
over each of them, averaged over the tasks, is above 0 with its whole interval; it does not where a lead is below 0
with its whole interval; else it is open. A lead is a share of the other's number, so that tasks of different levels
count alike, unless that number is not told from 0 on some task: then it is the difference. Tasks on the same data, as
those of two models, are no new examples: they do not make the interval narrower.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import ClassVar

import numpy as np

from relprop.bench.report.comparison import PaperComparison, compare, shown_tasks
from relprop.bench.report.results import Results
from relprop.bench.settings import NOTHING_ELSE, validated
from relprop.bench.suites import SECOND, Table
from relprop.bootstrap import Estimate
from relprop.errors import InputError

FILE = Path(__file__).parents[1] / "claims.toml"
HOLDS, DOES_NOT, OPEN, NOT_RUN = "holds", "does not hold", "open", "not run"


@dataclass(frozen=True)
class Claim:
    """What a paper says of a method, and the suite that can tell."""

    __pydantic_config__: ClassVar = NOTHING_ELSE
    paper: str
    where: str  # a table or figure of the paper
    says: str
    suite: str
    metric: str
    method: str  # a label of the suite, as those it is ahead of
    against: tuple[str, ...]
    tasks: tuple[str, ...] = ()  # empty: all that have the metric


@dataclass(frozen=True)
class Decision:
    """A verdict, with the lead that decides it: one that is lost before one that is open, then the least."""

    claim: Claim
    verdict: str
    other: str = ""  # the method that this lead is over
    lead: Estimate | None = None  # averaged over the tasks; + is better
    is_share: bool = True  # the lead is a share of the other's number
    examples: int = 0  # of all data, each counted once
    better: int = 0  # tasks where the lead's own interval is above 0
    worse: int = 0
    tasks: int = 0
    ours: tuple[float, float] | None = None  # of the method and of the other, averaged over the tasks
    published: tuple[float, float] | None = None
    seeds: tuple[float, float] | None = None  # the lead with the models of either seed, where there are two

    @property
    def needed(self) -> int | None:
        """The number of examples at which a lead of this size would be told from 0; None where it is decided."""
        if self.verdict != OPEN or self.lead is None or not self.lead.value:
            return None
        return ceil(self.examples * (self.lead.half_width / abs(self.lead.value)) ** 2)


@cache
def read_claims(path: Path = FILE) -> tuple[Claim, ...]:
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(validated(Claim, one, f"claim {place}") for place, one in enumerate(tables["claims"], 1))


def decide(claim: Claim, results: Results | None) -> Decision:
    """The verdict on a claim by the results of its suite."""
    if results is None:
        return Decision(claim, NOT_RUN)
    compared = list(_comparisons(claim, results))
    data = {task.name: task.data or task.name.removesuffix(SECOND) for task in results.suite.tasks}
    found = [one for other in claim.against if (one := _against(claim, other, compared, data)) is not None]
    if len(found) < len(claim.against):
        return Decision(claim, NOT_RUN)
    weakest = (DOES_NOT, OPEN, HOLDS)
    return min(found, key=lambda one: (weakest.index(one.verdict), one.lead.value if one.lead else 0.0))


def _comparisons(claim: Claim, results: Results) -> Iterator[PaperComparison]:
    """One per task, by the suite's own table of the metric, which knows the published numbers."""
    labels = {one.label for one in results.suite.methods}
    for label in (claim.method, *claim.against):
        if label not in labels:
            raise InputError(f'the claim "{claim.says}" is of "{label}", which "{results.suite.name}" does not have')
    own = [one for one in results.suite.tables if one.metric == claim.metric]
    needed = {claim.method, *claim.against}
    table = next((one for one in own if not one.methods or needed <= {*one.methods}), Table("", claim.metric))
    for task in shown_tasks(results, table):
        if not claim.tasks or task in claim.tasks:
            yield compare(results, table, task)


def _against(claim: Claim, other: str, compared: Sequence[PaperComparison], data: Mapping[str, str]) -> Decision | None:
    """The lead over one other method; `data` says by task what it is measured on."""
    both = [one for one in compared if claim.method in one.ours and other in one.ours]
    if not both:
        return None
    leads = [one.leads(claim.method)[other] for one in both]
    is_share = all(_is_told_from_0(one.ours[other]) for one in both)
    if is_share:
        leads = [lead.times(1 / abs(one.ours[other].value)) for lead, one in zip(leads, both, strict=True)]
    names = dict.fromkeys(data[one.task] for one in both)
    places = [[i for i, one in enumerate(both) if data[one.task] == name] for name in names]
    counts = [one.examples for one in both]
    lead = _mean([_mean_of_dependent([leads[i] for i in own], [counts[i] for i in own]) for own in places])
    low, high = lead.interval()
    known = [one for one in both if claim.method in one.paper and other in one.paper]
    return Decision(
        claim,
        HOLDS if low > 0 else DOES_NOT if high < 0 else OPEN,
        other,
        lead,
        is_share,
        sum(max(counts[i] for i in own) for own in places),
        sum(one.interval()[0] > 0 for one in leads),
        sum(one.interval()[1] < 0 for one in leads),
        len(both),
        _means([(one.ours[claim.method].value, one.ours[other].value) for one in both]),
        _means([(float(one.paper[claim.method]), float(one.paper[other])) for one in known]),
        _means(_lead_by_seed({one.task: lead.value for one, lead in zip(both, leads, strict=True)})),
    )


def _is_told_from_0(estimate: Estimate) -> bool:
    low, high = estimate.interval()
    return low > 0 or high < 0


def _lead_by_seed(leads: Mapping[str, float]) -> list[tuple[float, float]]:
    """The leads with the model of either seed, for each task that has two."""
    return [(leads[task], leads[task + SECOND]) for task in leads if task + SECOND in leads]


def _mean(estimates: Sequence[Estimate]) -> Estimate:
    return Estimate(float(np.mean([one.value for one in estimates])), np.mean([one.draws for one in estimates], axis=0))


def _mean_of_dependent(estimates: Sequence[Estimate], examples: Sequence[int]) -> Estimate:
    """Each counts by its examples, which are the same ones in part: all are taken to go up and down with the first."""
    places = np.argsort(np.argsort(estimates[0].draws))
    draws = [np.sort(one.draws)[places] for one in estimates]
    value = np.average([one.value for one in estimates], weights=examples)
    return Estimate(float(value), np.average(draws, axis=0, weights=examples))


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    return (float(np.mean([a for a, _ in pairs])), float(np.mean([b for _, b in pairs]))) if pairs else None


def claims_page(decisions: Sequence[Decision], runs: Mapping[str, Results], folder: Path) -> str:
    """Markdown for this folder: a table per paper, with links to the reports there, and each run's command."""
    lines = ["# What the papers say, and what holds here", "", _SUMMARY.format(**_counts(decisions)), ""]
    for paper in dict.fromkeys(one.claim.paper for one in decisions):
        lines += [f"## [{paper}]", "", f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
        lines += [_row(one, folder) for one in decisions if one.claim.paper == paper] + [""]
    lines += ["## Commands", ""]
    for name in dict.fromkeys(one.claim.suite for one in decisions if one.claim.suite in runs):
        lines += [f"`{name}`{_missing(runs[name])}:", "", f"    {runs[name].command}", ""]
    return "\n".join(lines)


def _missing(results: Results) -> str:
    left = [f"{results.left} of its cells are still to be done"] if results.left else []
    tasks = [f"there is nothing yet of {'; '.join(results.not_begun)}"] if results.not_begun else []
    return f" ({', and '.join(left + tasks)})" if left or tasks else ""


_COLUMNS = ("claim", "where", "paper", "here", "lead", "verdict", "suite")
_SUMMARY = (
    "Written by `relprop bench claims`. Of {all} claims {holds} hold, {does_not} do not, {open} are open and {not_run} "
    "have not been run. Numbers are means over the tasks of the suite: the method's, then that of the strongest of "
    "those it is said to be ahead of. The lead is paired, example by example, as a share of the other's number (or "
    "their difference, where that number may be 0), with its 95 % bootstrap interval; tasks where it is decided by "
    "itself are counted, and where models were trained with two seeds the lead is given for each; the second is no new "
    "example, so it does not make the interval narrower."
)


def _counts(decisions: Sequence[Decision]) -> dict[str, int]:
    names = {"holds": HOLDS, "does_not": DOES_NOT, "open": OPEN, "not_run": NOT_RUN}
    counted = {name: sum(one.verdict == verdict for one in decisions) for name, verdict in names.items()}
    return {"all": len(decisions), **counted}


def _row(one: Decision, folder: Path) -> str:
    verdict = f"**{one.verdict}**"
    if one.needed is not None:
        verdict += f" (about {one.needed:,} examples would tell)"
    report = Path(one.claim.suite) / "report.md"
    suite = f"[{one.claim.suite}]({report.as_posix()})" if (folder / report).exists() else f"`{one.claim.suite}`"
    cells = (one.claim.says, one.claim.where, _numbers(one.published), _ours(one), _lead(one), verdict, suite)
    return f"| {' | '.join(cells)} |"


def _ours(one: Decision) -> str:
    return f"{_numbers(one.ours)} (`{one.claim.method}`, `{one.other}`; {one.examples:,} examples)" if one.ours else ""


def _lead(one: Decision) -> str:
    if one.lead is None:
        return ""
    low, high = one.lead.interval()
    form = ".1%" if one.is_share else ".3f"
    counts = f"; better on {one.better} of {one.tasks} tasks, worse on {one.worse}" if one.tasks > 1 else ""
    seeds = "" if one.seeds is None else f"; by seed {one.seeds[0]:+{form}}, {one.seeds[1]:+{form}}"
    return f"{one.lead.value:+{form}} ({low:+{form}} to {high:+{form}}){counts}{seeds}"


def _numbers(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else f"{pair[0]:.4g}, {pair[1]:.4g}"
