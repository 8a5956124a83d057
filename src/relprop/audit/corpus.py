"""The texts of an audit, from files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from relprop.errors import InputError
from relprop.text_tables import ColumnName, file_kind, open_text, read_rows

ENDINGS = ("txt", "csv", "tsv", "jsonl")
USUAL = ("text", "sentence")  # columns to look for where none is named


def read_texts(path: str | os.PathLike[str], column: ColumnName | None = None) -> list[str]:
    """Every line of a .txt, or a column of a .csv, .tsv or .jsonl; also with .gz. Empty ones are left out.

    A column is given by name, or by its number from 0 where a file has no header. Cells of a .tsv are taken
    literally; those of a .csv may be quoted.
    """
    path = Path(path)
    if file_kind(path) not in ENDINGS:
        raise InputError(f'"{path.name}" is none of .{", .".join(ENDINGS)} (or these with .gz)')
    texts = [text for cell in _cells(path, column) if (text := cell.strip())]
    if not texts:
        raise InputError(f'"{path}" holds no text')
    return texts


def _cells(path: Path, column: ColumnName | None) -> Iterator[str]:
    if file_kind(path) == "txt":
        with open_text(path) as lines:
            yield from lines
        return
    column = int(column) if isinstance(column, str) and column.isdigit() else column
    for number, row in enumerate(read_rows(path, header=not isinstance(column, int), quoted=False), 1):
        chosen = next((one for one in USUAL if one in row), None) if column is None else column
        if chosen is None or chosen not in row:
            have = ", ".join(str(key) for key in row)
            asked = "column of texts" if column is None else f'column "{column}"'
            raise InputError(f'row {number} of "{path.name}" has no {asked} (it has {have}): name it with --column')
        if not isinstance(row[chosen], str):
            held = f"{row[chosen]!r:.40}"
            raise InputError(f'row {number} of "{path.name}": column "{chosen}" holds {held}, not a text')
        yield row[chosen]
