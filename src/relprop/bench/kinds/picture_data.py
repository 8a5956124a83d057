"""Pictures for benchmarks: listed by name when a suite is planned, opened when they are measured.

The task's options say where they lie in the folder of --data, by one of:

    pets = "oxford-pets"                             # the Oxford-IIIT Pets: list, pictures and trimaps of 96 pixels
    digits = "mnist"                                 # canvases with two digits, drawn from MNIST
    images = "FOLDER", masks = "FOLDER"              # also foreground = [1], ignore = [3]: values of the masks
    boxes = "imagenet-val"                           # pictures of ImageNet with the boxes of their objects
    pairs = "imagenet-val"                           # two of them side by side, each half of its own class
    imagenet_pets = "oxford-pets", classes = "imagenet-val"  # pets of 224 pixels whose breeds are ImageNet's
    imagenet_segmentation = "gtsegs_ijcv.mat"
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from relprop.bench.kinds import boxed_pictures
from relprop.bench.kinds.canvases import Canvas, Mnist, draw_canvas
from relprop.bench.kinds.listed_pictures import Listed, Options, PictureObject, existing
from relprop.bench.suites import SuiteTask
from relprop.errors import InputError, unknown_name
from relprop.metrics import SegmentedPicture
from relprop.metrics.segmentation_data import image_pairs, mat_image_count, read_mat, read_pair

ARCHIVE = "pets_96px_all.zip"
SPECIES, BREEDS = {0: "cat", 1: "dog"}, 37
DIGITS, CANVASES = range(10), 1000


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


def _list_pets(under: Path, split: str, options: Options) -> list[Listed]:
    """A split of the Oxford-IIIT Pets. Trimaps are 1 on the pet, 2 around it, 3 on the border, which does not count."""
    folder = under / options["pets"]
    rows = [line.split() for line in existing(folder / f"{split}.txt", options["pets"]).read_text().splitlines()]
    classes = {name: (int(breed) - 1, int(species) - 1) for name, breed, species, *_ in rows}
    path = existing(folder / ARCHIVE, options["pets"])
    try:
        with zipfile.ZipFile(path) as archive:
            held = {one.filename: one.CRC for one in archive.infolist()}
    except zipfile.BadZipFile as error:
        raise InputError(f'"{path}" cannot be read: {error}') from error
    files = {name: (f"images/{name}.jpg", f"trimaps/{name}.png") for name in classes}
    missing = next((file for pair in files.values() for file in pair if file not in held), None)
    if missing:
        raise InputError(f'"{path}" has no "{missing}", which "{split}.txt" lists')

    def open_pets(pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        numbers = _pet_classes(classes, names)
        with zipfile.ZipFile(path) as archive:
            return [[PictureObject(_read_pet(archive, one.name), numbers.get(one.name))] for one in pictures]

    return [Listed(name, (*classes[name], *(held[file] for file in pair)), open_pets) for name, pair in files.items()]


def _pet_classes(classes: Mapping[str, tuple[int, int]], names: Mapping[int, str]) -> dict[str, int]:
    """The classes by picture, from its breed and species, for a model of either; empty for other models.

    By name where the model has all names of the data, by number where it has none.
    """
    if len(names) == len(SPECIES):
        numbers = {picture: species for picture, (_, species) in classes.items()}
        called = {picture: SPECIES[species] for picture, species in numbers.items()}
    elif len(names) == BREEDS:
        numbers = {picture: breed for picture, (breed, _) in classes.items()}
        called = {picture: picture.rpartition("_")[0] for picture in classes}
    else:
        return {}
    own = {_normal_name(name): number for number, name in names.items()}
    missing = {one for one in called.values() if _normal_name(one) not in own}
    if missing == set(called.values()):
        return numbers
    if missing:
        raise InputError(f'the model has classes of the data, but not "{min(missing)}"')
    return {picture: own[_normal_name(one)] for picture, one in called.items()}


def _normal_name(name: str) -> str:
    return name.lower().replace(" ", "_")


def _read_pet(archive: zipfile.ZipFile, name: str) -> SegmentedPicture:
    try:
        image = Image.open(io.BytesIO(archive.read(f"images/{name}.jpg"))).convert("RGB")
        trimap = np.asarray(Image.open(io.BytesIO(archive.read(f"trimaps/{name}.png"))))
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f'the picture "{name}" in "{archive.filename}" cannot be read: {error}') from error
    return SegmentedPicture(image, trimap == 1, trimap == 3, name)


def _list_canvases(under: Path, split: str, options: Options) -> list[Listed]:
    """Cluttered canvases with two digits of different classes; the class of every pixel is known."""
    parts = {"test": "t10k", "train": "train"}
    if split not in parts:
        raise unknown_name("split", split, parts)
    kinds = ("images-idx3", "labels-idx1")
    files = [under / options["digits"] / f"{parts[split]}-{kind}-ubyte.gz" for kind in kinds]
    sums = tuple(zlib.crc32(existing(file, options["digits"]).read_bytes()) for file in files)

    def open_canvases(pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        mnist = Mnist.read(*files)
        return [_digits_on(draw_canvas(mnist, int(one.name)), one.name, len(names) == len(DIGITS)) for one in pictures]

    return [Listed(str(number), sums, open_canvases) for number in range(CANVASES)]


def _digits_on(drawn: Canvas, name: str, known: bool) -> list[PictureObject]:
    """The two digits; their classes where the model's are `known` to be digits."""
    image, void = Image.fromarray(drawn.image).convert("RGB"), np.zeros_like(drawn.ink[0])
    pairs = zip(drawn.ink, drawn.classes, strict=True)
    return [PictureObject(SegmentedPicture(image, ink, void, name), digit if known else None) for ink, digit in pairs]


def _list_images(under: Path, split: str, options: Options) -> list[Listed]:
    """Images with masks of the same name, of unknown classes."""
    pairs = {pair[0].name: pair for pair in image_pairs(under / options["images"], under / options["masks"])}
    foreground, ignore = options.get("foreground"), options.get("ignore", ())

    def open_images(pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        return [[PictureObject(read_pair(*pairs[one.name], foreground, ignore), None)] for one in pictures]

    return [Listed(name, tuple(file.stat().st_size for file in pair), open_images) for name, pair in pairs.items()]


def _list_matlab(under: Path, split: str, options: Options) -> list[Listed]:
    """ImageNet-Segmentation, of unknown classes."""
    path = existing(under / options["imagenet_segmentation"], options["imagenet_segmentation"])

    def open_matlab(pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        return [[PictureObject(one, None)] for one in read_mat(path, [int(one.name) for one in pictures])]

    return [Listed(str(number), (path.stat().st_size,), open_matlab) for number in range(mat_image_count(path))]


# How to list the pictures of each source, its required options, and its optional ones.
_SOURCES: dict[str, tuple[Callable[[Path, str, Options], list[Listed]], tuple[str, ...], tuple[str, ...]]] = {
    "pets": (_list_pets, ("pets",), ()),
    "digits": (_list_canvases, ("digits",), ()),
    "images": (_list_images, ("images", "masks"), ("foreground", "ignore")),
    "boxes": (boxed_pictures.list_boxed, ("boxes",), ()),
    "pairs": (boxed_pictures.list_pairs, ("pairs",), ()),
    "imagenet_pets": (boxed_pictures.list_imagenet_pets, ("imagenet_pets", "classes"), ()),
    "imagenet_segmentation": (_list_matlab, ("imagenet_segmentation",), ()),
}
