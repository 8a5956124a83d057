"""A figure written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.figure import Figure

from relprop.render.picture import DPI, FORMATS, MOST_PIXELS


def check(path: str | os.PathLike[str]) -> Path:
    """The path, if a figure can have that name."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f'cannot save a picture as "{path.name}"; the name must end in {", ".join(FORMATS)}')
    return path


def write(figure: Figure, path: Path) -> None:
    """Write beside the path first, then take its place; a figure too large for the canvas gets fewer dots an inch."""
    dpi = min(DPI, MOST_PIXELS / max(figure.get_size_inches()))
    with TemporaryDirectory(dir=path.parent, prefix=".relprop-") as folder:
        written = Path(folder, path.name)
        figure.savefig(written, format=path.suffix[1:].lower(), dpi=dpi)
        os.replace(written, path)
