"""The numbers that papers report, as `Decimal`, which keeps the decimals that they print."""

from __future__ import annotations

import csv
from decimal import Decimal
from functools import cache
from itertools import takewhile
from pathlib import Path

from relprop.errors import unknown_name

FOLDER = Path(__file__).parents[1] / "published"


@cache
def read_published(name: str) -> dict[tuple[str, str], Decimal]:
    """Numbers by row and column. A row's name is its leading columns without numbers, joined by a space."""
    path = FOLDER / f"{name}.csv"
    if not path.is_file():
        raise unknown_name("published table", name, [one.stem for one in FOLDER.glob("*.csv")])
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = [row for row in csv.reader(file) if row]
    keys = len(list(takewhile(lambda i: not all(_numeric(row[i]) for row in rows), range(len(header)))))
    return {
        (" ".join(row[:keys]), column): Decimal(text)
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


def printed_decimals(number: Decimal) -> int:
    """How many decimals are printed."""
    return -int(number.as_tuple().exponent)


def fill_template(template: str, method: str, task: str) -> str:
    """The name of a published row or column: {method} and {task} are the printed names."""
    return template.replace("{method}", method).replace("{task}", task)
