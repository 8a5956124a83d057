"""Models that a function of the user's own makes: `--model package.module:function`. It is imported and called."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relprop.errors import InputError, ModelError

if TYPE_CHECKING:
    from relprop.explainer import Explainer

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_own(name: str | None) -> bool:
    """Whether it names a function of a module, and no file or folder."""
    return name is not None and _NAME.fullmatch(name) is not None and not Path(name).exists()


def own_explainer(name: str, table: Path | None) -> Explainer:
    """What the function returns: an `Explainer`, or a model in plain PyTorch that reads the columns of the table."""
    made = _function(name)()
    from torch import nn

    from relprop.explainer import Explainer

    if isinstance(made, Explainer):
        return made
    if not isinstance(made, nn.Module):
        raise ModelError(f'"{name}" should return a model or an Explainer, and returned {type(made).__name__}')
    if table is None:
        raise InputError(
            f'"{name}" returns a model in plain PyTorch: give the table that it reads, --file rows.csv, whose header '
            "names its columns; for other inputs let it return an Explainer"
        )
    return Explainer(made, columns=_table(table)[0])


def table_of(text: str | None, file: Path | None) -> Path | None:
    """The .csv file that was given, with --file or as the text."""
    given = file or (None if text is None else Path(text))
    return given if given is not None and given.suffix.lower() == ".csv" else None


def table_rows(explainer: Explainer, table: Path | None) -> dict[int, dict[str, str]]:
    """Every row of the table, with the columns that the model reads."""
    if table is None:
        raise InputError(
            "the model reads rows of a table: give one with --file rows.csv, whose header names its columns"
        )
    header, rows = _table(table)
    wanted = getattr(explainer.reader, "columns", header)
    for name in wanted:
        if name not in header:
            raise InputError(
                f'"{table}" has no column "{name}", which the model reads; it has {", ".join(header):.200}'
            )
    every = ({name: row[header.index(name)] for name in wanted} for row in rows)
    return dict(enumerate(every))


def _table(table: Path) -> tuple[list[str], list[list[str]]]:
    from relprop.readers.series import table_rows as read

    return read(table)


def _function(name: str) -> Any:
    """The function; modules are looked for in the folder of the command too, as by `python -m`."""
    module, _, function = name.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), function, None)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0] and error.name != module:
            raise ModelError(f'importing "{module}" failed: {error}') from error
        raise ModelError(
            f'there is no module "{module}": it is looked for in this folder and in what is installed'
        ) from None
    except Exception as error:  # whatever the module's own code raises
        raise ModelError(f'importing "{module}" failed: {type(error).__name__}: {error!s:.200}') from error
    finally:
        sys.path.remove("")
    if not callable(found):
        raise ModelError(f'the module "{module}" has no function "{function}"')
    return found
