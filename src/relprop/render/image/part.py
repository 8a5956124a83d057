"""`ImagePart`: scores on a picture's grid of patches or pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from relprop.errors import InputError
from relprop.part import Part, Words
from relprop.render.image.overlay import LINE, ImageMap
from relprop.types import Box

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """Which part of a picture the model sees: edges in the picture's own pixels; beyond them where it was padded."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Patch:
    """One cell of the grid: its row and column, and its edges in the picture's own pixels."""

    row: int
    column: int
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, eq=False, repr=False)
class ImagePart(Part):
    """The patches or pixels of one picture, and one score per patch or pixel."""

    kind: ClassVar[str] = "image"
    rendering: ClassVar[str] = "relprop.render.image"
    whole_columns: ClassVar[tuple[str, ...]] = ("row", "column")
    scored: ClassVar[tuple[str, ...]] = ("scores", "rest")

    name: str
    size: tuple[int, int]  # the picture's width and height
    scores: Scores  # [rows, columns]
    frame: Frame  # which part of the picture they cover
    rest: float = 0.0  # scores of class tokens and the like, which lie nowhere on the picture
    file: str = ""  # the file's name
    image: Image.Image | None = None  # the picture at its own size, upright, in three colours
    by_step: tuple[tuple[Scores, float], ...] = ()  # of several steps, per step its own `scores` and `rest`

    @property
    def units(self) -> tuple[Patch, ...]:
        height, width = self.scores.shape
        down = np.linspace(self.frame.top, self.frame.bottom, height + 1).tolist()
        across = np.linspace(self.frame.left, self.frame.right, width + 1).tolist()
        return tuple(
            Patch(row, column, across[column], down[row], across[column + 1], down[row + 1])
            for row, column in np.ndindex(height, width)
        )

    @property
    def total(self) -> float:
        return float(self.scores.sum()) + self.rest

    def top(self, count: int) -> list[tuple[Patch, float]]:
        pairs = zip(self.units, self.scores.flatten().tolist(), strict=True)
        return sorted(pairs, key=lambda pair: -abs(pair[1]))[:count]

    def map(self) -> Scores:
        """The scores at the picture's own size [height, width], bilinear; 0 where the model does not see."""
        width, height = self.size
        down = _interpolation(height, self.scores.shape[0], self.frame.top, self.frame.bottom)
        across = _interpolation(width, self.scores.shape[1], self.frame.left, self.frame.right)
        return down @ self.scores @ across.T

    def without_special(self) -> Self:
        return replace(self, rest=0.0, by_step=tuple((scores, 0.0) for scores, _ in self.by_step))

    def columns(self) -> dict[str, Sequence[object]]:
        """One row per patch or pixel, with its edges on the picture; class tokens are one row, special."""
        rows: list[tuple[object, ...]] = [
            (*vars(unit).values(), False, score)
            for unit, score in zip(self.units, self.scores.flatten().tolist(), strict=True)
        ]
        if self.rest:
            rows.append((*[None] * 6, True, self.rest))
        names = ("row", "column", "left", "top", "right", "bottom", "special", "score")
        return {**dict(zip(names, zip(*rows, strict=True), strict=True)), "name": [self.file] * len(rows)}

    def to_dict(self) -> dict[str, object]:
        """The numbers, without the picture."""
        frame = [self.frame.left, self.frame.top, self.frame.right, self.frame.bottom]
        plain = {name: getattr(self, name) for name in ("name", "rest", "file")}
        steps = {"by_step": [[scores.tolist(), rest] for scores, rest in self.by_step]} if self.by_step else {}
        own = {"size": list(self.size), "scores": self.scores.tolist(), "frame": frame}
        return {"kind": self.kind, **plain, **own, **steps}

    @classmethod
    def from_dict(cls, data: dict[str, Any], attached: Any = None) -> Self:
        """`attached`: the picture, where it is to be drawn on."""
        scores, size = np.array(data["scores"], dtype=np.float64), tuple(data["size"])
        if scores.ndim != 2 or not scores.size:
            raise ValueError(f"scores are a grid, not {list(scores.shape)}")
        if len(size) != 2 or min(size) < 1:
            raise ValueError(f"a picture of {size} pixels")
        if attached is not None and attached.size != size:
            raise InputError(f"the explanation is of a picture of {size[0]} x {size[1]} pixels, not of "
                             f"{attached.size[0]} x {attached.size[1]}")  # fmt: skip
        steps = tuple((np.array(own, dtype=np.float64), rest) for own, rest in data.get("by_step", ()))
        if any(own.shape != scores.shape for own, _ in steps):
            raise ValueError("the scores of a step are of another shape")
        own = {"scores": scores, "size": size, "frame": Frame(*data["frame"]), "by_step": steps}
        return cls(image=attached, **{**data, **own})

    @classmethod
    def drawing(cls, parts: Sequence[Self], words: Words) -> ImageMap:
        if len(parts) != 1:
            raise InputError(f"an explanation of {len(parts)} pictures is not drawn: draw its parts one by one")
        (part,) = parts
        if part.image is None:
            raise InputError("the picture is not saved with its numbers: load them with from_json(text, image=...)")
        scores = part.scores if part.frame == Frame(0, 0, *part.size) else part.map()
        told = (words.method, words.target, words.value, words.prediction, part.file, words.signed)
        image = part.image if words.box is None else boxed(part.image, words.box)
        beside = (
            None if words.beside is None else (*words.beside, *((("class tokens", part.rest),) if part.rest else ()))
        )
        total = float(part.scores.sum())
        return ImageMap(np.asarray(image), scores, *told, total=total, beside=beside, quantity=words.quantity)


def boxed(image: Image.Image, box: Box) -> Image.Image:
    """The picture with a box drawn on it, white between two black lines: seen on any ground."""
    image, line = image.copy(), max(1, round(max(image.size) / LINE))
    draw = ImageDraw.Draw(image)
    left, top, right, bottom = (round(edge) for edge in box)
    for out, colour in ((line, "black"), (0, "white"), (-line, "black")):
        edges = (left - out, top - out, max(left - out, right - 1 + out), max(top - out, bottom - 1 + out))
        draw.rectangle(edges, outline=colour, width=line)
    return image


def _interpolation(pixels: int, scores: int, low: float, high: float) -> Scores:
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
