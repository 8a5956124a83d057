"""A figure written whole or not at all, and the same bytes every time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from matplotlib import rc_context
from matplotlib.figure import Figure

from relprop.files import replacing
from relprop.render.fonts import warn_of_lacking

FORMATS = (".png", ".svg", ".pdf")
DPI, MOST_PIXELS = 200, 60_000  # Agg draws no picture of 2 ** 16 pixels a side
_DATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def check(path: str | os.PathLike[str]) -> Path:
    """The path, if a figure can have that name."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f'cannot save a picture as "{path.name}"; the name must end in {", ".join(FORMATS)}')
    return path


def write(figure: Figure, path: Path) -> None:
    """Write beside the path first, then take its place."""
    with replacing(path) as written:
        put(figure, written, path.suffix[1:].lower())


def put(figure: Figure, where: Path | IO[bytes], kind: str) -> None:
    """Without a date and with names that do not change; one too large for the canvas gets fewer dots an inch.

    Warns of characters that no font has.
    """
    warn_of_lacking()
    dpi = min(DPI, MOST_PIXELS / max(figure.get_size_inches()))
    with rc_context({"svg.hashsalt": "relprop"}):
        figure.savefig(where, format=kind, dpi=dpi, metadata=_DATED.get(kind))
