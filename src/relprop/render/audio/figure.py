"""Sounds as a figure of matplotlib: the wave and the spectrogram on their scores, over seconds."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from relprop.render import saving
from relprop.render.audio.layout import AudioMap, caption, mel_ticks
from relprop.render.audio.painting import Pixels, film_of, spectrum_pixels, wave_pixels
from relprop.render.grid import RELATIVE
from relprop.render.image.layout import ends, strip
from relprop.render.palette import Film
from relprop.render.typesetting import BOLD, INK, REGULAR, RULE, SOFT, drawable

WIDTH, LEFT, RIGHT = 9.0, 1.9, 0.55  # inches: of all, of the labels, of the frequencies
WAVE, SPECTRUM, GAP, AXIS, TOP = 0.55, 0.75, 0.42, 0.3, 0.15
MOST = 60  # maps: more are no picture
COLUMNS = 1200


def save(maps: Sequence[AudioMap], path: str | os.PathLike[str]) -> None:
    """Write a PNG, SVG or PDF by the name's suffix; the file appears whole or not at all."""
    path = saving.check(path)
    saving.write(draw(maps), path)


def draw(maps: Sequence[AudioMap]) -> Figure:
    """One map under the other: on the left what was explained, and by which method."""
    shown = list(maps)[:MOST]
    each = WAVE + SPECTRUM + GAP
    height = TOP + each * len(shown) + AXIS + 0.3
    figure = Figure(figsize=(WIDTH, height), facecolor="white")

    def place(y: float, tall: float) -> Axes:
        """Axes whose top is y inches from the top."""
        across = (WIDTH - LEFT - RIGHT) / WIDTH
        return figure.add_axes((LEFT / WIDTH, 1 - (y + tall) / height, across, tall / height))

    for row, one in enumerate(shown):
        y = TOP + row * each
        _wave(place(y, WAVE), one)
        _spectrum(place(y + WAVE, SPECTRUM), one)
        _label(figure, one, y, height)
    more = f"; {len(maps) - len(shown)} more are not shown" if len(maps) > len(shown) else ""
    colour_bar(figure, film_of(shown[0]), LEFT, more)
    return figure


def _wave(axes: Axes, one: AudioMap) -> None:
    _image(axes, wave_pixels(one, COLUMNS, 240), one)
    axes.set(xticks=[], yticks=[])
    first, last = one.strongest
    axes.plot([first, last], [0.97, 0.97], color=INK, linewidth=2.2, solid_capstyle="butt")


def _spectrum(axes: Axes, one: AudioMap) -> None:
    _image(axes, spectrum_pixels(one, COLUMNS, 256), one)
    axes.yaxis.tick_right()
    axes.set_yticks([place for place, _ in mel_ticks(one.rate)], [name for _, name in mel_ticks(one.rate)])
    axes.tick_params(labelsize=7, colors=SOFT, length=2, pad=2)
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds:g} s")


def _image(axes: Axes, pixels: Pixels, one: AudioMap) -> None:
    axes.imshow(pixels, extent=(0, one.duration, 0, 1), aspect="auto", interpolation="nearest")
    axes.spines[:].set(color=RULE, linewidth=0.5)


def _label(figure: Figure, one: AudioMap, y: float, height: float) -> None:
    words = caption(one)
    first, last = one.strongest
    lines = [
        (words.target, BOLD, 9, INK, 2),
        (words.method, REGULAR, 8, INK, 2),
        (words.prediction, REGULAR, 7.5, SOFT, 3),  # the model's name stands before the probability
        (f"strongest {first:.2f}-{last:.2f} s", REGULAR, 7.5, SOFT, 1),
        (words.note, REGULAR, 7, SOFT, 2),
    ]
    for text, font, size, colour, most in lines:
        for line in _broken(drawable(text, font), round(200 / size), most) if text else ():
            y += 0.16
            style = FontProperties(fname=str(font), size=size)
            figure.text(0.15 / WIDTH, 1 - y / height, line, fontproperties=style, color=colour, parse_math=False)


def _broken(text: str, width: int, most: int) -> list[str]:
    """Lines of so many characters, broken between words; what is left over is an ellipsis."""
    lines = textwrap.wrap(text, width)
    return lines if len(lines) <= most else [*lines[: most - 1], f"{lines[most - 1][: width - 1]}…"]


def colour_bar(figure: Figure, film: Film, left: float, more: str = "") -> None:
    """A colour bar at the foot of a figure, with its ends in words."""
    width, height = figure.get_size_inches()
    low = 0.12 / height
    axes = figure.add_axes((left / width, low, 1.2 / width, 0.12 / height))
    axes.imshow(strip(film, 240), aspect="auto")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color=RULE, linewidth=0.4)
    least, most = ends(film)
    font = FontProperties(fname=str(REGULAR), size=7.5)
    figure.text((left - 0.05) / width, low, least, ha="right", fontproperties=font, color=SOFT)
    figure.text((left + 1.25) / width, low, f"{most}   {RELATIVE} map{more}", fontproperties=font, color=SOFT)
