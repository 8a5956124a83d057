"""`ImageExplanation`: scores on a picture's grid, as numbers, maps and pictures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from relprop.domains.image import Frame, opened
from relprop.errors import InputError
from relprop.explanation import PICTURES, check_path, pandas_frame, unwritable, write_text
from relprop.registry import METHODS
from relprop.render.image.overlay import Contour, ImageMap
from relprop.types import Ledger

SCHEMA_VERSION = 1
Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ImageExplanation:
    """The scores of one image's patches, or pixels, for one target."""

    image: Image.Image  # the picture at its own size, upright, in three colours
    scores: Numbers  # [rows, columns]
    frame: Frame  # which part of the picture they cover
    method: str
    target: str
    value: float  # the explained number: the target's logit, or a difference of logits
    rest: float = 0.0  # scores of class tokens and the like, which lie nowhere on the picture
    name: str = ""  # the file's
    prediction: str = ""  # the likeliest class
    probability: float | None = None  # and its probability
    ledger: Ledger | None = None
    baseline: float | None = None

    @property
    def accounted(self) -> float:
        """The sum of the scores: how much of the value they account for."""
        return float(self.scores.sum()) + self.rest

    def map(self) -> Numbers:
        """The scores at the picture's own size [height, width], bilinear; 0 where the model does not see."""
        width, height = self.image.size
        down = _interpolation(height, self.scores.shape[0], self.frame.top, self.frame.bottom)
        across = _interpolation(width, self.scores.shape[1], self.frame.left, self.frame.right)
        return down @ self.scores @ across.T

    def without_special(self) -> ImageExplanation:
        """The same explanation without the scores of class tokens and the like."""
        return replace(self, rest=0.0)

    def to_frame(self) -> Any:
        """A pandas frame: a row a patch or pixel, with its edges on the picture; class tokens are one row, special."""
        height, width = self.scores.shape
        down = np.linspace(self.frame.top, self.frame.bottom, height + 1).tolist()
        across = np.linspace(self.frame.left, self.frame.right, width + 1).tolist()
        places: list[tuple[Any, ...]] = [
            (row, column, across[column], down[row], across[column + 1], down[row + 1], False, score)
            for (row, column), score in np.ndenumerate(self.scores)
        ]
        if self.rest:
            places.append((*[None] * 6, True, self.rest))
        names = ("row", "column", "left", "top", "right", "bottom", "special", "score")
        columns = dict(zip(names, zip(*places, strict=True), strict=True))
        same = {"method": self.method, "target": self.target, "value": self.value, "name": self.name}
        return pandas_frame(columns, ("row", "column"), **same)

    def image_map(self) -> ImageMap:
        """What the renderers draw."""
        sure = f" ({self.probability:.2f})" if self.probability is not None else ""
        prediction = f"{self.prediction}{sure}" if self.prediction else ""
        whole = self.frame == Frame(0, 0, *self.image.size)
        scores = self.scores if whole else self.map()
        signed = METHODS[self.method].signed
        return ImageMap(
            np.asarray(self.image), scores, self.method, self.target, self.value, prediction, self.name, signed
        )

    def show(self) -> None:
        """Print a coarse map to the terminal."""
        show([self])

    def to_html(self) -> str:
        """A self-contained page."""
        return to_html([self])

    def _repr_html_(self) -> str:
        from relprop.render.image.html import html

        return html([self.image_map()], full_page=False)

    def save(self, path: str | os.PathLike[str], *, contour: Contour = None) -> None:
        """Write .html, .json, .png, .svg or .pdf, by the ending of the name."""
        save([self], path, contour=contour)

    def to_json(self) -> str:
        """One line of JSON with its schema version: the numbers, without the picture. `from_json` loads it back."""
        frame = [self.frame.left, self.frame.top, self.frame.right, self.frame.bottom]
        ledger = None if self.ledger is None else asdict(self.ledger)
        numbers = {"size": list(self.image.size), "scores": self.scores.tolist(), "frame": frame, "ledger": ledger}
        data = {"schema_version": SCHEMA_VERSION, "kind": "image", **{name: getattr(self, name) for name in _PLAIN}}
        try:
            return json.dumps({**data, **numbers}, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise InputError("the explanation holds a number that is not finite, which JSON cannot tell") from None

    @classmethod
    def from_json(cls, text: str, image: Any) -> ImageExplanation:
        """Load what `to_json` wrote, to be drawn again on its picture: a path, a Pillow image or an array."""
        picture = opened(image)
        try:
            data = json.loads(text)
            if (data["schema_version"], data["kind"]) != (SCHEMA_VERSION, "image"):
                raise ValueError(f"it is a {data['kind']} of version {data['schema_version']}")
            size, scores = tuple(data["size"]), np.array(data["scores"], dtype=np.float64)
            if scores.ndim != 2:
                raise ValueError(f"scores are a grid, not {list(scores.shape)}")
            frame, ledger = Frame(*data["frame"]), Ledger.revived(data["ledger"])
            plain = {name: data[name] for name in _PLAIN}
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"this is no image's explanation saved by relprop ({error!r})") from None
        if size != picture.size:
            raise InputError(f"the explanation is of a picture of {size[0]} x {size[1]} pixels, not of "
                             f"{picture.size[0]} x {picture.size[1]}")  # fmt: skip
        return cls(picture, scores, frame, ledger=ledger, **plain)


_PLAIN = ("method", "target", "value", "rest", "name", "prediction", "probability", "baseline")


def _interpolation(pixels: int, scores: int, low: float, high: float) -> Numbers:
    """[pixels, scores]: each pixel's linear weights; none where it lies outside."""
    place = (np.arange(pixels) + 0.5 - low) / (high - low) * scores
    inside = (place >= 0) & (place <= scores)
    centre = np.clip(place - 0.5, 0, scores - 1)
    first = np.minimum(centre.astype(int), max(scores - 2, 0))
    weights = np.zeros((pixels, scores))
    rows = np.arange(pixels)
    weights[rows, first] = 1 - (centre - first)
    weights[rows, np.minimum(first + 1, scores - 1)] += centre - first
    return np.asarray(weights * inside[:, None])


def show(explanations: Sequence[ImageExplanation]) -> None:
    """Print explanations to the terminal, one under the other."""
    from rich.console import Console

    from relprop.render.image.terminal import terminal

    Console().print(terminal([one.image_map() for one in explanations]))


def to_html(explanations: Sequence[ImageExplanation], *, contour: Contour = None) -> str:
    """One self-contained page: a row for each picture and target, a column for each method."""
    from relprop.render.image.html import html

    return html([one.image_map() for one in explanations], contour=contour)


def save(explanations: Sequence[ImageExplanation], path: str | os.PathLike[str], *, contour: Contour = None) -> None:
    """Write explanations to one file, by the ending of its name, as a grid of pictures and methods."""

    def picture(to: Path) -> None:
        from relprop.render.image import figure

        figure.save([one.image_map() for one in explanations], to, contour=contour)

    write(explanations, path, picture, lambda: to_html(explanations, contour=contour))


def write(
    explanations: Sequence[Any],
    path: str | os.PathLike[str],
    picture: Callable[[Path], None],
    page: Callable[[], str],
) -> None:
    """A picture, a page or JSON, by the ending of the name."""
    target = Path(path)
    check_path(target)
    kind = target.suffix.lower()
    try:
        if kind in PICTURES:
            picture(target)
        elif kind == ".html":
            write_text(target, page())
        else:
            lines = [one.to_json() for one in explanations]
            write_text(target, lines[0] if len(lines) == 1 else "[" + ",\n".join(lines) + "]")
    except OSError as error:
        raise unwritable(target, error) from error
