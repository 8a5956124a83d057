"""Things to look at: heat maps by method and their differences, heads, pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from relprop.bench.kinds.exhibits import only_drawing
from relprop.bench.measurements import Exhibit
from relprop.bench.report.blocks import Heatmaps, ImageFile, ImageRow
from relprop.bench.report.results import Results
from relprop.explanation import Explanation
from relprop.render.heads import heads_figure, offsets_figure
from relprop.render.saving import put
from relprop.types import Heatmap


def heatmaps(results: Results) -> Iterator[Heatmaps]:
    """One block per example: the methods one below the other, and the difference of two if the suite asks for it."""
    for task, example, found in _by_example(results, "text"):
        maps = {label: _heatmap(results, label, one) for label, one in found.items()}
        rows = [*maps.values(), *_difference(maps, results.suite.difference)]
        yield Heatmaps(f"heatmaps {task} {example}", f"{task}, example {example}", tuple(rows))


def _by_example(results: Results, kind: str) -> Iterator[tuple[str, int, dict[str, Exhibit]]]:
    """Task, example and its exhibits by method, in the order of the suite; the picture itself comes before them."""
    order = {method.label: number for number, method in enumerate(results.suite.methods)}
    for task, measurements in results.tasks.items():
        own = [one for one in measurements.exhibits if one["kind"] == kind]
        for example in sorted({one["example"] for one in own}):
            some = [one for one in own if one["example"] == example]
            some.sort(key=lambda one: order.get(one["method"], -1))
            yield task, example, {one["method"]: one for one in some}


def _heatmap(results: Results, label: str, exhibit: Exhibit) -> Heatmap:
    """Without special tokens: attention-based methods give [CLS] so much that the words would turn white."""
    explanation = Explanation.from_json(exhibit["explanation"]).without_special()
    return replace(only_drawing(explanation, Heatmap), method=results.printed(label))


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


def head_figures(results: Results) -> Iterator[ImageRow]:
    """How far apart related words stand, and which heads of a model are of which kind."""
    for task, measurements in results.tasks.items():
        for exhibit in measurements.exhibits:
            if exhibit["kind"] == "heads":
                title = f"{exhibit['model']} on {exhibit['corpus']}"
                drawn = {}
                if exhibit["offsets"]:
                    offsets = {k: {int(i): share for i, share in own.items()} for k, own in exhibit["offsets"].items()}
                    drawn["offsets of relations"] = offsets_figure(offsets, exhibit["corpus"])
                if exhibit["kinds"]:
                    drawn["kinds of heads"] = heads_figure(exhibit["kinds"], title)
                images = (
                    ImageFile(f"{what} {task}", f"{what}: {title}", "svg", svg_bytes(one))
                    for what, one in drawn.items()
                )
                yield ImageRow(f"{task}: {title}", tuple(images))


def svg_bytes(figure: Figure) -> bytes:
    file = io.BytesIO()
    put(figure, file, "svg")
    return file.getvalue()


def image_rows(results: Results) -> Iterator[ImageRow]:
    """One row per example: the methods side by side."""
    for task, example, found in _by_example(results, "image"):
        images = [
            ImageFile(
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
        yield ImageRow(f"{task}, example {example}{said}", tuple(images))
