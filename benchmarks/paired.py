"""Is one method better than another? Paired over the examples of benchmark runs, task by task and metric by metric.

    python benchmarks/paired.py RUN ... --method lrp_conservative --against lrp_ah_ln

RUN is a folder of `relprop bench run`. A difference is signed so that + is better, with its 95 % bootstrap interval
over examples; it is open where the interval holds 0. With --corrected, verdicts are corrected for the number of
comparisons, by Holm's procedure on p-values from the bootstrap's standard error.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from math import erfc, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np

from relprop.bench.report import read_results
from relprop.bench.report.metric_statistics import metric_statistic
from relprop.bootstrap import Estimate, bootstrap
from relprop.errors import InputError
from relprop.metrics import METRICS


class Difference(NamedTuple):
    task: str
    metric: str
    lead: Estimate  # + is better

    @property
    def verdict(self) -> str:
        low, high = self.lead.interval()
        return "better" if low > 0 else "worse" if high < 0 else "open"

    @property
    def p_value(self) -> float:
        """Two-sided, that the difference is 0."""
        error = float(np.nanstd(self.lead.draws))
        if error == 0:
            return float(self.lead.value == 0)
        return erfc(abs(self.lead.value) / error / sqrt(2))


def holm_verdicts(found: Sequence[Difference], level: float = 0.05) -> list[str]:
    """One verdict per difference: the k-th smallest of n p-values is compared with level / (n - k), until one fails."""
    order = sorted(range(len(found)), key=lambda i: found[i].p_value)
    verdicts = ["open"] * len(found)
    for rank, i in enumerate(order):
        if found[i].p_value > level / (len(found) - rank):
            break
        verdicts[i] = "better" if found[i].lead.value > 0 else "worse"
    return verdicts


def differences(run: Path, method: str, against: str) -> Iterator[Difference]:
    """Of all metrics that both methods have on a task."""
    results = read_results(run)
    labels = {one.label for one in results.suite.methods}
    for label in (method, against):
        if label not in labels:
            raise InputError(f'"{run}" has no method "{label}"; it has {", ".join(sorted(labels))}')
    for task, measured in results.tasks.items():
        for metric in results.metrics:
            both = [
                _estimated(metric, measured.scores.get(label, {}), len(measured.examples))
                for label in (method, against)
            ]
            if both[0] is not None and both[1] is not None:
                sign = 1.0 if METRICS[metric].better == "higher" else -1.0
                yield Difference(task, metric, both[0].minus(both[1]).times(sign))


def _estimated(metric: str, columns: dict[str, list[float]], examples: int) -> Estimate | None:
    statistic = metric_statistic(metric, columns)
    return None if statistic is None else bootstrap(statistic, examples, seed=0)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--method", required=True)
    parser.add_argument("--against", required=True)
    parser.add_argument("--metrics", nargs="+", help="Only these.")
    parser.add_argument("--corrected", action="store_true", help="Correct verdicts for the number of comparisons.")
    args = parser.parse_args(arguments)
    found = [
        one
        for run in args.runs
        for one in differences(run, args.method, args.against)
        if not args.metrics or one.metric in args.metrics
    ]
    verdicts = holm_verdicts(found) if args.corrected else [one.verdict for one in found]
    print(f"| {args.method} against {args.against} | metric | difference, + is better | |\n|---|---|---|---|")
    for one, verdict in zip(found, verdicts, strict=True):
        low, high = one.lead.interval()
        print(f"| {one.task} | {one.metric} | {one.lead.value:+.3f} ({low:+.3f} to {high:+.3f}) | {verdict} |")
    counts = Counter(verdicts)
    print(f"\n{counts['better']} better, {counts['open']} open, {counts['worse']} worse")


if __name__ == "__main__":
    main()
