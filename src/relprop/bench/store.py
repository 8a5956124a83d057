"""The results of a benchmark: one SQLite file, one transaction per cell; no acknowledged result is lost.

Every row carries a hash of its values, as SQLite itself does not notice a flipped bit in a number.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relprop.bench.executors import CellSpec, KeyedSpec
from relprop.bench.store_files import FILE, DamagedResultsError, reader, store_errors, writer
from relprop.errors import InputError, RelpropError

SCHEMA_VERSION, UNSIGNED = "2", "1"  # the rows of version 1 have no hash
CELLS = "cells"  # the note of how many cells there are
NOTES = ("suite", "command", "environment", "models")  # what a plan says beside its cells
COLUMNS = {"about": "name, value", "cells": "key, place, spec, failures, error, result, seconds"}
_TABLES = (
    "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL, digest TEXT)",
    "CREATE TABLE IF NOT EXISTS cells (key TEXT PRIMARY KEY, place INTEGER NOT NULL, spec TEXT NOT NULL, "
    "failures INTEGER NOT NULL DEFAULT 0, error TEXT, result TEXT, seconds REAL, digest TEXT)",
)


@dataclass(frozen=True)
class StoredResult:
    """A cell, and its result or its error."""

    key: str
    spec: CellSpec
    failures: int
    error: str | None
    result: Any
    seconds: float | None

    @property
    def done(self) -> bool:
        return self.result is not None

    @classmethod
    def of(cls, row: Sequence[Any]) -> StoredResult:
        key, _, spec, failures, error, result, seconds = row
        return cls(key, json.loads(spec), failures, error, None if result is None else json.loads(result), seconds)

    def row(self, place: int) -> tuple[object, ...]:
        result = None if self.result is None else json.dumps(self.result, sort_keys=True, allow_nan=True)
        return self.key, place, json.dumps(self.spec, sort_keys=True), self.failures, self.error, result, self.seconds


def cell_key(spec: CellSpec) -> str:
    """A hash of the spec: the same work has the same key in every run."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def row_digest(row: Iterable[object]) -> str:
    return hashlib.sha256(repr(tuple(row)).encode()).hexdigest()[:32]


class Store:
    """The results in a folder. Only the driver writes, alone; every write is on the disk before it returns."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder = folder
        file = folder / FILE
        if file.is_dir():
            raise DamagedResultsError(folder, f"{FILE} is a folder")
        if read_only and not (file.is_file() and file.stat().st_size):
            raise InputError(
                f'"{folder}" holds no benchmark results; start one with `relprop bench run SUITE --out DIR`'
            )
        with store_errors(folder), ExitStack() as opened:
            self._db = opened.enter_context((reader if read_only else writer)(folder))
            said = self._db.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if said != "ok":
                raise DamagedResultsError(folder, str(said).splitlines()[-1])
            if not read_only:
                self._prepare()
            self._version = self._schema_version()
            if self._version is None:
                raise DamagedResultsError(folder, "it has no schema version")
            if self._version not in (UNSIGNED, SCHEMA_VERSION):
                got = f"have schema version {self._version}; this relprop reads {SCHEMA_VERSION}"
                raise InputError(f'the results in "{folder}" {got}')
            self._notes = dict(self._read("about"))
            self._opened = opened.pop_all()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _prepare(self) -> None:
        """Create the tables, and sign the rows of an older relprop."""
        with self._transaction():
            for statement in _TABLES:
                self._db.execute(statement)
            version = self._schema_version()
            if version == UNSIGNED:
                for table, columns in COLUMNS.items():
                    self._db.execute(f"ALTER TABLE {table} ADD COLUMN digest TEXT")
                    for row in self._db.execute(f"SELECT {columns} FROM {table}").fetchall():
                        self._put(table, row)
            if version in (None, UNSIGNED):
                self._put("about", ("schema_version", SCHEMA_VERSION))

    def _schema_version(self) -> str | None:
        row = self._db.execute("SELECT * FROM about WHERE name='schema_version'").fetchone()
        if row and len(row) > 2 and row[2] != row_digest(row[:2]):
            raise DamagedResultsError(self.folder, "its schema version is not as it was written")
        return str(row[1]) if row else None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with store_errors(self.folder):
            try:
                with self._transaction():
                    yield
            except sqlite3.OperationalError as error:
                file = self.folder / FILE
                raise RelpropError(f'"{file}" cannot be written ({error}); free the disk and resume') from error

    def _put(self, table: str, row: Sequence[object]) -> None:
        """Write a row with its hash, in place of one with the same key."""
        marks = ", ".join("?" * (len(row) + 1))
        self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", (*row, row_digest(row)))

    def _read(self, table: str, where: str = "", *values: str) -> list[list[Any]]:
        """Rows, each as it was written."""
        digest = "NULL" if self._version == UNSIGNED else "digest"
        found = self._db.execute(f"SELECT {COLUMNS[table]}, {digest} FROM {table} {where}", values).fetchall()
        for *row, signed in found:
            if self._version != UNSIGNED and signed != row_digest(row):
                raise DamagedResultsError(self.folder, f"{row[0]!r:.40} is not as it was written")
        return [row for *row, _ in found]

    def _cell(self, key: str) -> tuple[StoredResult, int]:
        """A cell, and its place in the plan."""
        (row,) = self._read("cells", "WHERE key=?", key)
        return StoredResult.of(row), row[1]

    def plan(self, cells: Iterable[KeyedSpec]) -> None:
        """Add the cells of a plan, in order; known cells keep their results."""
        known = {one.key: one for one in self.rows()}
        self.keep([known.get(key, StoredResult(key, spec, 0, None, None, None)) for key, spec in cells])

    def keep(self, cells: Iterable[StoredResult]) -> None:
        """Store cells as they are, in order, in one transaction."""
        with self._writing():
            for place, cell in enumerate(cells):
                self._put("cells", cell.row(place))
            self._count_cells()

    def drop(self, keys: Iterable[str]) -> None:
        """Delete cells, with their results."""
        with self._writing():
            self._db.executemany("DELETE FROM cells WHERE key=?", [(key,) for key in keys])
            self._count_cells()

    def _count_cells(self) -> None:
        """Note how many there are, so that a lost one is found."""
        (count,) = self._db.execute("SELECT count(*) FROM cells").fetchone()
        self._put("about", (CELLS, str(count)))
        self._notes[CELLS] = str(count)

    def succeed(self, key: str, result: object, seconds: float) -> None:
        """Store a result. The first one stays: a cell never counts twice."""
        with self._writing():
            cell, place = self._cell(key)
            if not cell.done:
                self._put("cells", replace(cell, result=result, seconds=float(seconds), error=None).row(place))

    def fail(self, key: str, error: str) -> int:
        """Count a failure; returns the number of failures."""
        with self._writing():
            cell, place = self._cell(key)
            if not cell.done:
                cell = replace(cell, failures=cell.failures + 1, error=error)
                self._put("cells", cell.row(place))
        return cell.failures

    def forget_failures(self) -> None:
        """Forget all failures, so that failed cells are tried again."""
        with self._writing():
            for row in self._read("cells", "WHERE result IS NULL"):
                self._put("cells", replace(StoredResult.of(row), failures=0, error=None).row(row[1]))

    def rows(self) -> list[StoredResult]:
        """All cells in the order of the plan."""
        with store_errors(self.folder):
            found = [StoredResult.of(row) for row in self._read("cells", "ORDER BY place, key")]
        planned = self.about(CELLS)
        if planned is not None and planned != str(len(found)):
            raise DamagedResultsError(self.folder, f"it holds {len(found)} of {planned} cells")
        return found

    def about(self, name: str) -> str | None:
        return self._notes.get(name)

    def note(self, name: str, value: str) -> None:
        with self._writing():
            self._put("about", (name, value))
        self._notes[name] = value
