"""Pictures: opened whatever their mode, and how their processor's pixels lie on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from relprop.errors import InputError, ModelError
from relprop.render.image.part import Frame

Picture = Image.Image
Numbers = NDArray[np.float64]
Processor = Callable[..., Mapping[str, object]]  # called with images=[...] and return_tensors

TURNED = "the image processor turns or mirrors the picture: scores cannot be put back on it"


def opened_picture(given: object) -> Picture:
    """A path, a Pillow image or an array as a picture of three colours, turned upright."""
    if isinstance(given, str | os.PathLike):
        with reading(f'"{os.fsdecode(given):.200}"'), Image.open(given) as image:
            if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
                raise Image.DecompressionBombError  # Pillow itself only warns up to twice of it
            return _upright(image)
    if isinstance(given, Image.Image):
        with reading("the image"):
            return _upright(given)
    if isinstance(given, Tensor):
        given = _as_array(given)
    if isinstance(given, np.ndarray):
        return _from_array(given)
    raise InputError(f"an image is a path, a Pillow image or an array (several are a list), got {type(given).__name__}")


@contextmanager
def reading(name: str) -> Iterator[None]:
    """What Pillow cannot read, said in a sentence: damaged files make it raise errors of every kind."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"there is no image {name}: an image is a file, a Pillow image or an array") from None
    except UnidentifiedImageError:
        raise InputError(f"{name} is no image that Pillow can read") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        limit = f"{Image.MAX_IMAGE_PIXELS:,}"
        raise InputError(f"{name} is too large to open safely; make it smaller than {limit} pixels") from None
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{name} cannot be read: {reason}") from None


def _upright(image: Picture) -> Picture:
    image = ImageOps.exif_transpose(image)
    if 0 in image.size:
        raise InputError("the image has no pixels")
    return _rgb(image)


def _rgb(image: Picture) -> Picture:
    """Three colours of eight bits: palettes looked up, 16 bits scaled, what is transparent on white."""
    if image.mode == "F" or image.mode.startswith("I"):
        array = np.asarray(image)
        wide = image.mode == "I" and array.min() >= 0 and 255 < array.max() < 2**16
        return _from_array(array.astype(np.uint16) if wide else array)
    if image.mode in ("RGBA", "LA", "PA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _as_array(tensor: Tensor) -> NDArray[Any]:
    """A tensor with its colours first, as torch has them, or last."""
    if tensor.is_meta or tensor.layout is not torch.strided:
        raise InputError(f"an image tensor holds its numbers one by one, got one of {tensor.layout} on {tensor.device}")
    tensor = tensor.detach().cpu()
    array: NDArray[Any] = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    return array.transpose(1, 2, 0) if array.ndim == 3 and array.shape[0] in (1, 3, 4) else array


def _from_array(array: NDArray[Any]) -> Picture:
    """[height, width], or with 1, 3 or 4 colours last: 8 bits, 16 bits (uint16), or numbers from 0 to 1."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if 0 in array.shape or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise InputError(f"an image array is [height, width] or [height, width, 3 or 4], got {list(array.shape)}")
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind not in "buif":
        raise InputError(f"an image array holds numbers, got {array.dtype}")
    top = 65535 if (kind, size) == ("u", 2) else 1 if kind in "bf" else 255
    if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= top):
        raise InputError(
            "an image array holds bytes from 0 to 255, floats from 0 to 1, or 16 bits (uint16), "
            f"got {array.dtype} from {array.min()} to {array.max()}"
        )
    if top != 255:
        array = np.round(array * (255 / top))
    return _rgb(Image.fromarray(array.astype(np.uint8)))


def pixels(processor: Processor, picture: Picture) -> Tensor:
    """What the model reads: [colours, height, width]."""
    try:
        found = processor(images=[picture], return_tensors="pt")["pixel_values"]
    except Exception as error:  # a user's own processor
        reason = next(iter(str(error).splitlines()), "")
        raise InputError(f"the image processor failed: {type(error).__name__}: {reason}") from error
    if not isinstance(found, Tensor) or found.dim() != 4:
        shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ModelError(f"the image processor should give pixels [batch, colours, height, width], got {shape}")
    return found[0]


def frame(processor: Processor, size: tuple[int, int]) -> Frame:
    """Found by what the processor does to ramps of grey, whatever mixture of scaling, cropping and padding that is."""
    probe = _ProcessorProbe(processor, size)
    (left, right), (top, bottom) = probe.edges(0), probe.edges(1)
    return Frame(left, top, right, bottom)


class _ProcessorProbe:
    """Shows a processor pictures of one size (width, height), and tells which grey is where."""

    def __init__(self, processor: Processor, size: tuple[int, int]) -> None:
        self._processor, self._size = processor, size
        self._black = self._made(Image.new("RGB", size, "black"))
        self._span = self._made(Image.new("RGB", size, "white")) - self._black
        self._seen = np.abs(self._span) > np.abs(self._span).max() / 2  # the rest is padding
        if not self._seen.any():
            raise ModelError("the image processor makes the same of black and white: what it shows cannot be found")

    def _made(self, picture: Picture) -> Numbers:
        return pixels(self._processor, picture)[0].double().numpy()

    def edges(self, axis: int) -> tuple[float, float]:
        """Where the first and the last pixel's outer edges lie along an axis (0: across, 1: down), on a line."""
        size = self._size[axis]
        ramp = (np.arange(size) + 0.5) / size
        levels = self._levels(ramp, axis)
        places = np.flatnonzero(np.isfinite(levels))
        grey = levels[places]
        sloping = (grey > ramp[0] + 0.006) & (grey < ramp[-1] - 0.006)  # beyond its ends a picture is repeated
        if len(places) < min(8, len(levels)) or len(np.unique(grey[sloping].round(3))) < 2:
            # Too few pixels, of the picture or of what the model sees, for a line: all of it is where something is.
            slope, start = size / len(places), -places[0] * size / len(places)
        else:
            slope, start = np.polyfit(places[sloping] + 0.5, grey[sloping] * size, 1)
        if slope <= 0:
            raise ModelError(TURNED)
        low, high = float(start), float(start + slope * len(levels))
        near = 0.005 * size  # 256 greys tell no better
        return (0.0 if abs(low) < near else low), (float(size) if abs(high - size) < near else high)

    def _levels(self, ramp: Numbers, axis: int) -> Numbers:
        """What is seen of a ramp along its axis: 0 is black, 1 white, and padding no number."""
        row = Image.fromarray(np.round(ramp * 255).astype(np.uint8)[None])
        picture = row if axis == 0 else row.transpose(Image.Transpose.TRANSPOSE)
        made = self._made(picture.resize(self._size, Image.Resampling.NEAREST).convert("RGB"))
        levels = np.where(self._seen, made - self._black, 0) / np.where(self._seen, self._span, 1)
        count = self._seen.sum(axis)
        mean = levels.sum(axis) / np.maximum(count, 1)
        if (np.abs(levels - np.expand_dims(mean, axis))[self._seen] > 0.02).any():
            raise ModelError(TURNED)
        return np.where(count > 0, mean, np.nan)
