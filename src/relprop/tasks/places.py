"""Places on a picture: a point, a box or a mask in its own pixels, and the cells of a grid that lie there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relprop.engine.model_call import call, evaluating
from relprop.engine.restoring import restoring
from relprop.errors import TargetError
from relprop.outputs import output_field
from relprop.readers.image import ImageReader, PixelRow
from relprop.render.image.part import Frame
from relprop.types import Box

Mask = NDArray[np.bool_]
READ_AT_ONCE = 8  # pictures whose outputs are asked for before anything is explained
_FORMS = (
    "a place is a point (x, y), a box (left, top, right, bottom) or a mask of true and false, in the picture's pixels"
)


@dataclass(frozen=True, eq=False)
class PicturePlace:
    """Where on a picture, with its name."""

    box: Box  # of a point the pixel that holds it
    name: str
    mask: Mask | None = None  # [height, width]
    point: bool = False  # it lies in one cell of every grid

    def cells(self, shape: Sequence[int], frame: Frame) -> Tensor:
        """Which cells of a grid over the frame have their middle here; at least the nearest one: [rows, columns]."""
        rows, columns = shape
        across = frame.left + (np.arange(columns) + 0.5) * (frame.right - frame.left) / columns
        down = frame.top + (np.arange(rows) + 0.5) * (frame.bottom - frame.top) / rows
        left, top, right, bottom = self.box
        inside = ((down >= top) & (down < bottom))[:, None] & ((across >= left) & (across < right))[None, :]
        if self.mask is not None:
            tall, wide = self.mask.shape
            at = np.ix_(np.clip(down.astype(int), 0, tall - 1), np.clip(across.astype(int), 0, wide - 1))
            inside &= self.mask[at]
        if self.point or not inside.any():
            inside[:] = False
            nearest = np.abs(down - (top + bottom) / 2).argmin(), np.abs(across - (left + right) / 2).argmin()
            inside[nearest] = True
        return torch.from_numpy(inside)

    def holds(self, box: Box) -> bool:
        """Whether a box has this place's middle inside."""
        x, y = (self.box[0] + self.box[2]) / 2, (self.box[1] + self.box[3]) / 2
        return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def is_place(given: object) -> bool:
    """Whether something is meant as a place: numbers in a tuple, or an array."""
    if isinstance(given, tuple):
        return len(given) in (2, 4) and all(isinstance(one, Real) and not isinstance(one, bool) for one in given)
    return isinstance(given, np.ndarray | Tensor)


def place_of(given: Any, size: tuple[int, int]) -> PicturePlace:
    """A place on a picture of this width and height. Raises for one outside of it."""
    width, height = size
    if not is_place(given):
        raise TargetError(f"{_FORMS}; got {given!r:.80}")
    if not isinstance(given, tuple):
        return _masked(np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given), size)
    numbers = [float(one) for one in given]
    if len(numbers) == 2:
        x, y = numbers
        if not (0 <= x < width and 0 <= y < height):
            raise TargetError(
                f"the point ({x:g}, {y:g}) lies outside of the picture, which is {width} x {height} pixels"
            )
        return PicturePlace((x, y, x + 1, y + 1), f"({x:g}, {y:g})", point=True)
    left, top, right, bottom = numbers
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise TargetError(
            f"a box is (left, top, right, bottom) within the picture, which is {width} x {height} pixels; got {given}"
        )
    return PicturePlace((left, top, right, bottom), told(left, top, right, bottom))


def _masked(mask: NDArray[Any], size: tuple[int, int]) -> PicturePlace:
    width, height = size
    if mask.shape != (height, width) or mask.dtype.kind not in "bui" or not mask.any():
        raise TargetError(
            f"a mask is an array of true and false, [{height}, {width}] as the picture, and true somewhere; got "
            f"{mask.dtype} {list(mask.shape)}"
        )
    rows, columns = np.nonzero(mask.any(1))[0], np.nonzero(mask.any(0))[0]
    box = (float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))
    return PicturePlace(box, f"a mask of {int((mask != 0).sum())} pixels", mask != 0)


def told(left: float, top: float, right: float, bottom: float) -> str:
    """A box in words."""
    return f"({left:.0f}, {top:.0f}) to ({right:.0f}, {bottom:.0f})"


@restoring
def asked_outputs(reader: ImageReader, rows: Sequence[PixelRow], names: Sequence[str]) -> list[dict[str, Tensor]]:
    """What the model gives for each picture, without a backward pass: those of these outputs that it has."""
    found: dict[int, dict[str, Tensor]] = {}
    for batch in reader.batches(rows, READ_AT_ONCE):
        with torch.no_grad(), evaluating(reader.model):
            outputs = call(reader.model, reader.inputs([rows[i] for i in batch]))
        given = {name: value.double().cpu() for name in names if (value := output_field(outputs, name)) is not None}
        for number, i in enumerate(batch):
            found[i] = {name: value[number] for name, value in given.items()}
    return [found[i] for i in range(len(rows))]
