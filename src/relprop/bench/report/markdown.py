"""The report as Markdown, with its figures as files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from relprop.bench.report import blocks
from relprop.bench.report.plots import svg_file
from relprop.files import write_bytes, write_text
from relprop.render.text import figure as text_figure

FIGURES = "figures"
ACROSS = 7  # small images in a row


class FigureFolder:
    """Gives every figure a file name of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[Path] = []

    def path(self, name: str, extension: str) -> Path:
        """The path of a figure with this name in words."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80] or "figure"
        taken = {path.stem for path in self.written}
        names = chain([stem], (f"{stem}-{number}" for number in count(2)))
        self.written.append(self.folder / f"{next(name for name in names if name not in taken)}.{extension}")
        return self.written[-1]


def markdown(sections: Iterable[blocks.Section], figures: FigureFolder) -> str:
    return "\n\n".join(part for section in sections for part in _section(section, figures)) + "\n"


def _section(section: blocks.Section, figures: FigureFolder) -> Iterator[str]:
    yield f"{'#' * section.depth} {_escape(section.heading)}"
    for block in section.blocks:
        yield from _block(block, figures)


def _block(block: blocks.ReportBlock, figures: FigureFolder) -> Iterator[str]:
    match block:
        case blocks.Paragraph(text):
            yield _escape(text)
        case blocks.Bullets(items):
            yield "\n".join(f"- {_escape(item)}" for item in items)
        case blocks.Code(text):
            yield "\n".join(f"    {line}" for line in text.splitlines())
        case blocks.TableBlock():
            yield f"**{_escape(block.caption)}**"
            heads = [block.corner, *(f"{one.group} {one.name}".strip() for one in block.columns)]
            yield _table(heads, [[_row_name(row), *map(_cell, row.cells)] for row in block.rows], block.numbers)
        case blocks.Plot():
            path = figures.path(block.name, "svg")
            write_text(path, svg_file(block))
            yield _image(path, block.caption)
            yield _escape(block.caption)
        case blocks.Heatmaps():
            path = figures.path(block.name, "svg")
            text_figure.save(block.heatmaps, path)
            yield f"**{_escape(block.caption)}**"
            yield _image(path, f"heat maps of {block.caption} by method")
        case blocks.ImageRow():
            yield f"**{_escape(block.caption)}**"
            yield from _images(block, figures)


def _images(block: blocks.ImageRow, figures: FigureFolder) -> Iterator[str]:
    """Images with titles stand in tables, below their titles, several per row."""
    images = [_written_image(one, figures) for one in block.images]
    titles = [one.title for one in block.images]
    if not any(titles):
        yield from images
        return
    for k in range(0, len(images), ACROSS):
        yield _table(titles[k : k + ACROSS], [images[k : k + ACROSS]])


def _written_image(one: blocks.ImageFile, figures: FigureFolder) -> str:
    path = figures.path(one.name, one.extension)
    write_bytes(path, one.data)
    return _image(path, one.alt)


def _image(path: Path, alt: str) -> str:
    return f"![{_escape(alt)}]({FIGURES}/{path.name})"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = False) -> str:
    rule = ["---", *["---:" if numbers else "---"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in ([_escape(head) for head in heads], rule, *rows))


def _row_name(row: blocks.TableRow) -> str:
    code = " ".join(row.code.replace("`", "'").replace("|", "\\|").split())
    name = f"{_escape(row.name)} `{code}`" if code else _escape(row.name)
    return f"*{name}*" if row.apart else name


def _cell(cell: blocks.TableCell) -> str:
    return f"**{_escape(cell.text)}**" if cell.bold and cell.text else _escape(cell.text)


def _escape(text: str) -> str:
    """One line in which no character is markup or ends a table cell."""
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*|\[\]]|(?<!\w)_|_(?!\w)|^[#+-](?=\s)|^\d+(?=\.\s))", r"\\\1", flat)
