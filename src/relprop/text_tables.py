"""Texts and tables in files: .txt, .csv, .tsv and .jsonl, also with .gz; and .parquet."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from relprop.errors import InputError, RelpropError, did_you_mean

ColumnName = str | int  # a number, from 0, where a file has no header
Row = Mapping[ColumnName, Any]
TABLES = ("csv", "tsv", "jsonl", "parquet")
_OTHERS = ("json", "xlsx", "xls", "ods", "arrow", "feather", "ndjson", "zip", "pkl", "pdf", "docx")  # neither nor lines


def file_kind(path: Path) -> str:
    """The last extension in lower case, without .gz."""
    return path.name.lower().removesuffix(".gz").rpartition(".")[2]


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """The file as text; a file that cannot be read is an InputError."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
            yield lines
    except UnicodeDecodeError as error:
        raise InputError(f'"{path}" is not UTF-8 text (at byte {error.start})') from error
    except (OSError, EOFError, csv.Error, json.JSONDecodeError, RecursionError, zlib.error) as error:
        raise InputError(f'"{path}" cannot be read: {getattr(error, "strerror", None) or error}') from error


def is_table(path: Path, column: ColumnName | None) -> bool:
    """Whether a file's texts stand in a column. Raises where it has neither columns nor lines of text."""
    kind = file_kind(path)
    if kind in TABLES:
        return True
    if kind in _OTHERS or column is not None:
        raise InputError(
            f'"{path}" is no table that can be read: texts come from a .csv, .tsv, .jsonl or .parquet with --column, '
            "or from the lines of any other text file without"
        )
    return False


def read_column(path: Path, column: str | None) -> dict[int, str]:
    """The texts of a table's column by their row, from 0; blank cells are left out.

    A column is given by its name, or by its number from 0 where a .csv or .tsv has no header.
    """
    names, delimiter = _header(path)
    chosen = _chosen(path, names, column)
    rows = _rows(path, chosen in names, delimiter)
    texts = {}
    for number, row in enumerate(rows):
        if chosen not in row:
            raise InputError(f'row {number} of "{path}" has no column "{chosen}" (it has {len(row)} cells)')
        cell = row[chosen]
        if cell is not None and not isinstance(cell, str):
            raise InputError(f'row {number} of "{path}": column "{chosen}" holds {cell!r:.40}, not a text')
        if cell and cell.strip():
            texts[number] = cell
    if not texts:
        raise InputError(f'"{path}" has no text to explain in column "{chosen}"')
    return texts


def _header(path: Path) -> tuple[list[ColumnName], str]:
    """The names of a table's columns, or the cells of its first row, and what parts the cells of a .csv."""
    kind = file_kind(path)
    if kind == "parquet":
        return list(_parquet(path).schema_arrow.names), ""
    first = next(_rows(path, False, ","), {})
    if kind == "jsonl":
        return list(first), ""
    cells = list(first.values())
    if kind == "csv" and len(cells) == 1 and ";" in cells[0]:  # as spreadsheets write it in many countries
        return list(next(csv.reader(cells, delimiter=";"))), ";"
    return cells, ","


def _rows(path: Path, header: bool, delimiter: str) -> Iterator[Row]:
    if file_kind(path) == "parquet":
        return (row for batch in _parquet(path).iter_batches() for row in batch.to_pylist())
    return read_rows(path, header=header, quoted=False, delimiter=delimiter if header else ",")


def _chosen(path: Path, names: list[ColumnName], column: str | None) -> ColumnName:
    """The column that is meant. Raises with the columns that there are."""
    known, plain = ", ".join(map(str, names)), file_kind(path) in ("csv", "tsv")
    if column is None:
        if names == [0]:  # lines of JSON that are texts themselves
            return 0
        bare = "; without a header: --column 0" if plain else ""
        raise InputError(f'"{path}" is a table: name its column of texts with --column (it has {known}{bare})')
    numbered = all(
        str(name).isdigit() for name in names if name
    )  # a header of numbers, as frames without names have it
    if plain and column.isdigit() and int(column) < len(names) and not (numbered and column in names):
        return int(column)
    if column in names:
        if names.count(column) > 1:
            raise InputError(f'"{path}" has {names.count(column)} columns "{column}": rename one')
        return column
    raise InputError(f'"{path}" has no column "{column}"{did_you_mean(column, map(str, names))} (it has {known})')


def _parquet(path: Path) -> Any:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise RelpropError('Parquet files need the pyarrow package: pip install "relprop[tables]"') from None
    try:
        return ParquetFile(path)
    except (OSError, ArrowException) as error:
        raise InputError(f'"{path}" cannot be read: {getattr(error, "strerror", None) or error}') from error


def read_rows(path: Path, *, header: bool, quoted: bool, delimiter: str = ",") -> Iterator[Row]:
    """The rows of a .csv, .tsv or .jsonl, by column name, or by number without a header.

    `quoted` is about cells of a .tsv; those of a .csv may always be quoted. `delimiter` is a .csv's.
    """
    kind = file_kind(path)
    with open_text(path) as lines:
        if kind == "jsonl":
            for line in lines:
                if line.strip():
                    value = json.loads(line)
                    yield value if isinstance(value, dict) else {0: value}
            return
        quoting = csv.QUOTE_MINIMAL if quoted or kind == "csv" else csv.QUOTE_NONE
        parted = "\t" if kind == "tsv" else delimiter
        reader = csv.reader(lines, delimiter=parted, quoting=quoting)  # type: ignore[arg-type]
        names: Any = next(reader, []) if header else None
        for row in reader:
            if row:
                yield dict(enumerate(row)) if names is None else dict(zip(names, row, strict=False))
