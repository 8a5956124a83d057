"""The report as Markdown, with its figures as files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from relprop.bench.report import plots
from relprop.bench.report.blocks import (
    Block,
    Bullets,
    Cell,
    Code,
    Column,
    Grid,
    Heatmaps,
    Line,
    Picture,
    Pictures,
    Plot,
    Section,
    Text,
)
from relprop.explanation import write_text
from relprop.render.text import figure as text_figure

FIGURES = "figures"
ACROSS = 7  # small pictures in a row


class Files:
    """The figures' folder: every file a name of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[Path] = []

    def path(self, name: str, ending: str) -> Path:
        """Where a figure goes, from its name in words."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80] or "figure"
        taken = {path.stem for path in self.written}
        names = chain([stem], (f"{stem}-{number}" for number in count(2)))
        self.written.append(self.folder / f"{next(name for name in names if name not in taken)}.{ending}")
        return self.written[-1]


def markdown(sections: Iterable[Section], files: Files) -> str:
    return "\n\n".join(part for section in sections for part in _section(section, files)) + "\n"


def _section(section: Section, files: Files) -> Iterator[str]:
    yield f"{'#' * section.depth} {_escaped(section.heading)}"
    for block in section.blocks:
        yield from _block(block, files)


def _block(block: Block, files: Files) -> Iterator[str]:
    match block:
        case Text(text):
            yield _escaped(text)
        case Bullets(items):
            yield "\n".join(f"- {_escaped(item)}" for item in items)
        case Code(text):
            yield "\n".join(f"    {line}" for line in text.splitlines())
        case Grid():
            yield f"**{_escaped(block.caption)}**"
            yield _table(block)
        case Plot():
            path = files.path(block.name, "svg")
            write_text(path, plots.sheet(block))
            yield _image(path, block.caption)
            yield _escaped(block.caption)
        case Heatmaps():
            path = files.path(block.name, "svg")
            text_figure.save(block.heatmaps, path)
            yield f"**{_escaped(block.caption)}**"
            yield _image(path, f"heat maps of {block.caption} by method")
        case Pictures():
            yield f"**{_escaped(block.caption)}**"
            yield from _pictures(block, files)


def _pictures(block: Pictures, files: Files) -> Iterator[str]:
    """In tables if they are small, with their names over them, some in a row."""
    images = [_image(_written(one, files), one.alt) for one in block.pictures]
    if not any(one.title for one in block.pictures):
        yield from images
        return
    titles = [one.title for one in block.pictures]
    for k in range(0, len(images), ACROSS):
        yield _rows(titles[k : k + ACROSS], [images[k : k + ACROSS]])


def _written(one: Picture, files: Files) -> Path:
    path = files.path(one.name, one.ending)
    path.write_bytes(one.data)
    return path


def _image(path: Path, alt: str) -> str:
    return f"![{_escaped(alt)}]({FIGURES}/{path.name})"


def _table(grid: Grid) -> str:
    heads = [grid.corner, *(_head(column) for column in grid.columns)]
    return _rows(heads, [[_first(line), *map(_cell, line.cells)] for line in grid.lines], grid.numbers)


def _rows(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = False) -> str:
    rule = ["---", *["---:" if numbers else "---"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in ([_escaped(head) for head in heads], rule, *rows))


def _head(column: Column) -> str:
    return f"{column.group} {column.name}".strip()


def _first(line: Line) -> str:
    name = f"{_escaped(line.name)} `{_code(line.code)}`" if line.code else _escaped(line.name)
    return f"*{name}*" if line.apart else name


def _cell(cell: Cell) -> str:
    return f"**{_escaped(cell.text)}**" if cell.bold and cell.text else _escaped(cell.text)


def _code(text: str) -> str:
    return " ".join(text.replace("`", "'").replace("|", "\\|").split())


def _escaped(text: str) -> str:
    """One line that says what it says: no markup in it, and no cell's end."""
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*|\[\]]|(?<!\w)_|_(?!\w)|^[#+-](?=\s)|^\d+(?=\.\s))", r"\\\1", flat)
