"""A figure written whole or not at all, and the same bytes every time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from textwrap import wrap
from typing import IO

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.transforms import Bbox

from relprop.files import replacing
from relprop.render.fonts import REGULAR, drawable, warn_of_lacking
from relprop.render.visible import visible

FORMATS = (".png", ".svg", ".pdf")
DPI, MOST_PIXELS = 200, 60_000  # Agg draws no picture of 2 ** 16 pixels a side
LETTERS, LINE = 15, 0.16  # of a warning: letters an inch, inches a line
_warnings: ContextVar[Sequence[str]] = ContextVar("warnings", default=())
_DATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def check(path: str | os.PathLike[str]) -> Path:
    """The path, if a figure can have that name."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f'cannot save a picture as "{path.name}"; the name must end in {", ".join(FORMATS)}')
    return path


@contextmanager
def with_warnings(sentences: Sequence[str]) -> Iterator[None]:
    """What is written inside has these sentences below: what its numbers do not say."""
    token = _warnings.set(sentences)
    try:
        yield
    finally:
        _warnings.reset(token)


def write(figure: Figure, path: Path) -> None:
    """Write beside the path first, then take its place."""
    with replacing(path) as written:
        put(figure, written, path.suffix[1:].lower(), _write_warnings(figure))


def _write_warnings(figure: Figure) -> float:
    """Writes below the figure what its numbers do not say; how many inches that takes."""
    width = int(LETTERS * figure.get_figwidth())
    lines = [line for one in _warnings.get() for line in wrap(f"warning: {visible(one)}", width)]
    font = FontProperties(fname=str(REGULAR), size=8)
    for number, line in enumerate(lines):
        across, down = 0.2 / figure.get_figwidth(), -LINE * (number + 0.5) / figure.get_figheight()
        figure.text(across, down, drawable(line, REGULAR), va="top", fontproperties=font, parse_math=False)
    return LINE * (len(lines) + 1) if lines else 0.0


def put(figure: Figure, where: Path | IO[bytes], kind: str, below: float = 0.0) -> None:
    """Without a date and with names that do not change; one too large for the canvas gets fewer dots an inch.

    `below`: inches under the figure that belong to it. Warns of characters that no font has.
    """
    warn_of_lacking()
    width, height = figure.get_size_inches()
    dpi = min(DPI, MOST_PIXELS / max(width, height + below))
    whole = Bbox.from_extents(0, -below, width, height) if below else None
    with rc_context({"svg.hashsalt": "relprop"}):
        figure.savefig(where, format=kind, dpi=dpi, metadata=_DATED.get(kind), bbox_inches=whole)
