"""The texts of an audit, from files."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from relprop.errors import InputError

ENDINGS = ("txt", "csv", "tsv", "jsonl")
USUAL = ("text", "sentence")  # columns to look for where none is named


def read_texts(path: str | os.PathLike[str], column: str | int | None = None) -> list[str]:
    """Every line of a .txt, or a column of a .csv, .tsv or .jsonl; also with .gz. Empty ones are left out.

    A column is given by name, or by its number from 0 where a file has no header. Cells of a .tsv are taken
    literally; those of a .csv may be quoted.
    """
    path = Path(path)
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind not in ENDINGS:
        raise InputError(f'"{path.name}" is none of .{", .".join(ENDINGS)} (or these with .gz)')
    with open_text(path) as lines:
        cells = lines if kind == "txt" else _cells(path.name, kind, lines, column)
        texts = [text for cell in cells if (text := cell.strip())]
    if not texts:
        raise InputError(f'"{path}" holds no text')
    return texts


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """The file as text; a file that cannot be read is an InputError."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
            yield lines
    except UnicodeDecodeError as error:
        raise InputError(f'"{path}" is not UTF-8 text (at byte {error.start})') from error
    except (OSError, EOFError, csv.Error, json.JSONDecodeError) as error:
        raise InputError(f'"{path}" cannot be read: {getattr(error, "strerror", None) or error}') from error


def _cells(name: str, kind: str, lines: Iterable[str], column: str | int | None) -> Iterator[str]:
    column = int(column) if isinstance(column, str) and column.isdigit() else column
    for number, row in enumerate(_rows(kind, lines, column), 1):
        chosen = next((one for one in USUAL if one in row), None) if column is None else column
        if chosen is None or chosen not in row:
            have = ", ".join(str(key) for key in row)
            asked = "column of texts" if column is None else f'column "{column}"'
            raise InputError(f'row {number} of "{name}" has no {asked} (it has {have}): name it with --column')
        if not isinstance(row[chosen], str):
            raise InputError(f'row {number} of "{name}": column "{chosen}" holds {row[chosen]!r:.40}, not a text')
        yield row[chosen]


def _rows(kind: str, lines: Iterable[str], column: str | int | None) -> Iterator[Mapping[str | int, Any]]:
    if kind == "jsonl":
        for line in lines:
            if line.strip():
                row = json.loads(line)
                yield row if isinstance(row, dict) else {0: row}
        return
    quoting = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if kind == "tsv" else {}
    reader = csv.reader(lines, **quoting)  # type: ignore[arg-type]
    header = None if isinstance(column, int) else next(reader, [])
    for row in reader:
        if row:
            yield dict(enumerate(row)) if header is None else dict(zip(header, row, strict=False))
