"""`relprop explain` for pictures, a folder of them with one file each; and how any explanation is presented."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from relprop.errors import InputError

if TYPE_CHECKING:
    from relprop.explainer import Explainer

ENDINGS = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
STDOUT = Path("-")


@dataclass(frozen=True)
class Outputs:
    """Where results go: files for one picture, folders for a folder."""

    html: Path | None
    png: Path | None
    json: Path | None

    def each(self) -> Iterable[tuple[Path, str]]:
        named = ((self.html, ".html"), (self.png, ".png"), (self.json, ".json"))
        return [(path, ending) for path, ending in named if path is not None]


def pictures(given: str | None) -> list[Path] | None:
    """The picture, or the folder's pictures; None where it is a text."""
    if not given or given.strip() in ("", ".", ".."):
        return None
    path = Path(given)
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, ValueError):  # too long for a name, or with a null: a text
        return None
    if path.suffix.lower() in ENDINGS:
        if is_file:
            return [path]
        if not any(char.isspace() for char in given):
            raise InputError(f'there is no image "{given}"')
    if not is_folder:
        return None
    found = sorted(one for one in path.iterdir() if one.suffix.lower() in ENDINGS)
    if not found:
        raise InputError(f'the folder "{given}" holds no image')
    return found


def check_folders(outputs: Outputs) -> None:
    """A folder of pictures writes one file each, into folders, which are made."""
    for path, ending in outputs.each():
        if path == STDOUT:
            continue
        if path.suffix:
            raise InputError(f'a folder of images writes one {ending} file each: name a folder, not "{path}"')
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f'cannot make the folder "{path}": {error.strerror}') from error


def present(found: Sequence[Any], outputs: Outputs, ledger: bool = False, contour: Any = None) -> None:
    """Texts, images or graphs: shown, and written where asked."""
    if outputs.json == STDOUT:
        typer.echo("\n".join(one.to_json() for one in found))
    else:
        _home(found).show(found)
        typer.echo("".join(f"\n{_books(one)}\n" for one in found) if ledger else "", nl=False)
    for file, _ in outputs.each():
        if file != STDOUT:
            _save(found, file, contour)
            typer.echo(f"wrote {file}", err=True)


def _home(found: Sequence[Any]) -> Any:
    """The module of these explanations, which shows and saves several."""
    return sys.modules[type(found[0]).__module__]


def _save(found: Sequence[Any], file: Path, contour: Any) -> None:
    _home(found).save(found, file, **({} if contour is None else {"contour": contour}))


def _books(one: Any) -> str:
    none = "has no ledger: its scores are no shares of the value"
    return f"{one.method}: {one.target}\n{one.ledger}" if one.ledger else f"{one.method} {none}"


def explain_folder(
    explainer: Explainer,
    paths: Sequence[Path],
    targets: Sequence[Any],
    outputs: Outputs,
    asked: dict[str, Any],
    contour: Any,
) -> None:
    """Every picture of a folder; one that cannot be read is named at the end, and the others go on."""
    size = asked["batch_size"]
    if size < 1:
        raise InputError(f"batch_size must be at least 1, got {size}")
    from rich.console import Console
    from rich.progress import track

    failed: list[str] = []
    console = Console(stderr=True)
    chunks = [paths[k : k + size] for k in range(0, len(paths), size)]
    for chunk in track(chunks, "explaining", console=console, disable=not console.is_terminal, transient=True):
        good = [path for path in chunk if _readable(path, failed)]
        for path, found in zip(good, explained(explainer, good, targets, {**asked, "progress": False}), strict=True):
            _write(path, found, outputs, contour)
    typer.echo(f"explained {len(paths) - len(failed)} of {len(paths)} images", err=True)
    if failed:
        raise InputError("; ".join(failed))


def _readable(path: Path, failed: list[str]) -> bool:
    from relprop.domains.image import opened

    try:
        opened(path)
    except InputError as error:
        failed.append(str(error))
        return False
    return True


def explained(explainer: Explainer, given: Sequence[Any], targets: Sequence[Any], asked: dict[str, Any]) -> list[Any]:
    """Each text, image or graph: every target by every method."""
    if not given:
        return []
    by_target = [explainer(list(given), target=target, **asked) for target in targets]
    return [[one for methods in each for one in methods] for each in zip(*by_target, strict=True)]


def _write(path: Path, found: Sequence[Any], outputs: Outputs, contour: Any) -> None:
    if outputs.json == STDOUT:
        typer.echo("\n".join(one.to_json() for one in found))
    elif not any(outputs.each()):
        _home(found).show(found)
    for folder, ending in outputs.each():
        if folder != STDOUT:
            _save(found, folder / f"{path.name}{ending}", contour)
