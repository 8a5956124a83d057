"""What holds several examples: lists, generators, columns of tables and arrays of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def as_list(given: object) -> list[Any] | None:
    """The examples of a list or of what stands for one; None where `given` is one example itself.

    A tuple is one example (a pair of texts), and so is an array of numbers (a picture).
    """
    if isinstance(given, list):
        return given
    if isinstance(given, Iterator):
        return list(given)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes | bytearray | tuple):
        return list(given)  # for instance a column of the datasets package
    return _column(given)


def _column(given: object) -> list[Any] | None:
    """The cells of a series or a flat array whose cells are no numbers."""
    cells = getattr(given, "tolist", None) or getattr(given, "to_list", None)  # numpy and pandas; polars
    flat = len(getattr(given, "shape", ())) == 1
    numbers = getattr(getattr(given, "dtype", None), "kind", "O") in "biufcmM"
    if cells is None or not flat or numbers or hasattr(given, "backward"):
        return None
    return list(cells())
