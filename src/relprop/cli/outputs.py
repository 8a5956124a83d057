"""Where results go: the terminal, standard output, files, or folders with one file per picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from relprop.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Column

    from relprop.explanation import Explanation
    from relprop.render.image.overlay import Contour

STDOUT = Path("-")
FIGURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Outputs:
    """What the options --html, --png and --json name."""

    html: Path | None
    png: Path | None
    json: Path | None

    def each(self) -> Iterable[tuple[Path, str]]:
        named = ((self.html, ".html"), (self.png, ".png"), (self.json, ".json"))
        return [(path, ending) for path, ending in named if path is not None]

    @property
    def files(self) -> list[Path]:
        return [path for path, _ in self.each() if path != STDOUT]

    def check_files(self) -> None:
        """Raise with the reason if a result cannot be written where it should. Asked before any work."""
        from relprop.files import check_writable

        for path, endings in ((self.html, (".html",)), (self.png, FIGURES), (self.json, (".json",))):
            if path is not None and not (path is self.json and path == STDOUT):
                check_writable(path, endings)

    def check_folders(self) -> None:
        """A folder of pictures writes one file each, into folders, which are made."""
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
    columns: Sequence[str | Column], rows: Iterable[Sequence[RenderableType]], *, pad_edge: bool = True
) -> None:
    """A table as all commands print it."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, header_style="bold", box=SIMPLE_HEAD, pad_edge=pad_edge)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def present(found: Sequence[Explanation], outputs: Outputs, ledger: bool = False, contour: Contour = None) -> None:
    """Explanations shown, and written where asked."""
    from relprop.explanation import save, show

    if outputs.json == STDOUT:
        typer.echo("\n".join(one.to_json() for one in found))
    else:
        show(found)
        typer.echo("".join(_ledgers(one) for one in found) if ledger else "", nl=False)
    for file in outputs.files:
        save(found, file, contour=contour)
        typer.echo(f"wrote {file}", err=True)


def _ledgers(one: Explanation) -> str:
    if one.steps:
        return "".join(f"\n{step.target}\n{step.ledger or 'has no ledger'}\n" for step in one.steps)
    if one.ledger is None:
        return f"\n{one.method} has no ledger: its scores are no shares of the value\n"
    return f"\n{one.method}: {one.target}\n{one.ledger}\n"


def write_one_of_many(name: str, found: Sequence[Explanation], outputs: Outputs, contour: Contour) -> None:
    """The explanations of one picture of a folder, into the folders that were named."""
    from relprop.explanation import save, show

    if outputs.json == STDOUT:
        typer.echo("\n".join(one.to_json() for one in found))
    elif not outputs.files:
        show(found)
    for folder, ending in outputs.each():
        if folder != STDOUT:
            save(found, folder / f"{name}{ending}", contour=contour)
