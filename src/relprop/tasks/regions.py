"""Numbers per pixel: the mean logit of a class over a region (segmentation), the mean depth there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relprop.engine.model_call import labels_of
from relprop.errors import InputError, ModelError, TargetError
from relprop.outputs import output_field
from relprop.readers import read_all
from relprop.readers.image import ImageReader, PixelRow
from relprop.render.image.part import Frame
from relprop.targets import class_index
from relprop.tasks.places import PicturePlace, asked_outputs, is_place, place_of
from relprop.tasks.steps import step_of
from relprop.tasks.task import Answered, Query
from relprop.types import Attribution

LEAST = 0.02  # share of the picture that a class covers to be explained without being asked for
DEPTH, CLASSES, MASKS, QUERIES = "predicted_depth", "logits", "masks_queries_logits", "class_queries_logits"
_FORMS = (
    'a target is a class, a place, or a pair of both, such as ((120, 80), "road"): a place is a point (x, y), a box '
    "(left, top, right, bottom) or a mask, in the picture's pixels; a pair of classes at a place is their difference; "
    "None is every class found"
)


@dataclass(frozen=True, eq=False)
class RegionMean:
    """The mean of one map of an output over some of its cells; minus another map's where that is given."""

    output: str
    cells: Tensor  # [rows, columns], true where it is read
    channel: int | None = None  # None where the output is one map
    other: int | None = None

    def __call__(self, outputs: object) -> Tensor:
        values = output_field(outputs, self.output)
        assert values is not None
        maps = values if self.channel is None or values.dim() < 4 else values[:, self.channel]
        maps = maps if self.other is None else maps - values[:, self.other]
        return maps.flatten(1)[:, self.cells.flatten().to(maps.device)].mean(1)

    @property
    def __name__(self) -> str:
        return self.output if self.channel is None else f"{self.output} {self.channel}"


class PixelNumber:
    """What a model of pictures says per pixel: the depth. `target`: a place, None for the whole picture."""

    name = "images"
    takes_places = True
    what = DEPTH

    def __init__(self, model: nn.Module, reader: ImageReader) -> None:
        self.model = model
        self.reader = reader

    def target(self, target: object) -> object:
        return target

    def check_evaluation(self) -> None:
        raise InputError("evaluate reads the probability of one class per picture, and this model has one per pixel")

    def queries(self, given: Sequence[object], targets: Sequence[object], max_length: int | None = None) -> list[Query]:
        rows = read_all(self.reader, given, max_length)
        outputs = asked_outputs(self.reader, rows, self.outputs)
        queries = []
        for number, (row, own, target) in enumerate(zip(rows, outputs, targets, strict=True)):
            try:
                queries.append(Query(row, target) if callable(target) else self.query(row, own, target))
            except TargetError as error:
                which = f"image {number} of the list: " if len(given) > 1 else ""
                raise TargetError(f"{which}{error}") from None
        return queries

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        return query.answer if query.answer is not None else Answered(found.target[number])

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that are asked for."""
        return (DEPTH,)

    def query(self, row: PixelRow, outputs: dict[str, Tensor], target: Any) -> Query:
        depth = outputs.get(DEPTH)
        if depth is None or depth.squeeze(0).dim() != 2:
            raise ModelError("a model of depth gives predicted_depth [rows, columns] for each picture")
        place = whole(row) if target is None else place_of(target, row.picture.size)
        cells = place.cells(depth.shape[-2:], row.frame)
        return Query(row, RegionMean(DEPTH, cells), Answered(f"depth at {place.name}", box=_drawn(place, target)))


class RegionClass(PixelNumber):
    """Segmentation: the mean logit of a class over a region.

    `target`: a place (a point, a box, a mask) and a class; a place alone takes its likeliest class; a class alone the
    region where it is the likeliest; None is every class that covers a fiftieth of the picture, a step each. Models
    that propose masks with a class each explain the mask that says the class there: the mean of its logits.
    """

    @property
    def labels(self) -> dict[int, str]:
        return dict(labels_of(self.model) or {})

    @property
    def outputs(self) -> tuple[str, ...]:
        return (CLASSES, MASKS, QUERIES)

    def query(self, row: PixelRow, outputs: dict[str, Tensor], target: Any) -> Query:
        picture = _Segments.of(row, outputs)
        if target is None:
            return self._every(picture)
        if isinstance(target, str | Integral):
            index = self._index(picture, target)
            cells = picture.likeliest == index
            if not cells.any():
                raise TargetError(
                    f"{self._name(index)!r} is the likeliest class nowhere on the picture: name a place too, such as "
                    f'((x, y), "{self._name(index)}")'
                )
            return self._region(picture, picture.place(cells), cells, index)
        if is_place(target):
            where, label = target, None
        elif isinstance(target, tuple) and len(target) == 2:
            where, label = target
        else:
            raise TargetError(f"{_FORMS}; got {target!r:.80}")
        place = place_of(where, row.picture.size)
        cells = place.cells(picture.likeliest.shape, row.frame)
        pair = label if isinstance(label, tuple) else (label,)
        if len(pair) > 2:
            raise TargetError(f"a difference takes two classes, got {len(pair)}: {pair!r:.80}")
        first, *rest = pair
        index = int(picture.over(cells).argmax()) if first is None else self._index(picture, first)
        return self._region(picture, place, cells, index, *(self._index(picture, one) for one in rest))

    def _every(self, picture: _Segments) -> Query:
        """A step for every class that covers enough of the picture, the largest first."""
        sizes = torch.bincount(picture.likeliest.flatten(), minlength=picture.scores.shape[0])
        found = [index for index in sizes.argsort(descending=True).tolist() if sizes[index] >= LEAST * sizes.sum()]
        found = found or [int(sizes.argmax())]
        steps = []
        for index in found:
            cells = picture.likeliest == index
            steps.append(self._region(picture, picture.place(cells), cells, index))
        said = ", ".join(map(self._name, found))
        count = f"sum of {len(steps)} classes" if len(steps) > 1 else "the only class"
        return Query(picture.row, None, Answered(count, said), tuple(steps))

    def _region(
        self, picture: _Segments, place: PicturePlace, cells: Tensor, index: int, other: int | None = None
    ) -> Query:
        difference = "" if other is None else f" - {self._name(other)}"
        target = f"{self._name(index)}{difference} at {place.name}"
        probabilities = picture.over(cells)
        best = int(probabilities.argmax())
        step = step_of(target, index, probabilities, self._name)
        answer = Answered(target, self._name(best), float(probabilities[best]), step, place.box)
        return Query(picture.row, picture.number(cells, index, other), answer)

    def _index(self, picture: _Segments, label: Any) -> int:
        if not isinstance(label, str | Integral):
            raise TargetError(f"{_FORMS}; got the class {label!r:.80}")
        return class_index(label, len(picture.scores), self.labels)

    def _name(self, index: int) -> str:
        return self.labels.get(index, str(index))


@dataclass(frozen=True, eq=False)
class _Segments:
    """A picture, and per cell of a grid over it the probability of each class."""

    row: PixelRow
    scores: Tensor  # [classes, rows, columns]
    masks: Tensor | None = None  # [masks, classes, rows, columns]: how much each proposed mask says each class there

    @classmethod
    def of(cls, row: PixelRow, outputs: dict[str, Tensor]) -> _Segments:
        logits, masks, classes = (outputs.get(name) for name in (CLASSES, MASKS, QUERIES))
        if masks is not None and classes is not None:
            each = classes.softmax(-1)[:, :-1, None, None] * masks.sigmoid()[:, None]
            scores = each.sum(0)
            return cls(row, scores / scores.sum(0).clamp_min(1e-30), each)
        if logits is None or logits.dim() != 3:
            raise ModelError(
                "a model of segments gives logits [classes, rows, columns], or masks_queries_logits and "
                "class_queries_logits, for each picture; pass target=function of outputs for this one"
            )
        return cls(row, logits.softmax(0) if len(logits) > 1 else logits.sigmoid())

    @property
    def likeliest(self) -> Tensor:
        """[rows, columns]: the class of each cell."""
        return self.scores.argmax(0)

    def over(self, cells: Tensor) -> Tensor:
        """Each class's mean probability over some cells."""
        return self.scores[:, cells].mean(1)

    def place(self, cells: Tensor) -> PicturePlace:
        """Cells as a place on the picture."""
        rows, columns = torch.nonzero(cells.any(1)).flatten(), torch.nonzero(cells.any(0)).flatten()
        frame: Frame = self.row.frame
        down, across = (np.linspace(*ends, count + 1) for ends, count in (
            ((frame.top, frame.bottom), cells.shape[0]), ((frame.left, frame.right), cells.shape[1])))  # fmt: skip
        box = (across[int(columns[0])], down[int(rows[0])], across[int(columns[-1]) + 1], down[int(rows[-1]) + 1])
        share = 100 * float(cells.double().mean())
        return PicturePlace(tuple(map(float, box)), f"{share:.0f} % of the picture")  # type: ignore[arg-type]

    def number(self, cells: Tensor, index: int, other: int | None) -> RegionMean:
        """What is explained: the class's own map, or the proposed mask that says the class there."""
        if self.masks is None:
            return RegionMean(CLASSES, cells, index, other)
        best, against = (
            None if one is None else int(self.masks[:, one][:, cells].mean(1).argmax()) for one in (index, other)
        )
        if best == against:
            raise TargetError(
                "the same proposed mask says both classes there, so that their difference is 0: name another"
            )
        return RegionMean(MASKS, cells, best, against)


def whole(row: PixelRow) -> PicturePlace:
    """The whole picture."""
    width, height = row.picture.size
    return PicturePlace((0.0, 0.0, float(width), float(height)), "the whole picture")


def _drawn(place: PicturePlace, target: object) -> tuple[float, float, float, float] | None:
    return None if target is None else place.box
