"""The numbers that papers report, with the decimals that they print."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from relprop.errors import unknown_name

FOLDER = Path(__file__).parents[1] / "published"


@dataclass(frozen=True)
class PublishedNumber:
    """A number with as many decimals as the paper prints."""

    value: float
    decimals: int

    @classmethod
    def of(cls, text: str) -> PublishedNumber:
        return cls(float(text), len(text.partition(".")[2]))

    def __str__(self) -> str:
        return f"{self.value:.{self.decimals}f}"


@cache
def read_published(name: str) -> dict[tuple[str, str], PublishedNumber]:
    """Numbers by row and column. A row's name is its leading columns without numbers, joined by a space."""
    path = FOLDER / f"{name}.csv"
    if not path.is_file():
        raise unknown_name("published table", name, [one.stem for one in FOLDER.glob("*.csv")])
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = [row for row in csv.reader(file) if row]
    keys = len(list(takewhile(lambda i: not all(_numeric(row[i]) for row in rows), range(len(header)))))
    return {
        (" ".join(row[:keys]), column): PublishedNumber.of(text)
        for row in rows
        for column, text in zip(header[keys:], row[keys:], strict=True)
        if text
    }


def _numeric(text: str) -> bool:
    """A number, or an empty cell among numbers."""
    try:
        float(text or "0")
    except ValueError:
        return False
    return True


def fill_template(template: str, method: str, task: str) -> str:
    """The name of a published row or column: {method} and {task} are the printed names."""
    return template.replace("{method}", method).replace("{task}", task)
