"""Pictures for benchmarks: listed by name when a suite is planned, opened when they are measured.

The task's options say where they lie in the folder of --data, by one of:

    pets = "oxford-pets"                             # the Oxford-IIIT Pets: list, pictures and trimaps of 96 pixels
    digits = "mnist"                                 # canvases with two digits, drawn from MNIST
    images = "FOLDER", masks = "FOLDER"              # also foreground = [1], ignore = [3]: values of the masks
    imagenet_segmentation = "gtsegs_ijcv.mat"
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from PIL import Image

from relprop.bench.kinds.canvases import Mnist, draw_canvas
from relprop.bench.suites import SuiteTask
from relprop.errors import InputError, unknown_name
from relprop.metrics import SegmentedPicture
from relprop.metrics.segmentation_data import _example, _folder, _h5py, _pairs, _read_pair

ARCHIVE = "pets_96px_all.zip"
SPECIES, BREEDS = {0: "cat", 1: "dog"}, 37
DIGITS, CANVASES = range(10), 1000
_ListPictures = Callable[[Path, str, Mapping[str, Any]], "list[Listed]"]


class PictureObject(NamedTuple):
    """An object on a picture: its mask, and its class as the model numbers it; None where that is not known."""

    example: SegmentedPicture
    label: int | None


class PictureSource(Protocol):
    """A dataset of pictures."""

    def open(self, pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        """The objects on each picture, for a model with these class names."""


@dataclass(frozen=True)
class Listed:
    """A picture that is not open yet; its repr shows its content, not where it lies, and identifies cells of a run."""

    name: str
    content: tuple[int, ...]  # checksums or sizes of its files
    source: PictureSource = field(repr=False, compare=False)


def list_pictures(task: SuiteTask, folder: Path | None) -> list[Listed]:
    """All pictures that the task's options name, in order."""
    options, under = task.options, folder or Path()
    sources = [name for name in _SOURCES if name in options]
    if len(sources) != 1 or task.data:
        known = ", ".join(f'"{name}"' for name in _SOURCES)
        raise InputError(f"the pictures are named in the task's options, not as its data, by one of {known}")
    list_source, required, optional = _SOURCES[sources[0]]
    for name in options:
        if name not in (*required, *optional):
            raise unknown_name("option", name, (*required, *optional))
    for name in required:
        if name not in options:
            raise InputError(f'the option "{sources[0]}" needs "{name}" beside it')
    return list_source(under, task.split, options)


@dataclass(frozen=True)
class Pets:
    """A split of the Oxford-IIIT Pets. Trimaps are 1 on the pet, 2 around it, 3 on the border, which does not count."""

    folder: Path
    classes: Mapping[str, tuple[int, int]]  # name -> breed, species, from 0

    def open(self, pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        numbers = self._class_numbers(names)
        with zipfile.ZipFile(self.folder / ARCHIVE) as archive:
            return [[PictureObject(_read_pet(archive, one.name), numbers.get(one.name))] for one in pictures]

    def _class_numbers(self, names: Mapping[int, str]) -> dict[str, int]:
        """The classes by picture, for a model of species or of breeds; empty for other models."""
        if len(names) == len(SPECIES):
            own = {name: SPECIES[species] for name, (_, species) in self.classes.items()}
            return _number_classes(own, {name: species for name, (_, species) in self.classes.items()}, names)
        if len(names) == BREEDS:
            own = {name: name.rpartition("_")[0] for name in self.classes}
            return _number_classes(own, {name: breed for name, (breed, _) in self.classes.items()}, names)
        return {}


def _number_classes(called: Mapping[str, str], numbers: Mapping[str, int], names: Mapping[int, str]) -> dict[str, int]:
    """Classes by name where the model has all of them, by number where it has none."""
    own = {_normal_name(name): number for number, name in names.items()}
    missing = {one for one in called.values() if _normal_name(one) not in own}
    if missing == set(called.values()):
        return dict(numbers)
    if missing:
        raise InputError(f'the model has classes of the data, but not "{min(missing)}"')
    return {picture: own[_normal_name(one)] for picture, one in called.items()}


def _normal_name(name: str) -> str:
    return name.lower().replace(" ", "_")


def _read_pet(archive: zipfile.ZipFile, name: str) -> SegmentedPicture:
    image = Image.open(io.BytesIO(archive.read(f"images/{name}.jpg"))).convert("RGB")
    trimap = np.asarray(Image.open(io.BytesIO(archive.read(f"trimaps/{name}.png"))))
    return SegmentedPicture(image, trimap == 1, trimap == 3, name)


def _list_pets(under: Path, split: str, options: Mapping[str, Any]) -> list[Listed]:
    folder = under / options["pets"]
    rows = [line.split() for line in _existing(folder / f"{split}.txt", options["pets"]).read_text().splitlines()]
    source = Pets(folder, {name: (int(breed) - 1, int(species) - 1) for name, breed, species, *_ in rows})
    try:
        with zipfile.ZipFile(_existing(folder / ARCHIVE, options["pets"])) as archive:
            held = {one.filename: one.CRC for one in archive.infolist()}
    except zipfile.BadZipFile as error:
        raise InputError(f'"{folder / ARCHIVE}" cannot be read: {error}') from error
    files = {name: (f"images/{name}.jpg", f"trimaps/{name}.png") for name in source.classes}
    missing = next((file for pair in files.values() for file in pair if file not in held), None)
    if missing:
        raise InputError(f'"{folder / ARCHIVE}" has no "{missing}", which "{split}.txt" lists')
    return [Listed(name, (*source.classes[name], *(held[file] for file in files[name])), source) for name in files]


@dataclass(frozen=True)
class Canvases:
    """Cluttered canvases with two digits of different classes; the class of every pixel is known."""

    images: Path
    labels: Path

    def open(self, pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        mnist = Mnist.read(self.images, self.labels)
        known = len(names) == len(DIGITS)
        found = []
        for one in pictures:
            drawn = draw_canvas(mnist, int(one.name))
            image = Image.fromarray(drawn.image).convert("RGB")
            void = np.zeros_like(drawn.ink[0])
            found.append([
                PictureObject(SegmentedPicture(image, ink, void, one.name), digit if known else None)
                for ink, digit in zip(drawn.ink, drawn.classes, strict=True)
            ])  # fmt: skip
        return found


def _list_canvases(under: Path, split: str, options: Mapping[str, Any]) -> list[Listed]:
    parts = {"test": "t10k", "train": "train"}
    if split not in parts:
        raise unknown_name("split", split, parts)
    kinds = ("images-idx3", "labels-idx1")
    files = [under / options["digits"] / f"{parts[split]}-{kind}-ubyte.gz" for kind in kinds]
    sums = tuple(zlib.crc32(_existing(file, options["digits"]).read_bytes()) for file in files)
    source = Canvases(*files)
    return [Listed(str(number), sums, source) for number in range(CANVASES)]


@dataclass(frozen=True)
class MaskFolder:
    """Images with masks of the same name, of unknown classes."""

    pairs: Mapping[str, tuple[Path, Path]]
    foreground: tuple[int, ...] | None
    ignore: tuple[int, ...]

    def open(self, pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        read = (_read_pair(*self.pairs[one.name], self.foreground, self.ignore) for one in pictures)
        return [[PictureObject(example, None)] for example in read]


def _list_images(under: Path, split: str, options: Mapping[str, Any]) -> list[Listed]:
    pairs = _pairs(_folder(under / options["images"]), _folder(under / options["masks"]))
    chosen = options.get("foreground")
    source = MaskFolder(
        {image.name: (image, mask) for image, mask in pairs},
        None if chosen is None else tuple(chosen),
        tuple(options.get("ignore", ())),
    )
    return [Listed(image.name, (image.stat().st_size, mask.stat().st_size), source) for image, mask in pairs]


@dataclass(frozen=True)
class MatlabFile:
    """ImageNet-Segmentation, a MATLAB file that holds references to images and to cells with masks."""

    path: Path

    def open(self, pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        found = []
        with _h5py().File(self.path) as file:
            for one in pictures:
                cell = file[file["/value/gt"][int(one.name), 0]]
                mask = np.asarray(file[cell[0, 0]]).T
                pixels = np.asarray(file[file["/value/img"][int(one.name), 0]]).T
                image = Image.fromarray(pixels).convert("RGB")
                found.append([PictureObject(_example(image, mask, None, (), f"image {one.name}", one.name), None)])
        return found


def _list_matlab(under: Path, split: str, options: Mapping[str, Any]) -> list[Listed]:
    path = _existing(under / options["imagenet_segmentation"], options["imagenet_segmentation"])
    h5py = _h5py()
    if not h5py.is_hdf5(path):
        raise InputError(f'"{path}" is no MATLAB 7.3 file (HDF5)')
    with h5py.File(path) as file:
        if "/value/img" not in file or "/value/gt" not in file:
            raise InputError(f'"{path}" holds no images and masks: is it gtsegs_ijcv.mat of ImageNet-Segmentation?')
        count = len(file["/value/img"])
    return [Listed(str(number), (path.stat().st_size,), MatlabFile(path)) for number in range(count)]


def _existing(path: Path, named: str) -> Path:
    if not path.is_file():
        raise InputError(f'there is no "{path}"; --data names the folder that holds "{named}"')
    return path


# How to list the pictures of each source, its required options, and its optional ones.
_SOURCES: dict[str, tuple[_ListPictures, tuple[str, ...], tuple[str, ...]]] = {
    "pets": (_list_pets, ("pets",), ()),
    "digits": (_list_canvases, ("digits",), ()),
    "images": (_list_images, ("images", "masks"), ("foreground", "ignore")),
    "imagenet_segmentation": (_list_matlab, ("imagenet_segmentation",), ()),
}
