"""Pictures for benchmarks: listed by name before a model is known, opened when they are measured.

Where they lie, under --data, is said by the task's options, by one of:

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

from relprop.bench.kinds.canvases import Mnist, canvas
from relprop.bench.suites import Task
from relprop.errors import InputError, unknown_name
from relprop.metrics import SegmentedPicture
from relprop.metrics.segmentation_data import _example, _folder, _h5py, _pairs, _read_pair

ARCHIVE = "pets_96px_all.zip"
SPECIES, BREEDS = {0: "cat", 1: "dog"}, 37
CANVASES = 1000
_Lists = Callable[[Path, str, Mapping[str, Any]], "list[Listed]"]


class Thing(NamedTuple):
    """Something on a picture: where it is, and its class as the model numbers it; None where that is not known."""

    example: SegmentedPicture
    label: int | None


class Source(Protocol):
    """Where pictures lie."""

    def opened(self, listed: Sequence[Listed], names: Mapping[int, str]) -> list[list[Thing]]:
        """The things on each picture, for a model with these class names."""


@dataclass(frozen=True)
class Listed:
    """A picture that is not open yet; its repr tells its content, not where it lies."""

    name: str
    content: tuple[int, ...]  # numbers that would be others for another picture of this name
    source: Source = field(repr=False, compare=False)


def listed(task: Task, folder: Path | None) -> list[Listed]:
    """All pictures that the task's options name, in order."""
    options, under = task.options, folder or Path()
    sources = [name for name in _SOURCES if name in options]
    if len(sources) != 1 or task.data:
        known = ", ".join(f'"{name}"' for name in _SOURCES)
        raise InputError(f"the pictures are named in the task's options, not as its data, by one of {known}")
    makes, needs, may = _SOURCES[sources[0]]
    for name in options:
        if name not in (*needs, *may):
            raise unknown_name("option", name, (*needs, *may))
    for name in needs:
        if name not in options:
            raise InputError(f'the option "{sources[0]}" needs "{name}" beside it')
    return makes(under, task.split, options)


@dataclass(frozen=True)
class Pets:
    """A split of the Oxford-IIIT Pets. Trimaps are 1 on the pet, 2 around it, 3 on the border, which does not count."""

    folder: Path
    classes: Mapping[str, tuple[int, int]]  # name -> breed, species, from 0

    def opened(self, listed: Sequence[Listed], names: Mapping[int, str]) -> list[list[Thing]]:
        numbers = self._numbers(names)
        with zipfile.ZipFile(self.folder / ARCHIVE) as archive:
            return [[Thing(_pet(archive, one.name), numbers.get(one.name))] for one in listed]

    def _numbers(self, names: Mapping[int, str]) -> dict[str, int]:
        """The classes by picture, of a model of species or of breeds; of another model none."""
        if len(names) == len(SPECIES):
            own = {name: SPECIES[species] for name, (_, species) in self.classes.items()}
            return _numbered(own, {name: species for name, (_, species) in self.classes.items()}, names)
        if len(names) == BREEDS:
            own = {name: name.rpartition("_")[0] for name in self.classes}
            return _numbered(own, {name: breed for name, (breed, _) in self.classes.items()}, names)
        return {}


def _numbered(called: Mapping[str, str], numbers: Mapping[str, int], names: Mapping[int, str]) -> dict[str, int]:
    """Classes by name where the model has all of them, by number where it has none."""
    own = {_plain(name): number for number, name in names.items()}
    missing = {one for one in called.values() if _plain(one) not in own}
    if missing == set(called.values()):
        return dict(numbers)
    if missing:
        raise InputError(f'the model has classes of the data, but not "{min(missing)}"')
    return {picture: own[_plain(one)] for picture, one in called.items()}


def _plain(name: str) -> str:
    return name.lower().replace(" ", "_")


def _pet(archive: zipfile.ZipFile, name: str) -> SegmentedPicture:
    image = Image.open(io.BytesIO(archive.read(f"images/{name}.jpg"))).convert("RGB")
    trimap = np.asarray(Image.open(io.BytesIO(archive.read(f"trimaps/{name}.png"))))
    return SegmentedPicture(image, trimap == 1, trimap == 3, name)


def _pets(under: Path, split: str, options: Mapping[str, Any]) -> list[Listed]:
    folder = under / options["pets"]
    rows = [line.split() for line in _there(folder / f"{split}.txt", options["pets"]).read_text().splitlines()]
    source = Pets(folder, {name: (int(breed) - 1, int(species) - 1) for name, breed, species, *_ in rows})
    try:
        with zipfile.ZipFile(_there(folder / ARCHIVE, options["pets"])) as archive:
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
    """Cluttered canvases with two digits of different classes each: what is of which class is known to the pixel."""

    images: Path
    labels: Path

    def opened(self, listed: Sequence[Listed], names: Mapping[int, str]) -> list[list[Thing]]:
        mnist = Mnist.read(self.images, self.labels)
        known = len(names) == 10
        found = []
        for one in listed:
            drawn = canvas(mnist, int(one.name))
            image = Image.fromarray(drawn.image).convert("RGB")
            void = np.zeros_like(drawn.ink[0])
            things = [SegmentedPicture(image, ink, void, one.name) for ink in drawn.ink]
            found.append([Thing(e, k if known else None) for e, k in zip(things, drawn.classes, strict=True)])
        return found


def _canvases(under: Path, split: str, options: Mapping[str, Any]) -> list[Listed]:
    parts = {"test": "t10k", "train": "train"}
    if split not in parts:
        raise unknown_name("split", split, parts)
    kinds = ("images-idx3", "labels-idx1")
    files = [under / options["digits"] / f"{parts[split]}-{kind}-ubyte.gz" for kind in kinds]
    sums = tuple(zlib.crc32(_there(file, options["digits"]).read_bytes()) for file in files)
    source = Canvases(*files)
    return [Listed(str(number), sums, source) for number in range(CANVASES)]


@dataclass(frozen=True)
class Folder:
    """Images with the masks of the same name; nobody says of which class they are."""

    pairs: Mapping[str, tuple[Path, Path]]
    foreground: tuple[int, ...] | None
    ignore: tuple[int, ...]

    def opened(self, listed: Sequence[Listed], names: Mapping[int, str]) -> list[list[Thing]]:
        read = (_read_pair(*self.pairs[one.name], self.foreground, self.ignore) for one in listed)
        return [[Thing(example, None)] for example in read]


def _images(under: Path, split: str, options: Mapping[str, Any]) -> list[Listed]:
    pairs = _pairs(_folder(under / options["images"]), _folder(under / options["masks"]))
    chosen = options.get("foreground")
    source = Folder(
        {image.name: (image, mask) for image, mask in pairs},
        None if chosen is None else tuple(chosen),
        tuple(options.get("ignore", ())),
    )
    return [Listed(image.name, (image.stat().st_size, mask.stat().st_size), source) for image, mask in pairs]


@dataclass(frozen=True)
class Mat:
    """ImageNet-Segmentation, a MATLAB file that holds references to images and to cells with masks."""

    path: Path

    def opened(self, listed: Sequence[Listed], names: Mapping[int, str]) -> list[list[Thing]]:
        found = []
        with _h5py().File(self.path) as file:
            for one in listed:
                cell = file[file["/value/gt"][int(one.name), 0]]
                mask = np.asarray(file[cell[0, 0]]).T
                pixels = np.asarray(file[file["/value/img"][int(one.name), 0]]).T
                image = Image.fromarray(pixels).convert("RGB")
                found.append([Thing(_example(image, mask, None, (), f"image {one.name}", one.name), None)])
        return found


def _mat(under: Path, split: str, options: Mapping[str, Any]) -> list[Listed]:
    path = _there(under / options["imagenet_segmentation"], options["imagenet_segmentation"])
    h5py = _h5py()
    if not h5py.is_hdf5(path):
        raise InputError(f'"{path}" is no MATLAB 7.3 file (HDF5)')
    with h5py.File(path) as file:
        if "/value/img" not in file or "/value/gt" not in file:
            raise InputError(f'"{path}" holds no images and masks: is it gtsegs_ijcv.mat of ImageNet-Segmentation?')
        count = len(file["/value/img"])
    return [Listed(str(number), (path.stat().st_size,), Mat(path)) for number in range(count)]


def _there(path: Path, named: str) -> Path:
    if not path.is_file():
        raise InputError(f'there is no "{path}"; --data names the folder that holds "{named}"')
    return path


_SOURCES: dict[str, tuple[_Lists, tuple[str, ...], tuple[str, ...]]] = {  # with the options it needs, and may have
    "pets": (_pets, ("pets",), ()),
    "digits": (_canvases, ("digits",), ()),
    "images": (_images, ("images", "masks"), ("foreground", "ignore")),
    "imagenet_segmentation": (_mat, ("imagenet_segmentation",), ()),
}
