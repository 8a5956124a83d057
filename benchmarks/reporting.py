"""Numbers of methods as a table: bootstrapped over examples, beside published ones, with the command that made them.

A statistic is a function of weights [draws, examples] to numbers [draws]. With all weights 1 it is the number itself;
with counts of examples drawn with replacement it is what another sample might have given.
"""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
DRAWS, SHARE = 2000, 0.95


@dataclass(frozen=True)
class Estimate:
    """A number and its bootstrap interval of 95 %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        around = f" ± {(self.high - self.low) / 2:.1f}"
        return f"{self.value:.1f}{around}" if self.high > self.low else f"{self.value:.2f}"


@dataclass(frozen=True)
class Table:
    """Estimates by row and column; `published` has some of the same places."""

    title: str
    command: str
    facts: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Estimate]]
    published: Mapping[str, Mapping[str, float]]


def mean_of(values: Floats) -> Statistic:
    """The mean of the values that are defined."""
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)

    def mean(weights: Floats) -> Floats:
        count = weights @ known.astype(np.float64)
        found: Floats = np.divide(weights @ filled, count, out=np.full(len(count), np.nan), where=count > 0)
        return found

    return mean


def estimate(statistic: Statistic, examples: int, seed: int) -> Estimate | None:
    """A seed draws the same examples for every statistic, so that differences are paired. None: it is not defined."""
    draws = np.random.default_rng(seed).multinomial(examples, np.full(examples, 1 / examples), size=DRAWS)
    value, found = float(statistic(np.ones((1, examples)))[0]), statistic(draws.astype(np.float64))
    if np.isnan(value):
        return None
    outer = (1 - SHARE) / 2
    low, high = np.nanquantile(found, [outer, 1 - outer])
    return Estimate(value, float(low), float(high))


def estimates(
    methods: Mapping[str, Mapping[str, Statistic]], examples: int, seed: int
) -> dict[str, dict[str, Estimate]]:
    """Every statistic that is defined, by method."""
    rows: dict[str, dict[str, Estimate]] = {}
    for method, statistics in methods.items():
        found = {name: estimate(one, examples, seed) for name, one in statistics.items()}
        rows[method] = {name: one for name, one in found.items() if one is not None}
    return rows


def less(one: Statistic, other: Statistic) -> Statistic:
    return lambda weights: one(weights) - other(weights)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def markdown(table: Table) -> str:
    """The command, the facts, the table; published numbers stand in a column of their own."""
    columns = list(dict.fromkeys(name for row in table.rows.values() for name in row))
    printed = {name for row in table.published.values() for name in row}
    heads = [head for name in columns for head in ([name, "paper"] if name in printed else [name])]
    lines = [f"| {' | '.join([table.title, *heads])} |", f"|{'---|' * (len(heads) + 1)}"]
    for label, row in table.rows.items():
        cells = []
        for name in columns:
            cells.append(str(row.get(name, "")))
            if name in printed:
                cells.append(str(table.published.get(label, {}).get(name, "")))
        lines.append(f"| {' | '.join([f'`{label}`', *cells])} |")
    facts = ", ".join(f"{name} {value}" for name, value in table.facts.items())
    return "\n".join([f"    {table.command}", "", f"{facts}.", "", *lines, ""])


def command(script: str, arguments: Sequence[str]) -> str:
    """What to type to get the same again."""
    return shlex.join(["python", f"benchmarks/{Path(script).name}", *arguments])


def save(table: Table, folder: Path, name: str) -> None:
    """`name`.md and `name`.json in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(markdown(table))
    (folder / f"{name}.json").write_text(json.dumps(asdict(table), indent=1) + "\n")
