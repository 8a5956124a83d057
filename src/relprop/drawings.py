"""What is drawn of an explanation: its parts kind by kind, a picture with its text, a continuation token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from relprop.part import Part, Words
from relprop.render.text.part import TextPart, joined_units, line_starts
from relprop.types import Shares

if TYPE_CHECKING:
    from relprop.render.generation.layout import GenerationMap
    from relprop.render.together.layout import TogetherMap

PICTURES = "relprop.render.image"
GENERATION = "relprop.render.generation"
TOGETHER = "relprop.render.together"
DrawnPart = tuple[str, Any]  # the package of the renderers, and what they draw


def drawings_of(one: Any) -> list[DrawnPart]:
    """All drawings of an `Explanation`."""
    others = [part for part in one.parts if not isinstance(part, TextPart)]
    beside_picture = len(others) == 1 and others[0].kind == "image" and (one.writes or not one.steps)
    if beside_picture and any(part.kind == "document" for part in one.parts):
        (_, page), (_, picture) = _of_parts(one, one.parts)
        return [(one.parts[0].rendering, replace(page, picture=picture))]
    if beside_picture and one.texts:
        return [(TOGETHER, _together(one, others[0]))]
    if one.writes:
        summed = _of_parts(one, [part for part in others if not part.drawn_by_step])
        steps = map(one.step, range(len(one.steps)))
        by_step = [
            drawn for step in steps for drawn in _of_parts(step, [part for part in step.parts if part.drawn_by_step])
        ]
        return [*summed, *by_step, (GENERATION, _generation(one))]
    if one.steps:
        return [drawn for i in range(len(one.steps)) for drawn in drawings_of(one.step(i))]
    if one.ledgers:  # each part explains the whole value
        return [drawn for i in range(len(one.ledgers)) for drawn in drawings_of(one.side(i))]
    return _of_parts(one, one.parts)


def _of_parts(one: Any, parts: Sequence[Part]) -> list[DrawnPart]:
    """Parts with their scores, of a continuation the sums over all of its tokens, those of one kind together."""
    sure = f", probability {one.probability:.2f}" if one.probability is not None else ""
    by = f" by {one.model}" if one.model else ""
    prediction = f"{one.prediction}{by}{sure}" if one.prediction else ""
    target = one.target if one.prediction or not one.model else f"{one.target} of {one.model}"
    kinds: dict[type[Part], list[Part]] = {}
    for part in parts:
        kinds.setdefault(type(part), []).append(part)
    told = (one.method, target, one.value, prediction, one.signed)
    return [
        (kind.rendering, kind.drawing(own, Words(*told, _beside(one, own), one.quantity, one.box)))
        for kind, own in kinds.items()
    ]


def _beside(one: Any, drawn: Sequence[Part]) -> Shares | None:
    """What the value is made of beside the scores of these parts; None where no sum is claimed."""
    if not one.signed:
        return None
    others = [part for part in one.parts if not any(part is shown for shown in drawn)]
    return (*((part.name, part.total) for part in others), *one.account)


def _generation(one: Any) -> GenerationMap:
    import numpy as np

    from relprop.render.generation.layout import GenerationMap

    units, _ = joined_units(one.texts)
    rows = np.concatenate([part.step_rows() for part in one.texts], axis=1)
    scores = tuple(map(tuple, rows.tolist()))
    beside, given = _beside(one, one.texts), len(units) - len(one.steps)
    told = (one.method, beside is not None, one.signed, line_starts(one.texts), beside or (), one.quantity, one.model)
    merged = any(part.merged for part in one.texts)
    return GenerationMap(units, given, one.steps, scores, *told, one.target, merged)


def _together(one: Any, image: Any) -> TogetherMap:
    """A picture and its text, with the sums; of a continuation also token by token."""
    from relprop.render.together.layout import TogetherMap

    ((_, picture),), ((_, text),) = _of_parts(one, [image]), _of_parts(one, one.texts)
    (width, height), edges = image.size, image.frame
    frame = (edges.left / width, edges.top / height, edges.right / width, edges.bottom / height)
    written = _generation(one) if one.writes else None
    grids = tuple(scores for scores, _ in image.by_step)
    return TogetherMap(picture, text, image.scores, frame, (*one.by_part, *one.account), written, grids)
