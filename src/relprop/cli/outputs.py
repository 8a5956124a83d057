"""Where results go: the terminal, standard output, files, or folders with one file per picture."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from relprop.cli.many import check_out
from relprop.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Column

    from relprop.explanation import Explanation
    from relprop.render.image.overlay import Contour

STDOUT = Path("-")
FIGURES = (".png", ".svg", ".pdf")
MANY = 20  # explanations that are drawn; of more, each is one line


@dataclass(frozen=True)
class Outputs:
    """What the options --html, --png, --json and --out name, and what is shown beside."""

    html: Path | None
    png: Path | None
    json: Path | None
    out: Path | None = None
    numbers: bool = False  # in place of colours
    quiet: bool = False

    def each(self) -> Iterable[tuple[Path, str]]:
        named = ((self.html, ".html"), (self.png, ".png"), (self.json, ".json"))
        return [(path, ending) for path, ending in named if path is not None]

    @property
    def files(self) -> list[Path]:
        return [path for path, _ in self.each() if path != STDOUT]

    def check_files(self) -> None:
        """Raise with the reason if a result cannot be written where it should. Asked before any work."""
        from relprop.files import check_writable

        self._check_shown()
        for path, endings in ((self.html, (".html",)), (self.png, FIGURES), (self.json, (".json",))):
            if path is not None and not (path is self.json and path == STDOUT):
                check_writable(path, endings)

    def _check_shown(self) -> None:
        if self.quiet and self.out is None and not self.files:
            raise InputError("--quiet shows nothing: name a file with --out, --html, --png or --json")
        if self.out is not None:
            if self.numbers or any((self.html, self.png, self.json)):
                raise InputError("--out writes one file as it goes: leave out --html, --png, --json and --numbers")
            check_out(self.out)

    def check_folders(self) -> None:
        """A folder of pictures writes one file each, into folders, which are made; or all into --out."""
        self._check_shown()
        for path, ending in self.each():
            if path == STDOUT:
                continue
            if path.suffix:
                raise InputError(f'a folder of images writes one {ending} file each: name a folder, not "{path}"')
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(f'cannot make the folder "{path}": {error.strerror}') from error


def print_table(
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[RenderableType]],
    *,
    pad_edge: bool = True,
    one_line: bool = False,
) -> None:
    """A table as all commands print it. `one_line`: rows are not wrapped; at a terminal the last cell is cut to fit."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console, table = Console(), Table(*columns, header_style="bold", box=SIMPLE_HEAD, pad_edge=pad_edge)
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))  # "[h]" is no markup
    if one_line:
        for column in table.columns:
            column.no_wrap = True
        whole = Console(width=10_000).measure(table).maximum
        if console.is_terminal:
            last = table.columns[-1]
            last.max_width = max(10, max(len(str(cell)) for cell in last.cells) - max(0, whole - console.width))
        else:
            console = Console(width=whole)
    console.print(table)


def present(found: Sequence[Explanation], outputs: Outputs, ledger: bool = False, contour: Contour = None) -> None:
    """Explanations shown, and written where asked."""
    from relprop.explanation import save

    if outputs.json == STDOUT:
        typer.echo("\n".join(one.to_json() for one in found))
    elif not outputs.quiet:
        _show(found, outputs.numbers)
        typer.echo("".join(_ledgers(one) for one in found) if ledger else "", nl=False)
    for file in outputs.files:
        save(found, file, contour=contour)
        if not outputs.quiet:
            typer.echo(f"wrote {file}", err=True)


def _show(found: Sequence[Explanation], numbers: bool) -> None:
    """Coloured; many explanations as one line each, so that a file of texts can be read through; or as numbers."""
    from relprop.explanation import show

    if numbers:
        typer.echo("\n".join(line for one in found for line in number_lines(one)))
    elif len(found) > MANY:
        typer.echo("\n".join(map(repr, found)))
        typer.echo(f"{len(found):,} in one line each; --out FILE.jsonl writes all numbers, --html a page", err=True)
    else:
        show([replace(one, warnings=()) for one in found])  # which were told when they came up


def number_lines(one: Explanation) -> Iterator[str]:
    """What was explained, then one line per unit: its score and its name, apart by a tab; they sum to the value."""
    from relprop.render.visible import visible

    if one.steps:
        for index in range(len(one.steps)):
            yield from number_lines(one.step(index))
        return
    sure = f" ({one.probability:.2f})" if one.probability is not None else ""
    told = f", predicted {one.prediction}{sure}" if one.prediction else ""
    yield f"{one.method}: {one.target} = {one.value:.6g}{told}"
    sign = "+" if one.signed else ""  # a plus sign would say that a unit speaks for the target
    for part in one.parts:
        if len(one.parts) > 1:
            yield f"{part.name}:"
        for name, score in part.named_scores():
            yield f"{score:{sign}.6f}\t{visible(name)}"
    yield from (f"{share:+.6f}\t({name})" for name, share in one.account)
    yield ""


@contextmanager
def loading_note(what: str) -> Iterator[None]:
    """Says what is being loaded, which may take seconds; only on a terminal, and only while it lasts.

    Garbage collection waits meanwhile: what is loaded stays, and looking through it took an eighth of the time.
    """
    shown, collects = sys.stderr.isatty(), gc.isenabled()
    if shown:
        print(f"loading {what} ...", end="", file=sys.stderr, flush=True)
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.freeze()
            gc.enable()
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _ledgers(one: Explanation) -> str:
    if one.steps:
        return "".join(f"\n{step.target}\n{step.ledger or 'has no ledger'}\n" for step in one.steps)
    if one.ledger is None:
        return f"\n{one.method} has no ledger: its scores are no shares of the value\n"
    return f"\n{one.method}: {one.target}\n{one.ledger}\n"


def write_one_of_many(name: str, found: Sequence[Explanation], outputs: Outputs, contour: Contour) -> None:
    """The explanations of one picture of a folder, into the folders that were named."""
    from relprop.explanation import save

    if outputs.json == STDOUT:
        typer.echo("\n".join(one.to_json() for one in found))
    elif not outputs.files:
        _show(found, outputs.numbers)
    for folder, ending in outputs.each():
        if folder != STDOUT:
            save(found, folder / f"{name}{ending}", contour=contour)
