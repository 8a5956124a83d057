"""Several figures as one, one under the other."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

from matplotlib.figure import Figure
from matplotlib.image import imread

from relprop.render.saving import DPI, put
from relprop.render.typesetting import PITCH, SMALL, SOFT, blank_figure, draw_run, lines, prose

MARGIN = 0.2


def stacked(figures: Sequence[Figure], notes: Sequence[str] = ()) -> Figure:
    """The figures as pictures of their own size under each other, aligned left, with lines of prose below."""
    pixels = []
    for figure in figures:
        stream = BytesIO()
        put(figure, stream, "png")
        stream.seek(0)
        pixels.append(imread(stream))
    sizes = [(one.shape[1] / DPI, one.shape[0] / DPI) for one in pixels]
    width = max(size[0] for size in sizes)
    height = sum(size[1] for size in sizes)
    runs = [
        run
        for i, note in enumerate(notes)
        for run in lines(prose(note, SMALL, SOFT), MARGIN, width - MARGIN, height + i * PITCH)
    ]
    whole = max([run.y for run in runs], default=height) + MARGIN
    both = blank_figure(width, whole)
    y = 0.0
    for one, (wide, tall) in zip(pixels, sizes, strict=True):
        axes = both.add_axes((0, (whole - y - tall) / whole, wide / width, tall / whole))
        axes.imshow(one, aspect="auto", interpolation="antialiased")
        axes.set_axis_off()
        y += tall
    for run in runs:
        draw_run(both, run, whole - run.y)
    return both
