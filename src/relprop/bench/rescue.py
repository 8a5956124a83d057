"""What can still be read of damaged results: kept in a new file, while the damaged one is put aside."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from relprop.bench.store import CELLS, COLUMNS, NOTES, Store, StoredResult, cell_key, row_digest
from relprop.bench.store_files import FILE, DamagedResultsError, alone, store_errors, store_files

_LONGEST = 2**40  # bytes


@dataclass(frozen=True)
class Rescued:
    """How many results were kept, where the damaged file is now, and whether the plan of the run is whole."""

    kept: int
    aside: Path
    whole: bool


def rescue_results(folder: Path) -> Rescued | None:
    """Put a damaged file aside, and the results that are as they were written into a new one; None if none is damaged.

    A plan that is not whole is dropped: `relprop bench run` writes it again, and works only on what is missing.
    """
    try:
        with Store(folder, read_only=True) as store:
            store.rows()
        return None
    except DamagedResultsError:
        pass
    with store_errors(folder), alone(folder):
        aside = _put_aside(folder)
    _fill_up(aside)
    about = {row[0]: row[1] for row, right in _readable(aside, "about") if right}
    trusted = [(row[1], cell) for row, right in _readable(aside, "cells") if (cell := _trusted(row, right)) is not None]
    trusted.sort(key=lambda one: one[0] if isinstance(one[0], int) else -1)
    cells = [cell for _, cell in trusted]
    in_order = [place for place, _ in trusted] == list(range(len(cells)))
    whole = in_order and about.get(CELLS) == str(len(cells)) and set(NOTES) <= about.keys()
    with Store(folder) as store:
        store.keep(cells)
        for name in NOTES if whole else ():
            store.note(name, about[name])
    return Rescued(sum(cell.done for cell in cells), aside, whole)


def _put_aside(folder: Path) -> Path:
    names = (f"damaged-{number}.sqlite" for number in count(1))
    aside = next(folder / name for name in names if not (folder / name).exists())
    for file in store_files(folder):
        file.rename(folder / file.name.replace(FILE, aside.name))
    return aside


def _fill_up(path: Path) -> None:
    """Add zeros up to the length that the header names: SQLite reads nothing of a file that was cut short."""
    with suppress(OSError), path.open("rb") as file:  # a folder is no file
        header = file.read(32)
        length = int.from_bytes(header[16:18]) * int.from_bytes(header[28:32])
        if path.stat().st_size < length < _LONGEST:
            os.truncate(path, length)


def _readable(path: Path, table: str) -> Iterator[tuple[Sequence[Any], bool]]:
    """The rows that can be read, in order, and whether each is as it was written. The scan starts at both ends."""
    width = COLUMNS[table].count(",") + 1
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as db:
        db.text_factory = partial(str, encoding="utf-8", errors="replace")  # the hash shows what is wrong
        numbers: set[int] = set()
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error):
                numbers.update(one for (one,) in db.execute(f"SELECT rowid FROM {table} ORDER BY rowid {order}"))
        for number in sorted(numbers):
            with suppress(sqlite3.Error):
                for found in db.execute(f"SELECT * FROM {table} WHERE rowid=?", (number,)).fetchall():
                    row, digest = found[:width], found[width:]  # rows of version 1 have none
                    yield row, not digest or digest[0] == row_digest(row)


def _trusted(row: Sequence[Any], right: bool) -> StoredResult | None:
    """The cell, without its result if that may be wrong; None if not even its spec is right."""
    with suppress(ValueError, TypeError, RecursionError):
        if right:
            return StoredResult.of(row)
        undone = StoredResult.of((*row[:3], 0, None, None, None))
        return undone if undone.key == cell_key(undone.spec) else None
    return None
