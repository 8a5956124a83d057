"""`VideoPart`: scores on the patches of a video's frames, drawn as a strip of frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from relprop.errors import InputError
from relprop.part import Part, Words
from relprop.render.image.overlay import ImageMap
from relprop.render.image.part import Frame, ImagePart, Patch

Scores = NDArray[np.float64]
ACROSS = 4  # frames in a row of the strip
GAP = 0.03  # between frames, of their width


@dataclass(frozen=True)
class FramePatch:
    """One cell of the grid at some frames: the first and last of them, by their numbers in the video as given."""

    first: int
    last: int
    row: int
    column: int
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, eq=False, repr=False)
class VideoPart(Part):
    """The patches of a video's frames, and one score per patch of one or several frames."""

    kind: ClassVar[str] = "video"
    rendering: ClassVar[str] = "relprop.render.image"
    whole_columns: ClassVar[tuple[str, ...]] = ("first", "last", "row", "column")
    scored: ClassVar[tuple[str, ...]] = ("scores", "rest")

    name: str
    size: tuple[int, int]  # the frames' width and height
    scores: Scores  # [times, rows, columns]
    frame: Frame  # which part of every frame they cover
    times: tuple[tuple[int, int], ...]  # per time the first and the last frame of the video that the model read then
    rest: float = 0.0  # scores of class tokens and the like, which lie nowhere
    file: str = ""  # the file's name
    images: tuple[Image.Image, ...] | None = None  # per time its first frame at its own size
    by_step: tuple[tuple[Scores, float], ...] = ()  # of several steps, per step its own `scores` and `rest`

    def _picture(self, time: int) -> ImagePart:
        """One time as a picture."""
        image = None if self.images is None else self.images[time]
        return ImagePart(self.name, self.size, self.scores[time], self.frame, image=image)

    @property
    def units(self) -> tuple[FramePatch, ...]:
        grid: tuple[Patch, ...] = self._picture(0).units
        return tuple(FramePatch(*ends, *vars(patch).values()) for ends in self.times for patch in grid)

    @property
    def total(self) -> float:
        return float(self.scores.sum()) + self.rest

    def top(self, count: int) -> list[tuple[FramePatch, float]]:
        pairs = zip(self.units, self.scores.flatten().tolist(), strict=True)
        return sorted(pairs, key=lambda pair: -abs(pair[1]))[:count]

    def map(self) -> Scores:
        """The scores at the frames' own size [times, height, width], bilinear; 0 where the model does not see."""
        return np.stack([self._picture(time).map() for time in range(len(self.scores))])

    def without_special(self) -> Self:
        return replace(self, rest=0.0, by_step=tuple((scores, 0.0) for scores, _ in self.by_step))

    def columns(self) -> dict[str, Sequence[object]]:
        """One row per patch and time, with its frames and edges; class tokens are one row, special."""
        rows: list[tuple[object, ...]] = [
            (*vars(unit).values(), False, score)
            for unit, score in zip(self.units, self.scores.flatten().tolist(), strict=True)
        ]
        if self.rest:
            rows.append((*[None] * 8, True, self.rest))
        names = ("first", "last", "row", "column", "left", "top", "right", "bottom", "special", "score")
        return {**dict(zip(names, zip(*rows, strict=True), strict=True)), "name": [self.file] * len(rows)}

    def to_dict(self) -> dict[str, object]:
        """The numbers, without the frames."""
        plain = {name: getattr(self, name) for name in ("name", "rest", "file")}
        steps = {"by_step": [[scores.tolist(), rest] for scores, rest in self.by_step]} if self.by_step else {}
        own = {"size": list(self.size), "scores": self.scores.tolist(), "frame": list(vars(self.frame).values())}
        return {"kind": self.kind, **plain, **own, "times": [list(ends) for ends in self.times], **steps}

    @classmethod
    def from_dict(cls, data: dict[str, Any], attached: Any = None) -> Self:
        if attached is not None:
            raise InputError(
                "the frames of a saved video cannot be given again: explain the video once more to draw it"
            )
        scores, size = np.array(data["scores"], dtype=np.float64), tuple(data["size"])
        times = tuple((first, last) for first, last in data["times"])
        if scores.ndim != 3 or not scores.size or len(times) != len(scores):
            raise ValueError(f"scores are a grid per time, not {list(scores.shape)} for {len(times)} times")
        if len(size) != 2 or min(size) < 1:
            raise ValueError(f"frames of {size} pixels")
        steps = tuple((np.array(own, dtype=np.float64), rest) for own, rest in data.get("by_step", ()))
        if any(own.shape != scores.shape for own, _ in steps):
            raise ValueError("the scores of a step are of another shape")
        own = {"scores": scores, "size": size, "frame": Frame(*data["frame"]), "times": times, "by_step": steps}
        return cls(**{**data, **own})

    @classmethod
    def drawing(cls, parts: Sequence[Self], words: Words) -> ImageMap:
        """All times side by side, in rows of four."""
        if len(parts) != 1:
            raise InputError(f"an explanation of {len(parts)} videos is not drawn: draw its parts one by one")
        (part,) = parts
        if part.images is None:
            raise InputError("the video is not saved with its numbers: explain it once more to draw it")
        told = (words.method, words.target, words.value, words.prediction, part.file, words.signed)
        pictures = [np.asarray(image) for image in part.images]
        return ImageMap(_strip(pictures, 255).astype(np.uint8), _strip(list(part.map()), 0), *told)


def _strip(pictures: Sequence[NDArray[Any]], ground: int) -> NDArray[Any]:
    """Pictures of one size in rows of four, with gaps of one colour between them."""
    height, width, *colours = pictures[0].shape
    gap, across = max(1, round(GAP * width)), min(ACROSS, len(pictures))
    down = -(-len(pictures) // across)
    strip = np.full((down * (height + gap) - gap, across * (width + gap) - gap, *colours), float(ground))
    for number, picture in enumerate(pictures):
        top, left = (number // across) * (height + gap), (number % across) * (width + gap)
        strip[top : top + height, left : left + width] = picture
    return strip
