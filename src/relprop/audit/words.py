"""The sentences and table cells of an audit, for the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Iterator

from relprop.audit.findings import PRIMARY, AuditFindings, Findings
from relprop.audit.statistics import Comparison, GroupSummary, Interval
from relprop.render.caption import number
from relprop.render.visible import visible

SURE = 0.05
SUMMARY_HEAD = ("group", "n", "mean", "95 % interval", "25 %", "median", "75 %")
COMPARISON_HEAD = (
    "level", "groups", "n", "difference", "95 % interval", "p, perm.", "p, ranks", "Cliff's delta",
    "Cohen's d", "detectable d",
)  # fmt: skip
HOW_TO_READ = (
    "Relevance supports the first class (+) or the second (-). It is summed over a name's sub-words, in units of the "
    "model's outputs.",
    "The test that counts is the one over names: a group is a set of names, and mentions of one name or in one "
    "sentence depend on each other. Over mentions p is too small.",
    "p is two-sided, by permutation of the groups and by ranks (Mann-Whitney), and corrected by Holm where there are "
    "more than two groups. Cliff's delta says how much more often the first group's number is the larger one, from -1 "
    "to 1. The detectable d is the Cohen's d that so many numbers would show in four of five cases.",
)


def heading(audit: AuditFindings) -> str:
    return f"Names in {visible(audit.model)}: {visible(audit.contrast)}"


def account(audit: AuditFindings) -> Iterator[str]:
    """Sentences on what was read and how."""
    mentions = audit.found.mentions
    held = len({one.text for one in mentions})
    names = len({(one.name, one.group) for one in mentions})
    case = "in any case" if audit.ignored_case else "with the names' own capitals"
    yield f"{len(mentions):,} mentions of {names:,} names in {held:,} of {audit.texts:,} texts, matched {case}."
    yield f"Method {audit.method}."
    if audit.left_out:
        yield f"{len(audit.left_out):,} ambiguous names were left out."
    if audit.cut:
        yield f"{audit.cut:,} mentions lie beyond what the model reads, and are not counted."
    if audit.shuffles:
        yield f"Names were shuffled over their places {audit.shuffles} time{'s' if audit.shuffles > 1 else ''}."


def verdicts(findings: Findings) -> Iterator[str]:
    """One sentence per pair of groups: what the test over names says, also if it shows nothing."""
    if not findings.comparisons[PRIMARY]:
        yield "There is nothing to compare: fewer than two groups have two names or more in these texts."
    for one in findings.comparisons[PRIMARY]:
        yield f"{visible(one.first)} and {visible(one.second)}: {_verdict(one)}"


def _verdict(one: Comparison) -> str:
    numbers = f"{p_equation(one.permutation_corrected)}, Cliff's delta {decimals(one.cliffs_delta)}"
    if one.permutation_corrected >= SURE:
        power = f"one of d = {one.detectable:.2f} would be shown in four of five cases"
        missed = power if math.isfinite(one.detectable) else "so few names cannot show one"
        return f"no difference was shown ({numbers}; {missed})"
    more = one.first if one.difference > 0 else one.second
    return f"{visible(more)} names are the more relevant by {number(abs(one.difference)).removeprefix('+')} ({numbers})"


def summary_cells(one: GroupSummary) -> tuple[str, ...]:
    quartiles = (one.quartile, one.median, one.upper_quartile)
    return (
        visible(one.group),
        f"{one.count:,}",
        signed_number(one.mean),
        span(one.interval),
        *map(signed_number, quartiles),
    )


def comparison_cells(findings: Findings) -> Iterator[tuple[str, ...]]:
    for level, pairs in findings.comparisons.items():
        for one in pairs:
            yield (
                level,
                f"{visible(one.first)} - {visible(one.second)}",
                f"{one.counts[0]:,}, {one.counts[1]:,}",
                signed_number(one.difference),
                span(one.interval),
                p_value(one.permutation_corrected),
                p_value(one.mann_whitney_corrected),
                f"{decimals(one.cliffs_delta)} {span(one.cliffs_interval, 2)}",
                f"{decimals(one.cohens_d)} {span(one.cohens_interval, 2)}",
                f"{one.detectable:.2f}" if math.isfinite(one.detectable) else "–",
            )


def signed_number(value: float) -> str:
    return number(value) if math.isfinite(value) else "–"


def decimals(value: float, places: int = 2) -> str:
    return f"{value:+.{places}f}" if math.isfinite(value) else "–"


def span(interval: Interval, places: int = 3) -> str:
    return (
        f"[{decimals(interval.low, places)}, {decimals(interval.high, places)}]" if math.isfinite(interval.low) else "–"
    )


def p_equation(p: float) -> str:
    return f"p {p_value(p)}" if p < 0.001 else f"p = {p_value(p)}"


def p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
