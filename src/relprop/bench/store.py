"""The results of a benchmark: one SQLite file, one transaction per cell; no acknowledged result is lost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relprop.bench.executors import CellSpec, KeyedSpec
from relprop.errors import InputError, RelpropError

FILE = "results.sqlite"
SCHEMA_VERSION = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS cells (
    key TEXT PRIMARY KEY, place INTEGER NOT NULL, spec TEXT NOT NULL, failures INTEGER NOT NULL DEFAULT 0,
    error TEXT, result TEXT, seconds REAL
);
"""


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


class Store:
    """The results in a folder. Only the driver writes; every write is on the disk before it returns."""

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        self.path = folder / FILE
        if not create and not self.path.is_file():
            raise InputError(
                f'"{folder}" holds no benchmark results; start one with `relprop bench run SUITE --out DIR`'
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            with self._transaction():
                for statement in _TABLES.strip().split(";\n"):
                    self._db.execute(statement)
                self._db.execute("INSERT OR IGNORE INTO about VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
        except (OSError, sqlite3.Error) as error:
            raise RelpropError(f'the results in "{folder}" cannot be opened: {error}') from error
        version = self.about("schema_version")
        if version != str(SCHEMA_VERSION):
            raise InputError(
                f'the results in "{folder}" have schema version {version}; this relprop reads {SCHEMA_VERSION}'
            )

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def plan(self, cells: Iterable[KeyedSpec]) -> None:
        """Add the cells of a plan, in order; known cells keep their results."""
        rows = [(key, place, json.dumps(spec, sort_keys=True)) for place, (key, spec) in enumerate(cells)]
        with self._write_errors(), self._transaction():
            self._db.executemany(
                "INSERT INTO cells (key, place, spec) VALUES (?, ?, ?) "
                "ON CONFLICT(key) DO UPDATE SET place=excluded.place",
                rows,
            )

    def succeed(self, key: str, result: object, seconds: float) -> None:
        """Store a result. The first one stays: a cell never counts twice."""
        with self._write_errors(), self._transaction():
            self._db.execute(
                "UPDATE cells SET result=?, seconds=?, error=NULL WHERE key=? AND result IS NULL",
                (json.dumps(result, sort_keys=True, allow_nan=True), seconds, key),
            )

    def fail(self, key: str, error: str) -> int:
        """Count a failure; returns the number of failures."""
        with self._write_errors(), self._transaction():
            self._db.execute(
                "UPDATE cells SET failures=failures+1, error=? WHERE key=? AND result IS NULL", (error, key)
            )
            row = self._db.execute("SELECT failures FROM cells WHERE key=?", (key,)).fetchone()
        return int(row[0])

    def forget_failures(self) -> None:
        """Forget all failures, so that failed cells are tried again."""
        with self._write_errors(), self._transaction():
            self._db.execute("UPDATE cells SET failures=0, error=NULL WHERE result IS NULL")

    @contextmanager
    def _write_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise RelpropError(f'"{self.path}" cannot be written ({error}); free the disk and resume') from error

    def rows(self) -> list[StoredResult]:
        """All cells in the order of the plan."""
        found = self._db.execute("SELECT key, spec, failures, error, result, seconds FROM cells ORDER BY place, key")
        return [
            StoredResult(
                key, json.loads(spec), failures, error, None if result is None else json.loads(result), seconds
            )
            for key, spec, failures, error, result, seconds in found
        ]

    def about(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM about WHERE name=?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def note(self, name: str, value: str) -> None:
        with self._write_errors(), self._transaction():
            self._db.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, value))
