"""The files of a store: opened to read or to write, by one writer at a time, and errors of SQLite in one sentence."""

from __future__ import annotations

import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from relprop.errors import RelpropError

FILE, LOCK = "results.sqlite", "results.lock"
_SECONDS = 60.0  # to wait while another process reads or writes
# What SQLite says where the file may be whole: the folder, the disk or another process is in the way.
_IN_THE_WAY = ("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_PERM", "SQLITE_READONLY")


class DamagedResultsError(RelpropError):
    """Results that are not as they were written."""

    def __init__(self, folder: Path, reason: object) -> None:
        command = f"relprop bench resume {shlex.quote(str(folder))} --rescue"
        super().__init__(
            f'the results in "{folder}" are damaged ({" ".join(str(reason).split()):.100}); `{command}` keeps what is '
            "readable, and works on the rest again"
        )


@contextmanager
def store_errors(folder: Path) -> Iterator[None]:
    """What goes wrong with the files, in one sentence."""
    try:
        yield
    except (sqlite3.Error, OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) or _in_the_way(error):
            raise RelpropError(f'the results in "{folder}" cannot be used: {error}') from error
        raise DamagedResultsError(folder, error) from error


def _in_the_way(error: Exception) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith(_IN_THE_WAY)


@contextmanager
def writer(folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection that may write, while no other process has one."""
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder), closing(sqlite3.connect(folder / FILE, _SECONDS, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=TRUNCATE")  # all is in one file, which can be read in a read-only folder
        db.execute("PRAGMA synchronous=FULL")
        yield db


@contextmanager
def reader(folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection that writes nothing: what a killed writer left half written is undone in a copy of the files."""
    path = folder / FILE
    with ExitStack() as opened:
        db = opened.enter_context(closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", _SECONDS, uri=True)))
        try:
            db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.OperationalError as error:
            if not _in_the_way(error):
                raise
            copy = Path(opened.enter_context(TemporaryDirectory(prefix="relprop-")))
            for file in store_files(folder):
                shutil.copyfile(file, copy / file.name)
            db = opened.enter_context(closing(sqlite3.connect(copy / FILE)))
        yield db


def store_files(folder: Path) -> list[Path]:
    """The file of the results, and those that SQLite writes beside it."""
    return [path for end in ("", "-journal", "-wal", "-shm") if (path := folder / f"{FILE}{end}").exists()]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Refuse a second writer. The lock is SQLite's, on a file of its own: it ends with the process, on any system."""
    with ExitStack() as held:
        try:
            lock = held.enter_context(closing(sqlite3.connect(folder / LOCK, 0, isolation_level=None)))
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
                said = f'another process is working in "{folder}": wait until it is done, or stop it'
            else:
                said = f'"{folder / LOCK}" cannot be locked ({error}); delete it if no other process is using it'
            raise RelpropError(said) from error
        yield
