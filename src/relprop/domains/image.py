"""Pictures: opened whatever their mode, and how their processor's pixels lie on them."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from relprop.errors import InputError, ModelError

Picture = Image.Image


def opened(given: Any) -> Picture:
    """A path, a Pillow image or an array as a picture of three colours, turned upright."""
    if isinstance(given, str | os.PathLike):
        return _read(os.fspath(given))
    if isinstance(given, Image.Image):
        return rgb(given)
    if isinstance(given, Tensor):
        given = given.detach().cpu().numpy()
        given = given.transpose(1, 2, 0) if given.ndim == 3 and given.shape[0] in (1, 3, 4) else given
    if isinstance(given, np.ndarray):
        return _from_array(given)
    raise InputError(f"an image is a path, a Pillow image or an array, got {type(given).__name__}")


def _read(path: str | bytes) -> Picture:
    name = os.fsdecode(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                return rgb(image)
    except FileNotFoundError:
        raise InputError(f'there is no image "{name}"') from None
    except UnidentifiedImageError:
        raise InputError(f'"{name}" is no image that Pillow can read') from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise InputError(f'"{name}" is too large to open safely; make it smaller than {_limit()} pixels') from None
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f'the image "{name}" is damaged or cut short ({error})') from None


def _limit() -> str:
    return f"{Image.MAX_IMAGE_PIXELS or 0:,}"


def rgb(image: Picture) -> Picture:
    """Three colours of eight bits: palettes looked up, 16 bits scaled, what is transparent on white."""
    image = ImageOps.exif_transpose(image)
    if 0 in image.size:
        raise InputError("the image has no pixels")
    if image.mode in ("I;16", "I;16L", "I;16B", "I", "F"):
        return _from_array(np.asarray(image))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


def _from_array(array: NDArray[Any]) -> Picture:
    """[height, width], or with 1, 3 or 4 colours last: 8 or 16 bits, or numbers from 0 to 1."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if 0 in array.shape or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise InputError(f"an image array is [height, width] or [height, width, 3 or 4], got {list(array.shape)}")
    if array.dtype == bool:
        array = array.astype(np.uint8) * 255
    if array.dtype.kind == "f":
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise InputError("an image array of floats holds numbers from 0 to 1; give bytes (uint8) for 0 to 255")
        array = np.round(array * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        if array.min() < 0 or array.max() > 65535:
            raise InputError(f"an image array holds 8 or 16 bits, got numbers from {array.min()} to {array.max()}")
        array = (array // 257 if array.max() > 255 or array.dtype == np.uint16 else array).astype(np.uint8)
    return rgb(Image.fromarray(array))


def is_image_processor(processor: Any) -> bool:
    """Told by what it makes."""
    return "pixel_values" in (getattr(processor, "model_input_names", None) or [])


def pixels(processor: Any, pictures: list[Picture]) -> Tensor:
    """The batch that the model reads."""
    try:
        found = processor(images=pictures, return_tensors="pt")["pixel_values"]
    except Exception as error:  # a user's own processor
        reason = next(iter(str(error).splitlines()), "")
        raise InputError(f"the image processor failed: {type(error).__name__}: {reason}") from error
    if not isinstance(found, Tensor) or found.dim() != 4:
        shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ModelError(f"the image processor should give pixels [batch, colours, height, width], got {shape}")
    return found


@dataclass(frozen=True)
class Frame:
    """Which part of a picture the model sees: edges in the picture's own pixels; beyond them where it was padded."""

    left: float
    top: float
    right: float
    bottom: float


def frame(processor: Any, size: tuple[int, int]) -> Frame:
    """Found by what the processor does to two ramps, whatever mixture of scaling, cropping and padding that is."""
    width, height = size
    across, down = (np.linspace(0, 255, n) for n in (width, height))
    edges = []
    for axis, ramp in ((3, np.tile(across, (height, 1))), (2, np.tile(down[:, None], (1, width)))):
        seen = _levels(processor, ramp, axis)
        edges.append(_edges(seen, (width, height)[axis == 2]))
    (left, right), (top, bottom) = edges
    return Frame(left, top, right, bottom)


def _levels(processor: Any, ramp: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """The ramp as the model sees it along an axis, in the picture's own levels of grey."""
    grey = np.repeat(np.round(ramp).astype(np.uint8)[..., None], 3, 2)
    black, white = np.zeros_like(grey), np.full_like(grey, 255)
    low, high, own = (pixels(processor, [Image.fromarray(one)])[0, 0].double().numpy() for one in (black, white, grey))
    middle = [n // 2 for n in own.shape]
    line = tuple(slice(None) if i == axis - 2 else middle[i] for i in range(2))
    span = high[line] - low[line]
    return np.where(np.abs(span) > 1e-6, (own[line] - low[line]) / np.where(span == 0, 1, span) * 255, np.nan)


def _edges(levels: NDArray[np.float64], size: int) -> tuple[float, float]:
    """The straight line through what was seen, read at the first and the last pixel's outer edge."""
    places = np.flatnonzero(np.isfinite(levels) & (levels > 2) & (levels < 253))
    if size < 2 or len(places) < 2:
        return 0.0, float(size)
    slope, start = np.polyfit(places + 0.5, levels[places] / 255 * (size - 1) + 0.5, 1)
    low, high = float(start), float(start + slope * len(levels))
    near = 0.005 * size  # ramps of 256 levels tell no better
    return (0.0 if abs(low) < near else low), (float(size) if abs(high - size) < near else high)
