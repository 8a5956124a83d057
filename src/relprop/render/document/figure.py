"""A page as a figure of matplotlib: its boxes, the picture's own scores where it has some, and the words below."""

from __future__ import annotations

import os
from collections.abc import Sequence

from matplotlib.figure import Figure

from relprop.render import saving
from relprop.render.document.layout import DocumentMap
from relprop.render.image import figure as picture
from relprop.render.stacking import stacked
from relprop.render.text import figure as text


def save(maps: Sequence[DocumentMap], path: str | os.PathLike[str]) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(maps), path)


def draw(maps: Sequence[DocumentMap]) -> Figure:
    """The pages one under the other, each with its strongest word in full colour; then pictures, then the texts."""
    pages = [picture.draw([one.page], bound=one.bound) for one in maps]
    pictures = [one.picture for one in maps if one.picture is not None]
    own = [picture.draw(pictures)] if pictures else []
    return stacked([*pages, *own, text.draw([one.text for one in maps])])
