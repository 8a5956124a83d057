"""Heat maps over pictures: scores enlarged to the picture's size, coloured, and laid over its grey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from relprop.render.palette import SIGNED, UNSIGNED, Film
from relprop.types import Shares

Pixels = NDArray[np.uint8]
Numbers = NDArray[np.floating[Any]]
Contour = float | Literal["mean"] | None
Bound = float | Literal["grid", "method"] | None

OPACITY = 0.85  # of the strongest scores: the picture still shows through
KEPT = 0.995  # the share of a map's scores, zeros aside, that full colour does not clip
ROUNDING = 1e-6  # relative to the bound: below it a score is no other than its neighbour
LINE = 200  # pixels of a picture's longer side to one of a contour's width


@dataclass(frozen=True, eq=False)
class ImageMap:
    """What the picture renderers draw: a picture, the scores of its patches or pixels, and the words around it."""

    image: Pixels  # [height, width, 3], the picture at its own size
    scores: Numbers  # [rows, columns] of any size, over the whole picture
    method: str
    target: str
    value: float
    prediction: str = ""  # for instance "tabby (0.98)"
    note: str = ""
    signed: bool = True  # False for scores that only say how much, not for or against
    total: float = 0.0  # the sum of the scores of the patches
    beside: Shares | None = None  # what the value is made of beside them; None: no sum is claimed
    quantity: str = ""  # what the value is: "logit"

    def __post_init__(self) -> None:
        name = f'the scores of "{self.method}"'
        if not isinstance(self.image, np.ndarray) or self.image.dtype != np.uint8 or not _is_picture(self.image.shape):
            raise ValueError(
                f"the picture must be a uint8 array [height, width, 3], not {_kind(self.image)}; "
                'np.asarray(image.convert("RGB")) makes one of any Pillow image'
            )
        if not isinstance(self.scores, np.ndarray) or self.scores.dtype.kind != "f" or not _is_map(self.scores.shape):
            raise ValueError(f"{name} must be an array [rows, columns] of floats, not {_kind(self.scores)}")
        if not np.isfinite(self.scores).all():
            raise ValueError(f"{name} hold {np.sum(~np.isfinite(self.scores))} numbers that are not finite")
        if not self.signed and self.scores.min() < -ROUNDING * self.scores.max():
            raise ValueError(f"{name} are called unsigned but go down to {self.scores.min():.3g}; give signed=True")

    @property
    def film(self) -> Film:
        return SIGNED if self.signed else UNSIGNED


def _is_picture(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[2] == 3 and 0 not in shape


def _is_map(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and 0 not in shape


def _kind(value: object) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def overlay(
    image_map: ImageMap, *, opacity: float = OPACITY, contour: Contour = None, bound: float | None = None
) -> Pixels:
    """The picture in grey under its colours: 0 is clear, full colour is `bound`; the contour rings what scores more."""
    if not 0 <= opacity <= 1:
        raise ValueError(f"the opacity must lie between 0 and 1, not {opacity}")
    if bound is not None and not 0 < bound < np.inf:
        raise ValueError(f"the bound is the score of full colour, above 0, not {bound}")
    bound = bound or own_bound(image_map)
    shaded = shades(image_map, bound)
    pixels = painted(grey(image_map.image), shaded, image_map.film, opacity)
    if contour is not None:
        _ring(pixels, shaded > _threshold(image_map, contour) / bound + ROUNDING)
    return pixels


def shades(image_map: ImageMap, bound: float | None = None) -> NDArray[np.float32]:
    """Every pixel's score over the bound."""
    height, width = image_map.image.shape[:2]
    return enlarged(image_map.scores / (bound or own_bound(image_map)), width, height)


def grey(image: Pixels) -> Pixels:
    return np.asarray(Image.fromarray(image).convert("L"))


def own_bound(*maps: ImageMap) -> float:
    """The score of full colour: the strongest, but for half a percent of a map that would leave all the rest pale.

    A map of at most 200 patches keeps its strongest score; one of pixels, where single ones stand out, is clipped.
    Of scores that are all 0 any bound will do.
    """
    strengths = (np.abs(one.scores[one.scores != 0]) for one in maps)
    return max((float(np.quantile(one, KEPT, method="higher")) for one in strengths if one.size), default=1.0)


def bounds(maps: Sequence[ImageMap], bound: Bound) -> dict[str, float | None]:
    """The score of full colour in each method's maps: given, shared by them or by all; None leaves each map its own."""
    methods = {one.method: [other for other in maps if other.method == one.method] for one in maps}
    if bound == "method":
        return {method: own_bound(*members) for method, members in methods.items()}
    if isinstance(bound, str) and bound != "grid":
        raise ValueError(f'the bound is a number, "method", "grid" or None, not "{bound}"')
    return dict.fromkeys(methods, own_bound(*maps) if bound == "grid" else bound)


def enlarged(scores: Numbers, width: int, height: int) -> NDArray[np.float32]:
    """Bilinear between the centres of the patches; where there are more scores than pixels, averaged."""
    small = Image.fromarray(scores.astype(np.float32))
    return np.asarray(small.resize((width, height), Image.Resampling.BILINEAR))


def resized(image_map: ImageMap, width: int, height: int) -> ImageMap:
    """The same map over a picture of another size."""
    picture = Image.fromarray(image_map.image).resize((width, height), Image.Resampling.LANCZOS)
    return replace(image_map, image=np.asarray(picture))


def fitted(image_map: ImageMap, longest: int) -> ImageMap:
    """The same map over a picture whose longer side has this many pixels."""
    height, width = image_map.image.shape[:2]
    scale = longest / max(height, width)
    return resized(image_map, max(1, round(width * scale)), max(1, round(height * scale)))


def painted(greys: Pixels, shaded: Numbers, film: Film, opacity: float = OPACITY) -> Pixels:
    """Every pixel between its grey and its colour, in a straight line with the shade in [-1, 1]."""
    low, high = film.greys
    ground = low + (high - low) / 255 * greys[..., None]
    shaded = np.clip(shaded, -1, 1)
    colours = np.where(shaded[..., None] > 0, _ramp(shaded, film.supports), _ramp(-shaded, film.opposes))
    alpha = opacity * np.abs(shaded)[..., None]
    return np.rint(ground * (1 - alpha) + colours * alpha).astype(np.uint8)


def _ramp(strengths: Numbers, stops: Sequence[tuple[int, int, int]]) -> Numbers:
    places = np.linspace(0, 1, len(stops))
    return np.stack([np.interp(strengths, places, channel) for channel in zip(*stops, strict=True)], axis=-1)


def _threshold(image_map: ImageMap, contour: float | Literal["mean"]) -> float:
    return float(image_map.scores.mean()) if contour == "mean" else contour


def _ring(pixels: Pixels, inside: NDArray[np.bool_]) -> None:
    """A white line within the region and a black one around it: seen on any ground, and the sides told apart."""
    reach = 2 * max(1, round(max(inside.shape) / LINE)) + 1
    region = Image.fromarray(inside.astype(np.uint8))
    pixels[inside & (np.asarray(region.filter(ImageFilter.MinFilter(reach))) == 0)] = 255
    pixels[~inside & (np.asarray(region.filter(ImageFilter.MaxFilter(reach))) == 1)] = 0
