"""Object detection: the class score of one of the boxes that a model proposes, or an edge of the box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from torch import Tensor, nn

from relprop.engine.model_call import labels_of
from relprop.errors import InputError, ModelError, TargetError, unknown_name
from relprop.outputs import output_field
from relprop.readers import read_all
from relprop.readers.image import ImageReader, PixelRow
from relprop.render.image.part import Frame
from relprop.targets import TokenAt, class_index
from relprop.tasks.places import asked_outputs, is_place, place_of, told
from relprop.tasks.steps import step_of
from relprop.tasks.task import Answered, Query
from relprop.types import Attribution, Box

THRESHOLD = 0.5  # probability of what counts as found, as in the processors of transformers
MOST = 20  # objects of one picture that are explained at once
EDGES = ("left", "top", "right", "bottom")
NO_OBJECT = "no object"
_FORMS = (
    'a target is an object\'s class, a pair of the object and its class, such as (3, "cat") or ((120, 80), "cat"), '
    "where the object is its number or a point in its box, the class may be None for the likeliest, a pair for a "
    'difference, or "left", "top", "right" or "bottom" for an edge of the box; or None for every object'
)


@dataclass(frozen=True)
class BoxEdge:
    """Where an edge of an object's box lies, in the picture's own pixels."""

    query: int
    edge: str
    frame: Frame

    def __call__(self, outputs: object) -> Tensor:
        boxes = output_field(outputs, "pred_boxes")
        assert boxes is not None
        axis, side = (0 if self.edge in ("left", "right") else 1), (-0.5 if self.edge in ("left", "top") else 0.5)
        low, high = ((self.frame.left, self.frame.right), (self.frame.top, self.frame.bottom))[axis]
        own = boxes[:, self.query]
        return (own[:, axis] + side * own[:, axis + 2]) * (high - low) + low

    @property
    def __name__(self) -> str:
        return f"{self.edge} edge of object {self.query}"


@dataclass(frozen=True)
class Proposals:
    """A picture, and what the model proposes on it."""

    row: PixelRow
    logits: Tensor  # [objects, classes]
    probabilities: Tensor  # [objects, classes], without "no object"
    boxes: tuple[Box, ...]

    @property
    def strength(self) -> Tensor:
        """Per object the probability of its likeliest class."""
        return self.probabilities.max(1).values


class DetectedObject:
    """The logit of a class at one of the boxes that the model proposes ("queries").

    `target`: a pair of the object (its number, or a point of the picture in its box) and the class, or an edge of the
    box; a class alone is read where it is likeliest; None is every object with a probability above 0.5, a step each.
    """

    name = "images"
    takes_places = True

    def __init__(self, model: nn.Module, reader: ImageReader) -> None:
        self.model = model
        self.reader = reader

    @property
    def labels(self) -> dict[int, str]:
        return dict(labels_of(self.model) or {})

    def target(self, target: object) -> object:
        return target

    def check_evaluation(self) -> None:
        raise InputError("evaluate reads the probability of one class per picture, and this model has several boxes")

    def queries(self, given: Sequence[object], targets: Sequence[object], max_length: int | None = None) -> list[Query]:
        rows = read_all(self.reader, given, max_length)
        outputs = asked_outputs(self.reader, rows, ("logits", "pred_boxes"))
        queries = []
        for number, (row, own, target) in enumerate(zip(rows, outputs, targets, strict=True)):
            try:
                queries.append(self._query(self._proposals(row, own), target))
            except TargetError as error:
                which = f"image {number} of the list: " if len(given) > 1 else ""
                raise TargetError(f"{which}{error}") from None
        return queries

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        return query.answer if query.answer is not None else Answered(found.target[number])

    def _proposals(self, row: PixelRow, outputs: dict[str, Tensor]) -> Proposals:
        logits, boxes = outputs.get("logits"), outputs.get("pred_boxes")
        if logits is None or boxes is None or logits.dim() != 2 or boxes.shape != (len(logits), 4):
            raise ModelError(
                "a detector gives logits [objects, classes] and pred_boxes [objects, 4] for each picture; pass "
                "target=function of outputs for this one"
            )
        with_nothing = logits.shape[1] == len(self.labels) + 1  # the last class is "no object": one class of all
        probabilities = logits.softmax(-1)[:, :-1] if with_nothing else logits.sigmoid()
        return Proposals(row, logits, probabilities, tuple(_on_picture(box, row.frame) for box in boxes.tolist()))

    def _query(self, picture: Proposals, target: object) -> Query:
        if callable(target):
            return Query(picture.row, target)
        if target is None:
            return self._every(picture)
        if isinstance(target, str | Integral):
            index = self._index(picture, target)
            return self._scored(picture, int(picture.probabilities[:, index].argmax()), index)
        if not isinstance(target, tuple) or len(target) != 2:
            raise TargetError(f"{_FORMS}; got {target!r:.80}")
        where, label = target
        query = self._object(picture, where, label)
        if isinstance(label, str) and label in EDGES and label not in self.labels.values():
            return self._edge(picture, query, label)
        pair = label if isinstance(label, tuple) else (label,)
        if len(pair) > 2:
            raise TargetError(f"a difference takes two classes, got {len(pair)}: {pair!r:.80}")
        first, *rest = pair
        own = int(picture.probabilities[query].argmax()) if first is None else self._index(picture, first)
        return self._scored(picture, query, own, *(self._index(picture, one) for one in rest))

    def _object(self, picture: Proposals, where: object, label: object) -> int:
        """The number of an object: given, or the likeliest one whose box holds a point."""
        count = len(picture.boxes)
        if isinstance(where, Integral):
            if not 0 <= int(where) < count:
                raise TargetError(f"object {where} is out of range: the model proposes {count}, 0 to {count - 1}")
            return int(where)
        if not is_place(where):
            raise TargetError(f"{_FORMS}; got the object {where!r:.80}")
        place = place_of(where, picture.row.picture.size)
        holding = [query for query, box in enumerate(picture.boxes) if place.holds(box)]
        if not holding:
            raise TargetError(f"none of the {count} boxes that the model proposes holds {place.name}")
        classed = label is not None and not isinstance(label, tuple) and label not in EDGES
        strength = picture.probabilities[:, self._index(picture, label)] if classed else picture.strength
        return max(holding, key=lambda query: float(strength[query]))

    def _every(self, picture: Proposals) -> Query:
        """A step for every object that is found; the likeliest one alone where none is."""
        found = [query for query, sure in enumerate(picture.strength.tolist()) if sure >= THRESHOLD]
        found = sorted(found, key=lambda query: -float(picture.strength[query]))
        if not found:
            best = int(picture.strength.argmax())
            none = (
                f"the model finds no object with a probability of {THRESHOLD:g} or more: the likeliest one is explained"
            )
            likeliest = self._scored(picture, best, int(picture.probabilities[best].argmax()))
            return replace(likeliest, warnings=(none,))
        many = f"the model finds {len(found)} objects: the {MOST} likeliest are explained, name another one"
        steps = tuple(
            self._scored(picture, query, int(picture.probabilities[query].argmax())) for query in found[:MOST]
        )
        said = ", ".join(one.answer.prediction for one in steps if one.answer is not None)
        count = f"sum of {len(steps)} objects" if len(steps) > 1 else "the only object"
        warnings = (many,) if len(found) > MOST else ()
        return Query(picture.row, None, Answered(count, said), steps, warnings=warnings)

    def _scored(self, picture: Proposals, query: int, index: int, other: int | None = None) -> Query:
        """The logit of a class at an object."""
        difference = "" if other is None else f" - {self._name(other)}"
        target = f"{self._name(index)}{difference} at {told(*picture.boxes[query])}"
        step = step_of(target, index, picture.probabilities[query], self._name) if index < self._classes else None
        answer = self._answer(picture, query, target)
        return Query(
            picture.row,
            TokenAt(query, index, other),
            Answered(answer.target, answer.prediction, answer.probability, step, answer.box),
        )

    def _edge(self, picture: Proposals, query: int, edge: str) -> Query:
        answer = self._answer(picture, query, f"{edge} edge of {told(*picture.boxes[query])}")
        return Query(picture.row, BoxEdge(query, edge, picture.row.frame), answer)

    def _answer(self, picture: Proposals, query: int, target: str) -> Answered:
        best = int(picture.probabilities[query].argmax())
        sure = float(picture.probabilities[query, best])
        return Answered(target, self._name(best), sure, box=picture.boxes[query])

    @property
    def _classes(self) -> int:
        return len(self.labels)

    def _index(self, picture: Proposals, label: Any) -> int:
        if label == NO_OBJECT and picture.logits.shape[1] > self._classes:
            return self._classes
        if not isinstance(label, str | Integral):
            raise TargetError(f"{_FORMS}; got the class {label!r:.80}")
        if isinstance(label, str) and label in EDGES and label not in self.labels.values():
            raise unknown_name("class", label, self.labels.values())
        return class_index(label, picture.logits.shape[1], self.labels)

    def _name(self, index: int) -> str:
        return self.labels.get(index, NO_OBJECT if index == self._classes else str(index))


def _on_picture(box: Sequence[float], frame: Frame) -> Box:
    """A box of relative (centre x, centre y, width, height) as edges in the picture's own pixels."""
    x, y, width, height = box
    wide, tall = frame.right - frame.left, frame.bottom - frame.top
    return (
        frame.left + (x - width / 2) * wide,
        frame.top + (y - height / 2) * tall,
        frame.left + (x + width / 2) * wide,
        frame.top + (y + height / 2) * tall,
    )
