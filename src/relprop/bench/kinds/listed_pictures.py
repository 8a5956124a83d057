"""A picture of a benchmark: listed by name when a suite is planned, opened when it is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from relprop.errors import InputError
from relprop.metrics import SegmentedPicture

Options = Mapping[str, Any]
# The objects on each of some pictures, for a model with these class names.
OpenPictures = Callable[[Sequence["Listed"], Mapping[int, str]], "list[list[PictureObject]]"]


class PictureObject(NamedTuple):
    """An object on a picture: its mask, and its class as the model numbers it; None where that is not known."""

    example: SegmentedPicture
    label: int | None


@dataclass(frozen=True)
class Listed:
    """A picture that is not open yet; its repr shows its content, not where it lies, and identifies cells of a run."""

    name: str
    content: tuple[int, ...]  # checksums or sizes of its files
    open_pictures: OpenPictures = field(repr=False, compare=False)  # of the dataset


def existing(path: Path, named: str) -> Path:
    """The path of a file that is there; else an error that names it."""
    if not path.is_file():
        raise InputError(f'there is no "{path}"; --data names the folder that holds "{named}"')
    return path
