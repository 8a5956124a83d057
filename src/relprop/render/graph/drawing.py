"""Graphs as drawings: shapes in SVG's own words, coloured by the scores, for a page or a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from relprop.graph.graph import Graph
from relprop.render.caption import number
from relprop.render.graph.molecule import molecule
from relprop.render.graph.node_positions import Places, placed, reach
from relprop.render.graph.shapes import Drawing, Label, Shape
from relprop.render.image.overlay import Numbers, painted
from relprop.render.palette import DARK_AMOUNT, SIGNED, Film, as_hex
from relprop.render.visible import visible
from relprop.types import Shares

# On paper: scores of one sign in the hue of texts, which stands for neither side; its lighter one, for black names.
PAPER = Film(SIGNED.greys, supports=(DARK_AMOUNT.supports,), opposes=(DARK_AMOUNT.opposes,))
UNDER, BARE = 190, 40  # the grey of a bright region: under colours, which stay clear, and by itself
OPACITY = 0.72  # of the strongest scores: black names and bonds on them keep a contrast above 4.5
INK, FAINT = "#1f2328", "#8b939d"
SIDE = 150.0  # the longer side of a picture of regions
MARGIN = 8.0
LINE = 1.2
THINNEST = 1.2  # a band of less is left out
BROADEST = 1.0  # a band at the strongest score, over the discs' radius
LETTER = 0.62  # a letter's usual width over its size
SIZES = 4.5, 10.0  # of names: one that needs less is left out


@dataclass(frozen=True, eq=False)
class GraphMap:
    """What the graph renderers draw: a graph, the scores of its nodes and perhaps edges, and the words around it."""

    graph: Graph
    scores: Numbers  # [nodes]
    method: str
    target: str
    value: float
    prediction: str = ""  # for instance "inhibitor (0.98)"
    rest: float = 0.0  # the virtual node's score, which lies nowhere
    signed: bool = True  # False for scores that only say how much, not for or against
    edges: Numbers | None = None  # [edges]
    beside: Shares | None = None  # what the value is made of beside the scores; None: no sum is claimed
    quantity: str = ""  # what the value is: "logit"

    def __post_init__(self) -> None:
        for name, scores, count in (
            ("nodes", self.scores, len(self.graph)), ("edges", self.edges, len(self.graph.edges))
        ):  # fmt: skip
            if scores is not None and (scores.shape != (count,) or not np.isfinite(scores).all()):
                raise ValueError(f'"{self.method}" needs one finite score for each of the graph\'s {count} {name}')

    @property
    def total(self) -> float:
        """The sum of the nodes' scores and the virtual node's."""
        return float(self.scores.sum()) + self.rest

    @property
    def film(self) -> Film:
        return SIGNED if self.signed else PAPER

    @property
    def is_mosaic(self) -> bool:
        """Was the graph made of a picture's regions, one per node?"""
        regions = self.graph.source
        return isinstance(regions, np.ndarray) and regions.ndim == 2 and int(regions.max()) + 1 == len(self.graph)

    def plain(self) -> GraphMap:
        """The same without any score: the graph itself."""
        return replace(self, scores=np.zeros(len(self.graph)), edges=None)


def drawn(one: GraphMap) -> Drawing:
    """Superpixels as a picture, molecules as a chemist would, others as nodes and links."""
    if one.is_mosaic:
        return _mosaic(one)
    if isinstance(one.graph.source, str):
        found = molecule(one.graph.source, one.graph.edges, len(one.graph))
        if found is not None:
            ink, places, corners = found
            return _drawing([*_bands(one, places), *_discs(one, places, "none"), *ink], places, corners)
    return _node_link(one)


def _node_link(one: GraphMap) -> Drawing:
    places = placed(one.graph)
    lines = path(*(word for a, b in one.graph.edges for word in ("M", *places[a], "L", *places[b])))
    links = [Shape(lines, stroke=FAINT, width=LINE)] if lines else []
    shapes = [*_bands(one, places), *links, *_discs(one, places, INK)]
    return _drawing(shapes, places, places, _names(one.graph.names, places))


def _names(names: Sequence[str], places: Places) -> Iterable[Label]:
    """The names that fit in their discs."""
    (least, most), room = SIZES, 1.8 * reach(places)
    for name, (x, y) in zip(map(visible, names), places, strict=True):
        size = min(most, room / (LETTER * len(name)))
        if size >= least:
            yield Label(name, float(x), float(y), size)


def _discs(one: GraphMap, places: Places, outline: str) -> list[Shape]:
    radius = reach(places)
    colours = _colours(shades(one.scores, one.signed), one.film)
    return [
        Shape(circle(x, y, radius), fill, outline, LINE, title)
        for (x, y), fill, title in zip(places, colours, _titles(one), strict=True)
    ]


def _bands(one: GraphMap, places: Places) -> list[Shape]:
    """A broad line for each scored edge: colour and breadth tell how much, and the strongest lie on top."""
    if one.edges is None:
        return []
    strengths, names = shades(one.edges, one.signed), [visible(name) for name in one.graph.names]
    colours, widths = _colours(strengths, one.film), BROADEST * reach(places) * np.abs(strengths)
    found = []
    for i in np.argsort(widths, kind="stable"):
        a, b = one.graph.edges[i]
        title = f"{names[a]} – {names[b]}: {number(float(one.edges[i]))}"
        found.append(Shape(path("M", *places[a], "L", *places[b]), "none", colours[i], float(widths[i]), title))
    return [one for one in found if one.width >= THINNEST]


def _mosaic(one: GraphMap) -> Drawing:
    """The picture's regions, dark on light as on paper, a hairline between them, and bands from centre to centre."""
    regions = one.graph.source
    every = -(-max(regions.shape) // 256)  # of a large picture's pixels, one in so many
    scale = SIDE / max(regions.shape)
    bright = np.clip(one.graph.nodes[:, 0].astype(np.float64), 0, 1)
    film = replace(one.film, greys=(UNDER if one.scores.any() else BARE, 255))
    colours = _colours(shades(one.scores, one.signed), film, 255 * (1 - bright))
    runs = _runs(regions[::every, ::every], scale * every, len(one.graph))
    shapes = [
        Shape(run, colour, colour, 0.4, title)  # the stroke closes the seams between neighbours
        for run, colour, title in zip(runs, colours, _titles(one), strict=True)
        if run
    ]
    high, wide = (side * scale for side in regions.shape)
    frame = Shape(path(*_box(0, 0, wide, high)), stroke=FAINT, width=LINE / 2)
    borders = Shape(_borders(regions[::every, ::every], scale * every), stroke="#ffffff", width=LINE / 2)
    bands = [] if one.graph.places is None else _bands(one, (one.graph.places + 0.5) * scale)
    cased = [part for band in bands for part in (replace(band, stroke=INK, width=band.width + LINE), band)]
    return Drawing((*shapes, borders, *cased, frame), (), (-LINE, -LINE, wide + 2 * LINE, high + 2 * LINE))


def _runs(regions: NDArray[np.int64], pixel: float, count: int) -> list[str]:
    """Each region's path: a box for every run of its pixels in a row."""
    words: list[list[str | float]] = [[] for _ in range(count)]
    for y, row in enumerate(regions):
        ends = [0, *(np.flatnonzero(row[1:] != row[:-1]) + 1), len(row)]
        for left, right in pairwise(ends):
            words[row[left]] += _box(left * pixel, y * pixel, right * pixel, (y + 1) * pixel)
    return [path(*each) for each in words]


def _box(left: float, top: float, right: float, low: float) -> tuple[str | float, ...]:
    return ("M", left, top, "L", right, top, "L", right, low, "L", left, low, "Z")


def _borders(regions: NDArray[np.int64], pixel: float) -> str:
    """The sides of pixels where one region ends and another begins."""
    down, across = np.nonzero(regions[1:] != regions[:-1]), np.nonzero(regions[:, 1:] != regions[:, :-1])
    sides = [(x, y + 1, x + 1, y + 1) for y, x in zip(*down, strict=True)]
    sides += [(x + 1, y, x + 1, y + 1) for y, x in zip(*across, strict=True)]
    return path(*(word for a, b, c, d in sides for word in ("M", a * pixel, b * pixel, "L", c * pixel, d * pixel)))


def shades(scores: Numbers, signed: bool) -> Numbers:
    """Scores over the strongest of them; what has no sign is never below 0."""
    strongest = float(np.abs(scores).max(initial=0.0))
    shaded = scores / strongest if strongest else np.zeros(len(scores))
    return shaded if signed else np.maximum(shaded, 0)


def _colours(shaded: Numbers, film: Film, greys: Numbers | None = None) -> list[str]:
    """Each shade over its grey, or over white."""
    ground = np.full(len(shaded), 255) if greys is None else greys
    return [as_hex((int(r), int(g), int(b))) for r, g, b in painted(ground.astype(np.uint8), shaded, film, OPACITY)]


def _titles(one: GraphMap) -> list[str]:
    pairs = zip(one.graph.names, one.scores, strict=True)
    return [f"{visible(name)}: {number(float(score))}" for name, score in pairs]


def _drawing(shapes: Sequence[Shape], places: Places, corners: Places, labels: Iterable[Label] = ()) -> Drawing:
    """With room for the discs, for what else lies between the corners, and around them."""
    low = np.minimum(places.min(0) - reach(places), corners.min(0))
    high = np.maximum(places.max(0) + reach(places), corners.max(0))
    left, top, width, height = (float(end) for end in (*(low - MARGIN), *(high - low + 2 * MARGIN)))
    return Drawing(tuple(shapes), tuple(labels), (left, top, width, height))


def circle(x: float, y: float, radius: float) -> str:
    """Four curves that are round to the eye."""
    k = 0.5523 * radius
    left, right, top, low = x - radius, x + radius, y - radius, y + radius
    return path(
        "M", left, y, "C", left, y - k, x - k, top, x, top, "C", x + k, top, right, y - k, right, y,
        "C", right, y + k, x + k, low, x, low, "C", x - k, low, left, y + k, left, y, "Z",
    )  # fmt: skip


def path(*words: str | float) -> str:
    return " ".join(word if isinstance(word, str) else f"{word:.2f}" for word in words)
