"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


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
