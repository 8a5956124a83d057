"""Many inputs to one file, written as they are explained: a run that was stopped goes on where it was.

Lines are kept in FILE.part: the settings of the run, the explanations, and a mark behind every chunk of them. What
stands behind the last mark is explained again. The file itself appears when all is done.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from relprop.errors import InputError, RelpropError

if TYPE_CHECKING:
    from relprop.explanation import Explanation

ENDINGS = (".jsonl", ".parquet")
MARK = b'{"done": "chunk"}\n'
CHUNK = 4  # batches that are explained and written together: texts of like length share a batch
Explain = Callable[[Sequence[Any]], list[list["Explanation"]]]


@dataclass(frozen=True)
class FileRun:
    """What is explained, by which settings, and where to."""

    out: Path
    given: Mapping[int, Any]  # by row
    settings: Mapping[str, Any]  # as JSON has it: a run goes on only where all is the same
    chunk: int

    @property
    def part(self) -> Path:
        return self.out.with_name(f"{self.out.name}.part")

    @property
    def chunks(self) -> list[list[int]]:
        rows = list(self.given)
        return [rows[k : k + self.chunk] for k in range(0, len(rows), self.chunk)]


def check_out(out: Path) -> None:
    """Raise with the reason if a run cannot write here. Asked before any work."""
    from relprop.files import check_writable

    check_writable(out, ENDINGS)
    if out.exists():
        raise InputError(f'"{out}" is there already: delete it, or name another file with --out')
    if out.suffix.lower() == ".parquet":
        _arrow()


def explain_to_file(run: FileRun, explain: Explain, quiet: bool) -> None:
    """Explain all rows, chunk by chunk; rows that cannot be explained are written with their error, and told."""
    from relprop.files import writing

    done = _resumed(run)
    if done and not quiet:
        typer.echo(f"goes on after {min(done * run.chunk, len(run.given)):,} of {len(run.given):,}", err=True)
    with writing(run.part), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _explain_chunks(run, done, explain, quiet)
        except KeyboardInterrupt:
            typer.echo("stopped; what is done is kept, and the same command goes on", err=True)
            raise
        failed = _finish(run)
    _tell(run, failed, [str(one.message) for one in caught], quiet)


def _explain_chunks(run: FileRun, done: int, explain: Explain, quiet: bool) -> None:
    from relprop.progress import tracked

    with run.part.open("a", encoding="utf-8") as file:
        for chunk in tracked(run.chunks[done:], "explaining", False if quiet else None):
            file.write("".join(f"{line}\n" for line in _lines(run, chunk, explain, first=file.tell() == 0)))
            file.write(MARK.decode())
            file.flush()


def _lines(run: FileRun, rows: Sequence[int], explain: Explain, first: bool) -> Iterator[str]:
    """Each explanation of a chunk as a line, with its row; the settings before the first."""
    try:
        found: list[list[Explanation] | RelpropError] = list(explain([run.given[row] for row in rows]))
    except RelpropError as error:
        found = [_alone(run.given[row], explain) for row in rows] if len(rows) > 1 else [error]
        if first and all(isinstance(one, RelpropError) for one in found):
            raise error from None  # nothing can be explained like this
    if first:
        yield json.dumps({"settings": run.settings})
    for row, one in zip(rows, found, strict=True):
        if isinstance(one, RelpropError):
            yield json.dumps({"row": row, "error": str(one)}, ensure_ascii=False)
        else:
            yield from (f'{{"row": {row}, {each.to_json()[1:]}' for each in one)


def _alone(given: object, explain: Explain) -> list[Explanation] | RelpropError:
    try:
        return explain([given])[0]
    except RelpropError as error:
        return error


def _resumed(run: FileRun) -> int:
    """How many chunks are done. What was written behind the last mark is cut off."""
    content = run.part.read_bytes() if run.part.exists() else b""
    end = content.rfind(MARK)
    if end < 0:
        run.part.unlink(missing_ok=True)
        return 0
    _check_settings(run, json.loads(content[: content.index(b"\n")])["settings"])
    with run.part.open("r+b") as file:
        file.truncate(end + len(MARK))
    return content.count(MARK)


def _check_settings(run: FileRun, begun: Mapping[str, Any]) -> None:
    now = json.loads(json.dumps(run.settings))
    for name in {**begun, **now}:
        if begun.get(name) != now.get(name):
            raise InputError(
                f'"{run.part}" was begun with another setting of "{name}": give the same command to go on, '
                "or delete the file to begin anew"
            )


def _finish(run: FileRun) -> dict[int, str]:
    """The whole file in its place; the rows that failed, with their errors."""
    from relprop.files import replacing

    with run.part.open(encoding="utf-8") as part, replacing(run.out) as new:
        lines = (line for line in part if line.startswith('{"row"'))
        if run.out.suffix.lower() == ".jsonl":
            with new.open("w", encoding="utf-8") as file:
                file.writelines(lines)
        else:
            _write_parquet(lines, new)
    with run.part.open(encoding="utf-8") as part:
        told = [json.loads(line) for line in part if '"error": ' in line[:40]]
    run.part.unlink()
    return {one["row"]: one["error"] for one in told if "error" in one}


def _write_parquet(lines: Iterator[str], path: Path) -> None:
    """One row per explanation: what JSON has of it, with its units and their scores as a list of records."""
    from relprop.explanation import Explanation

    arrow, parquet = _arrow()
    rows = []
    for line in lines:
        told = json.loads(line)
        if "error" in told:
            rows.append(told)
            continue
        one = Explanation.from_json(line)
        own = {name: getattr(one, name) for name in ("method", "target", "value", "prediction", "probability")}
        units = []
        for part in one.parts:
            columns = part.columns()
            cells = zip(*columns.values(), strict=True)
            units += [{"part": part.name, **dict(zip(columns, cell, strict=True))} for cell in cells]
        text = {"text": " | ".join(one.text)} if one.texts else {}
        rows.append({"row": told["row"], **text, **own, "units": units})
    names = list(dict.fromkeys(name for row in rows for name in row))
    parquet.write_table(arrow.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]), path)


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise RelpropError('Parquet files need the pyarrow package: pip install "relprop[tables]"') from None
    return pyarrow, pyarrow.parquet


def _tell(run: FileRun, failed: Mapping[int, str], warned: Sequence[str], quiet: bool) -> None:
    """What was written; of warnings and errors the first, and how many more there were."""
    for kind, told in (("warnings", list(warned)), ("errors", [f"row {row}: {one}" for row, one in failed.items()])):
        if told:
            more = f" (and {len(told) - 1:,} more {kind})" if len(told) > 1 else ""
            typer.echo(f"relprop: {told[0]}{more}", err=True)
    if not quiet:
        typer.echo(f"explained {len(run.given) - len(failed):,} of {len(run.given):,}, wrote {run.out}", err=True)
    if failed:
        raise typer.Exit(1)
