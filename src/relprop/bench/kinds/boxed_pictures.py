"""Pictures of ImageNet's classes: with the boxes of their objects, two side by side, and pets with trimaps.

The files: a .csv with the columns `file`, `label` (the class's number) and `boxes_x0y0x1y1_in_crop` ("x0 y0 x1 y1" in
pixels, ";" between boxes), and a .zip of the same name with the pictures. The split "test" is all of them, "dev" every
other one, from the first, and "confirm" the others.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from relprop.bench.kinds.listed_pictures import Listed, Options, PictureObject, existing
from relprop.errors import InputError, unknown_name
from relprop.metrics import SegmentedPicture
from relprop.metrics.score_arrays import Bools
from relprop.text_tables import read_rows

CLASSES = 1000
BOXES = "boxes_x0y0x1y1_in_crop"
PETS_224, PET_CLASSES = "pets_224px_6perclass.zip", "pets_to_imagenet.csv"
SPLITS = {"test": slice(None), "dev": slice(0, None, 2), "confirm": slice(1, None, 2)}
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class _Boxed:
    """One row of the table."""

    file: str
    label: int
    boxes: tuple[Box, ...]


class _Archive:
    """The pictures of a .zip, with the checksum of each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                self.held = {one.filename: one.CRC for one in archive.infolist()}
        except zipfile.BadZipFile as error:
            raise InputError(f'"{path}" cannot be read: {error}') from error

    def checksum(self, name: str) -> int:
        if name not in self.held:
            raise InputError(f'"{self.path}" has no "{name}"')
        return self.held[name]

    def read(self, names: Sequence[str]) -> list[Image.Image]:
        found: list[Image.Image] = []
        with zipfile.ZipFile(self.path) as archive:
            for name in names:
                try:
                    found.append(Image.open(io.BytesIO(archive.read(name))))
                    found[-1].load()
                except (OSError, zipfile.BadZipFile, zlib.error) as error:
                    raise InputError(f'the picture "{name}" in "{self.path}" cannot be read: {error}') from error
        return found


def list_boxed(under: Path, split: str, options: Options) -> list[Listed]:
    """Pictures with the boxes of their objects as masks."""
    rows, archive = _table(under, options["boxes"], split)

    def open_boxed(pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        images = [one.convert("RGB") for one in archive.read([one.name for one in pictures])]
        return [
            [PictureObject(_boxed(image, rows[one.name]), _class(rows[one.name].label, names))]
            for one, image in zip(pictures, images, strict=True)
        ]

    return [
        Listed(one.file, (one.label, _numbers_sum(one.boxes), archive.checksum(one.file)), open_boxed)
        for one in rows.values()
        if one.boxes
    ]


def list_pairs(under: Path, split: str, options: Options) -> list[Listed]:
    """Two pictures of different classes side by side: the left half is the first one's, the right half the second's."""
    rows, archive = _table(under, options["pairs"], split)
    every = list(rows.values())
    pairs = {f"{a.file} {b.file}": (a, b) for a, b in pairwise(every) if a.label != b.label}

    def open_pairs(pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        return [_side_by_side(one.name, pairs[one.name], archive, names) for one in pictures]

    return [
        Listed(name, tuple(number for one in pair for number in (one.label, archive.checksum(one.file))), open_pairs)
        for name, pair in pairs.items()
    ]


def list_imagenet_pets(under: Path, split: str, options: Options) -> list[Listed]:
    """The pets whose breeds are classes of ImageNet, at 224 pixels; the border of a trimap does not count."""
    folder, table = options["imagenet_pets"], under / options["classes"] / PET_CLASSES
    rows = read_rows(existing(table, options["classes"]), header=True, quoted=True)
    labels = {row["pet_breed"]: int(row["imagenet_index"]) for row in rows}
    archive = _Archive(existing(under / folder / PETS_224, folder))
    found = {
        name: labels[breed]
        for file in archive.held
        if file.startswith("images/") and (name := Path(file).stem) and (breed := name.rpartition("_")[0]) in labels
    }

    def open_pets(pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        files = [file for one in pictures for file in (f"images/{one.name}.jpg", f"trimaps/{one.name}.png")]
        images = archive.read(files)
        objects = []
        for one, image, trimap in zip(pictures, images[::2], images[1::2], strict=True):
            values = np.asarray(trimap)
            example = SegmentedPicture(image.convert("RGB"), values == 1, values == 3, one.name)
            objects.append([PictureObject(example, _class(found[one.name], names))])
        return objects

    return [
        Listed(
            name, (label, archive.checksum(f"images/{name}.jpg"), archive.checksum(f"trimaps/{name}.png")), open_pets
        )
        for name, label in found.items()
    ]


def _table(under: Path, folder: str, split: str) -> tuple[dict[str, _Boxed], _Archive]:
    """The rows of the only table with boxes in a folder, by the name of the file, and its archive."""
    found = [path for path in sorted((under / folder).glob("*.csv")) if path.with_suffix(".zip").is_file()]
    if len(found) != 1:
        raise InputError(
            f'"{under / folder}" should hold one .csv with a .zip of the same name, and holds {len(found)}; --data '
            f'names the folder that holds "{folder}"'
        )
    try:
        rows = [
            _Boxed(str(row["file"]), int(row["label"]), _boxes(str(row[BOXES])))
            for row in read_rows(found[0], header=True, quoted=True)
        ]
    except (KeyError, ValueError) as error:
        raise InputError(f'"{found[0]}" is not a table with boxes: {type(error).__name__} {error}') from error
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    return {row.file: row for row in rows[SPLITS[split]]}, _Archive(found[0].with_suffix(".zip"))


def _boxes(text: str) -> tuple[Box, ...]:
    """Boxes with pixels in them."""
    found = [tuple(map(float, one.split())) for one in text.split(";") if one.strip()]
    if any(len(one) != 4 for one in found):
        raise ValueError(f"boxes are four numbers each, got {text!r:.80}")
    return tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in found if x1 - x0 >= 1 and y1 - y0 >= 1)


def _numbers_sum(boxes: Sequence[Box]) -> int:
    return zlib.crc32(repr(boxes).encode())


def _boxed(image: Image.Image, row: _Boxed) -> SegmentedPicture:
    mask: Bools = np.zeros((image.height, image.width), bool)
    for x0, y0, x1, y1 in row.boxes:
        mask[round(y0) : max(round(y1), round(y0) + 1), round(x0) : max(round(x1), round(x0) + 1)] = True
    return SegmentedPicture(image, mask, np.zeros_like(mask), row.file)


def _side_by_side(
    name: str, pair: tuple[_Boxed, _Boxed], archive: _Archive, names: Mapping[int, str]
) -> list[PictureObject]:
    left, right = (one.convert("RGB") for one in archive.read([one.file for one in pair]))
    right = right.resize(left.size)
    both = Image.new("RGB", (2 * left.width, left.height))
    both.paste(left, (0, 0))
    both.paste(right, (left.width, 0))
    first: Bools = np.zeros((both.height, both.width), bool)
    first[:, : left.width] = True
    nothing = np.zeros_like(first)
    return [
        PictureObject(SegmentedPicture(both, mask, nothing, name), _class(one.label, names))
        for mask, one in zip((first, ~first), pair, strict=True)
    ]


def _class(label: int, names: Mapping[int, str]) -> int | None:
    """The class's number, where the model has ImageNet's classes."""
    return label if len(names) == CLASSES else None
