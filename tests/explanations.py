"""Explanations made by hand, for tests: one part each, given in one line."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from relprop.explanation import Explanation
from relprop.render.graph.part import GraphPart
from relprop.render.image.part import ImagePart
from relprop.render.text.part import TextPart

_OF_TEXT = {field.name for field in fields(TextPart)} - {"name"}


def of_text(
    text: Any, units: Any, scores: Any, method: str, target: str, value: float, *more: Any, **named: Any
) -> Any:
    part = {name: named.pop(name) for name in list(named) if name in _OF_TEXT}
    return Explanation((TextPart("input_ids", text, units, scores, **part),), method, target, value, *more, **named)


def of_image(
    image: Any, scores: Any, frame: Any, method: str, target: str, value: float, rest: float = 0.0, file: str = "",
    **named: Any,
) -> Any:  # fmt: skip
    part = ImagePart("pixel_values", image.size, scores, frame, rest, file, image)
    return Explanation((part,), method, target, value, **named)


def of_graph(
    graph: Any, scores: Any, method: str, target: str, value: float, rest: float = 0.0, *more: Any, edges: Any = None,
    **named: Any,
) -> Any:  # fmt: skip
    return Explanation((GraphPart("nodes", graph, scores, rest, edges),), method, target, value, *more, **named)


def changed(one: Explanation, **changes: Any) -> Explanation:
    """The same with other fields, of the explanation or of its only part."""
    own = {field.name for field in fields(one)}
    part = {name: changes.pop(name) for name in list(changes) if name not in own}
    return replace(one, parts=(replace(one.part, **part),) if part else one.parts, **changes)


def of_generation(
    prompt: str, written: str, units: Any, given: int, steps: Any, scores: Any, method: str, passes: str = "shared",
    two_sided: bool = False,
) -> Any:  # fmt: skip
    """`scores`: [generated tokens][units of all texts]."""
    source = sum(unit.segment == 0 for unit in units) if two_sided else len(units)
    ends = [(0, source), (source, len(units))] if two_sided else [(0, source)]
    texts = [prompt, written] if two_sided else [prompt + written]
    parts = []
    for name, text, (first, stop) in zip(("input_ids", "decoder_input_ids"), texts, ends, strict=False):
        by_step = tuple(tuple(row[first:stop]) for row in scores)
        sums = tuple(map(sum, zip(*by_step, strict=True))) or (0.0,) * (stop - first)
        own = tuple(replace(unit, segment=0) for unit in units[first:stop])
        begin = (0 if two_sided else len(prompt)) if stop == len(units) else None
        parts.append(TextPart(name, (text,), own, sums, by_step, begin))
    assert given + len(steps) == len(units)
    value = sum(step.value for step in steps)
    return Explanation(tuple(parts), method, f"sum of {len(steps)} generated tokens", value, steps=steps, passes=passes)
