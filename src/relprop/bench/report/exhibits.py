"""Things to look at: heat maps by method, their difference to a baseline, heads, pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from relprop.bench.report.blocks import Block, Heatmaps, Picture, Pictures
from relprop.bench.report.results import Results
from relprop.explanation import Explanation
from relprop.render.heads import heads_figure, offsets_figure
from relprop.render.saving import put
from relprop.types import Heatmap


def texts(results: Results) -> Iterator[Block]:
    """Example by example, the methods under each other, and how one differs from another if the suite says so."""
    for task, own in _by_example(results, "text"):
        for example, found in own.items():
            maps = {label: _heatmap(results, label, one) for label, one in found.items()}
            rows = [*maps.values(), *_difference(maps, results.suite.difference)]
            yield Heatmaps(f"heatmaps {task} {example}", f"{task}, example {example}", tuple(rows))


def _by_example(results: Results, kind: str) -> Iterator[tuple[str, dict[int, dict[str, dict[str, Any]]]]]:
    """Of every task, [example][method], in the order of the suite."""
    order = [one.label for one in results.suite.methods]
    for task, measured in results.tasks.items():
        own = [one for one in measured.exhibits if one["kind"] == kind]
        examples: dict[int, dict[str, dict[str, Any]]] = {}
        for one in sorted(own, key=lambda one: (one["example"], _place(order, one["method"]))):
            examples.setdefault(one["example"], {})[one["method"]] = one
        yield task, examples


def _place(order: Sequence[str], label: str) -> int:
    """What is no method, as the picture itself, comes first."""
    return order.index(label) if label in order else -1


def _heatmap(results: Results, label: str, exhibit: Mapping[str, Any]) -> Heatmap:
    """Without special tokens: on [CLS], which reads itself, methods on maps put so much that the words turn white."""
    explanation = Explanation.from_json(exhibit["explanation"]).without_special()
    return replace(explanation.heatmap(), method=results.printed(label))


def _difference(maps: Mapping[str, Heatmap], pair: Sequence[str]) -> Iterator[Heatmap]:
    """Both scaled to their strongest unit, then subtracted: red is where the first sees more."""
    if pair and all(label in maps for label in pair):
        first, second = (maps[label] for label in pair)
        scores = tuple(a - b for a, b in zip(_scaled(first.scores), _scaled(second.scores), strict=True))
        name = f"difference: {first.method} - {second.method}"
        yield replace(first, scores=scores, method=name, note="each scaled to its strongest unit", shares=False)


def _scaled(scores: Sequence[float]) -> list[float]:
    strongest = max(map(abs, scores), default=0.0) or 1.0
    return [score / strongest for score in scores]


def heads(results: Results) -> Iterator[Block]:
    """How far apart related words stand, and which heads of a model are of which kind."""
    for task, measured in results.tasks.items():
        for exhibit in measured.exhibits:
            if exhibit["kind"] == "heads":
                title = f"{exhibit['model']} on {exhibit['corpus']}"
                offsets = {
                    relation: {int(offset): share for offset, share in own.items()}
                    for relation, own in exhibit["offsets"].items()
                }
                figures = {
                    "offsets of relations": offsets_figure(offsets, exhibit["corpus"]) if offsets else None,
                    "kinds of heads": heads_figure(exhibit["kinds"], title) if exhibit["kinds"] else None,
                }
                pictures = [
                    Picture(f"{what} {task}", f"{what}: {title}", "svg", _svg(figure))
                    for what, figure in figures.items()
                    if figure is not None
                ]
                yield Pictures(f"{task}: {title}", tuple(pictures))


def _svg(figure: Figure) -> bytes:
    file = io.BytesIO()
    put(figure, file, "svg")
    return file.getvalue()


def pictures(results: Results) -> Iterator[Block]:
    """Example by example, the methods side by side."""
    for task, own in _by_example(results, "image"):
        for example, found in own.items():
            shown = [
                Picture(
                    f"{task} {example} {label}",
                    f"{results.printed(label) or 'nothing coloured'} on example {example} of {task}",
                    "png",
                    base64.b64decode(one["png"]),
                    results.printed(label) or "itself",
                )
                for label, one in found.items()
            ]
            targets = dict.fromkeys(one["target"] for one in found.values() if one.get("target"))
            said = f" ({'; '.join(targets)})" if targets else ""
            yield Pictures(f"{task}, example {example}{said}", tuple(shown))
