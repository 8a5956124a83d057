"""Texts and tables in files: .txt, .csv, .tsv and .jsonl, also with .gz."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from relprop.errors import InputError

ColumnName = str | int  # a number, from 0, where a file has no header
Row = Mapping[ColumnName, Any]


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


def read_rows(path: Path, *, header: bool, quoted: bool) -> Iterator[Row]:
    """The rows of a .csv, .tsv or .jsonl, by column name, or by number without a header.

    `quoted` is about cells of a .tsv; those of a .csv may always be quoted.
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
        reader = csv.reader(lines, delimiter="\t" if kind == "tsv" else ",", quoting=quoting)  # type: ignore[arg-type]
        names: Any = next(reader, []) if header else None
        for row in reader:
            if row:
                yield dict(enumerate(row)) if names is None else dict(zip(names, row, strict=False))
