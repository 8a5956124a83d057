"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from relprop.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` at the end; after an error `path` is as it was."""
    with TemporaryDirectory(dir=path.parent, prefix=".relprop-") as folder:
        new = Path(folder, path.name)
        yield new
        os.replace(new, path)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as new:
        new.write_bytes(content)


def check_writable(path: Path, endings: Sequence[str]) -> None:
    """Raise with the reason if a result cannot be written here. Asked before any work."""
    if path.suffix.lower() not in endings:
        choices = " or ".join([", ".join(endings[:-1]), endings[-1]] if len(endings) > 1 else endings)
        raise InputError(f'cannot write "{path}": the name must end in {choices}')
    if not path.parent.is_dir():
        raise InputError(f'cannot write "{path}": there is no folder "{path.parent}"')
    if path.is_dir():
        raise InputError(f'cannot write "{path}": it is a folder')
    with writing(path):
        TemporaryFile(dir=path.parent).close()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What goes wrong with a file, as one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(f'cannot write "{path}": {error.strerror or error}') from error
