"""Numbers of methods as a table: bootstrapped over examples, with the command that made them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relprop.bootstrap import Statistic, bootstrap


@dataclass(frozen=True)
class Number:
    """A number and its bootstrap interval of 95 %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        around = f" ± {(self.high - self.low) / 2:.1f}"
        return f"{self.value:.1f}{around}" if self.high > self.low else f"{self.value:.2f}"


@dataclass(frozen=True)
class Table:
    """Numbers by row and column."""

    title: str
    command: str
    facts: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Number]]


def numbers(methods: Mapping[str, Mapping[str, Statistic]], examples: int, seed: int) -> dict[str, dict[str, Number]]:
    """Every statistic that is defined, by method."""
    rows: dict[str, dict[str, Number]] = {}
    for method, statistics in methods.items():
        found = {name: bootstrap(one, examples, seed) for name, one in statistics.items()}
        rows[method] = {name: Number(one.value, *one.interval()) for name, one in found.items() if one is not None}
    return rows


def less(one: Statistic, other: Statistic) -> Statistic:
    return lambda weights: one(weights) - other(weights)


def markdown(table: Table) -> str:
    """The command, the facts, the table."""
    columns = list(dict.fromkeys(name for row in table.rows.values() for name in row))
    lines = [f"| {' | '.join([table.title, *columns])} |", f"|{'---|' * (len(columns) + 1)}"]
    for label, row in table.rows.items():
        lines.append(f"| {' | '.join([f'`{label}`', *(str(row.get(name, '')) for name in columns)])} |")
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
