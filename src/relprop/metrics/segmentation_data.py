"""Images with object masks to compare maps with: ImageNet-Segmentation's .mat file, or folders of images and masks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image

from relprop.errors import InputError
from relprop.metrics.score_arrays import Bools

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
Pixels = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class SegmentedPicture:
    """An image, where its object is, and which pixels do not count."""

    image: Image.Image
    foreground: Bools  # [height, width]
    ignore: Bools  # [height, width]
    name: str

    def resized(self, height: int, width: int) -> SegmentedPicture:
        """The same at the size of the map: the image bilinear, the masks by the nearest pixel."""
        return replace(
            self,
            image=self.image.resize((width, height), Image.Resampling.BILINEAR),
            foreground=_nearest(self.foreground, height, width),
            ignore=_nearest(self.ignore, height, width),
        )


def read_folder(
    images: str | Path,
    masks: str | Path,
    *,
    foreground: Collection[int] | None = None,
    ignore: Collection[int] = (),
) -> Iterator[SegmentedPicture]:
    """Images with the masks of the same name (.png), in order of name.

    `foreground` and `ignore` are values of the mask; without `foreground`, all others but 0 are foreground. For
    the trimaps of Oxford-IIIT Pets (1 pet, 2 background, 3 border): `foreground={1}, ignore={3}`.
    """
    return (read_pair(image, mask, foreground, ignore) for image, mask in image_pairs(images, masks))


def read_imagenet_segmentation(path: str | Path) -> Iterator[SegmentedPicture]:
    """The 4,276 images of ImageNet-Segmentation (Guillaumin et al. 2014), from `gtsegs_ijcv.mat`.

    A MATLAB 7.3 file is HDF5: `/value/img` refers to one image per row and `/value/gt` to a cell that refers to its
    mask, all stored with their axes in reverse.
    """
    return read_mat(path, range(mat_image_count(path)))


def mat_image_count(path: str | Path) -> int:
    """How many images the file holds; raises with the reason where it is another file."""
    h5py = _h5py()
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    if not h5py.is_hdf5(path):
        raise InputError(f"{path} is no MATLAB 7.3 file (HDF5); save an older one again with save(..., '-v7.3')")
    with h5py.File(path) as file:
        missing = [name for name in ("/value/img", "/value/gt") if name not in file]
        if missing:
            raise InputError(f"{path} holds no {missing[0]}: is it gtsegs_ijcv.mat of ImageNet-Segmentation?")
        return len(file["/value/img"])


def read_mat(path: str | Path, numbers: Iterable[int]) -> Iterator[SegmentedPicture]:
    """The images with these numbers."""
    with _h5py().File(path) as file:
        images, cells = file["/value/img"], file["/value/gt"]
        for index in numbers:
            pixels = np.asarray(file[images[index, 0]]).T
            mask = np.asarray(file[file[cells[index, 0]][0, 0]]).T
            yield _example(Image.fromarray(pixels).convert("RGB"), mask, None, (), f"{path} image {index}", str(index))


def _h5py() -> ModuleType:
    try:
        return import_module("h5py")
    except ImportError as error:
        raise InputError("reading .mat files needs h5py: pip install relprop[vision]") from error


def image_pairs(images: str | Path, masks: str | Path) -> list[tuple[Path, Path]]:
    """Every image with its mask; masks without an image are ignored."""
    for folder in (images, masks):
        if not Path(folder).is_dir():
            raise InputError(f"there is no folder {folder}")
    every = (file for file in Path(images).iterdir() if not file.name.startswith("."))
    files = sorted(file for file in every if file.suffix.lower() in SUFFIXES)
    if not files:
        raise InputError(f"the folder {images} holds no image ({', '.join(SUFFIXES)})")
    pairs = [(image, Path(masks, f"{image.stem}.png")) for image in files]
    bare = [image.name for image, mask in pairs if not mask.is_file()]
    if bare:
        more = f", and {len(bare) - 1} more like it" if len(bare) > 1 else ""
        raise InputError(f"the image {bare[0]} has no mask {Path(bare[0]).stem}.png in {masks}{more}")
    return pairs


def read_pair(image: Path, mask: Path, foreground: Collection[int] | None, ignore: Collection[int]) -> SegmentedPicture:
    try:
        with Image.open(image) as picture, Image.open(mask) as values:
            return _example(picture.convert("RGB"), np.asarray(values), foreground, ignore, str(mask), image.stem)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"the image {image} and its mask cannot be read: {error}") from error


def _example(
    image: Image.Image, mask: Pixels, foreground: Collection[int] | None, ignore: Collection[int], where: str, name: str
) -> SegmentedPicture:
    if mask.ndim != 2:
        raise InputError(f"{where}: a mask has one value per pixel, this one has the shape {list(mask.shape)}")
    if mask.shape != (image.height, image.width):
        raise InputError(
            f"{where}: the mask is {mask.shape[1]} x {mask.shape[0]} pixels, the image {image.width} x {image.height}"
        )
    void = np.isin(mask, list(ignore))
    true = (mask != 0) & ~void if foreground is None else np.isin(mask, list(foreground))
    return SegmentedPicture(image, true, void, name)


def _nearest(mask: Bools, height: int, width: int) -> Bools:
    resized: Bools = np.asarray(Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST))
    return resized
