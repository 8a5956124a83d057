"""A picture and a text as a figure of matplotlib: the picture's panel over the words, or over the matrix of tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence

from matplotlib.figure import Figure

from relprop.render import saving
from relprop.render.generation import figure as generation
from relprop.render.image import figure as picture
from relprop.render.image.overlay import Contour
from relprop.render.stacking import stacked
from relprop.render.text import figure as text
from relprop.render.together.layout import TogetherMap, told_sums


def save(maps: Sequence[TogetherMap], path: str | os.PathLike[str], *, contour: Contour = None) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(maps, contour=contour), path)


def draw(maps: Sequence[TogetherMap], *, contour: Contour = None) -> Figure:
    """The pictures of all methods side by side, then the texts, then the sum of each part."""
    figures = [picture.draw([one.picture for one in maps], contour=contour)]
    written = [one.generation for one in maps if one.generation is not None]
    figures += [generation.draw(one) for one in written] or [text.draw([one.text for one in maps])]
    notes = [f"{one.picture.method}: {' · '.join(told_sums(one))}" for one in maps]
    return stacked(figures, notes)
