"""The numbers that papers printed, as they printed them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from relprop.errors import unknown_name

FOLDER = Path(__file__).parents[1] / "published"


@dataclass(frozen=True)
class Printed:
    """A number with as many decimals as the paper gives."""

    value: float
    decimals: int

    @classmethod
    def of(cls, text: str) -> Printed:
        return cls(float(text), len(text.partition(".")[2]))

    def __str__(self) -> str:
        return f"{self.value:.{self.decimals}f}"


@cache
def read_published(name: str) -> dict[tuple[str, str], Printed]:
    """By row and column. A row is called by its leading columns that hold no numbers, joined by a space."""
    path = FOLDER / f"{name}.csv"
    if not path.is_file():
        raise unknown_name("published table", name, [one.stem for one in FOLDER.glob("*.csv")])
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = [row for row in csv.reader(file) if row]
    keys = len(list(takewhile(lambda i: not all(_numeric(row[i]) for row in rows), range(len(header)))))
    return {
        (" ".join(row[:keys]), column): Printed.of(text)
        for row in rows
        for column, text in zip(header[keys:], row[keys:], strict=True)
        if text
    }


def _numeric(text: str) -> bool:
    """Empty cells may stand among numbers."""
    try:
        float(text or "0")
    except ValueError:
        return False
    return True


def place(template: str, method: str, task: str) -> str:
    """Where a method's number for a task stands: {method} and {task} are the printed names."""
    return template.replace("{method}", method).replace("{task}", task)
