"""Heat maps over pictures in the terminal: coarse, two pixels a character; without colours, shaded characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich import box
from rich.color import Color
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.style import Style
from rich.text import Text

from relprop.render.grid import RELATIVE, films
from relprop.render.image.layout import caption, ends, grid, scale
from relprop.render.image.overlay import ImageMap, Numbers, Pixels, enlarged, grey, painted, resized, shades
from relprop.render.palette import SIGNED, UNSIGNED, Film

WIDE, TALL = 64, 28  # characters and lines that a picture takes at most
MANY = ("truecolor", "256")  # with fewer colours no picture can be told
RAMP = " .:-=+*#%@"
PATCHES = 16  # a side, where characters stand in for colours; each is two wide, to be square
BAR = 16  # characters of the legend's colours
# Among 256 colours, supporting and opposing.
STEPS = {SIGNED: ((217, 174, 167, 124), (153, 110, 68, 25)), UNSIGNED: ((89, 125, 202, 214, 228), ())}


def terminal(maps: Sequence[ImageMap], *, width: int = WIDE) -> RenderableType:
    """Header, picture under its map and the range of the scores, one map under the other; the legend closes."""
    rows = grid(maps).rows
    return _ImageTerminal(tuple(cell for row in rows for cell in row.cells if cell), width)


@dataclass(frozen=True)
class _ImageTerminal:
    """Maps that wait for the console: only it knows how many colours there are."""

    maps: tuple[ImageMap, ...]
    width: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        colours = "none" if console.no_color else console.color_system or "none"
        for one in self.maps:
            words, width = caption(one), min(self.width, options.max_width)
            yield Text.assemble((words.method, "bold"), *(f"  {part}" for part in words.subject), overflow="fold")
            yield from _pixels(one, width, colours) if colours in MANY else _shaded(one, width)
            yield Text(" · ".join(words.account), style="dim")
            yield Text()
        if colours in MANY:
            yield from (_legend(film, colours) for film in films(self.maps))
        else:
            yield Text(f'"{RAMP}"  {RELATIVE} map', style="dim")


def _pixels(one: ImageMap, widest: int, colours: str) -> Iterator[RenderableType]:
    """Upper half blocks: the ink is one pixel and the ground the one below, so pixels are square."""
    tall, wide = one.image.shape[:2]
    factor = min(widest / wide, 2 * TALL / tall)
    small = resized(one, max(1, round(wide * factor)), 2 * max(1, round(tall * factor / 2)))
    lines = _colours(grey(small.image), shades(small), one.film, colours)
    for upper, lower in zip(lines[::2], lines[1::2], strict=True):
        yield Text.assemble(*(("▀", Style.from_color(*pair)) for pair in zip(upper, lower, strict=True)))


def _colours(greys: Pixels, shaded: Numbers, film: Film, colours: str) -> list[list[Color]]:
    """The painted pixels; among 256 colours the nearest is often of another hue, so there the film gets steps."""
    if colours == "truecolor":
        return [[Color.from_rgb(*rgb) for rgb in row] for row in painted(greys, shaded, film).tolist()]
    plain = _colours(greys, np.zeros(greys.shape), film, "truecolor")
    return [
        [_step(shade, STEPS[film]) or ground for shade, ground in zip(*rows, strict=True)]
        for rows in zip(shaded.tolist(), plain, strict=True)
    ]


def _step(shade: float, ladders: tuple[tuple[int, ...], tuple[int, ...]]) -> Color | None:
    """A colour of the ladder, or none below its first step."""
    ladder = ladders[shade < 0]
    step = min(int(abs(shade) * (len(ladder) + 1)), len(ladder))
    return Color.from_ansi(ladder[step - 1]) if step else None


def _shaded(one: ImageMap, widest: int) -> Iterator[RenderableType]:
    """Supporting and opposing patches side by side, for characters have no sign."""
    parts = {"supports": one.scores, "opposes": -one.scores} if one.signed else {"strength": one.scores}
    tall, wide = one.image.shape[:2]
    columns = max(1, min(PATCHES, one.scores.shape[1], (widest - 2) // 2))
    lines = max(1, min(round(columns * tall / wide), TALL))
    strongest = np.abs(one.scores).max() or 1.0
    small = [enlarged(np.maximum(part / strongest, 0), columns, lines) for part in parts.values()]
    top = max(float(part.max()) for part in small) or 1.0  # several scores to a patch are averaged, so less than 1
    yield Columns([_framed(title, part / top) for title, part in zip(parts, small, strict=True)])


def _framed(title: str, strengths: Numbers) -> RenderableType:
    lines = ("".join(2 * RAMP[round(strength * (len(RAMP) - 1))] for strength in row) for row in strengths.tolist())
    return Group(Text(title), Panel(Text("\n".join(lines)), box.ASCII, padding=0, expand=False))


def _legend(film: Film, colours: str) -> Text:
    least, most = ends(film)
    swatches = [(" ", Style(bgcolor=colour)) for colour in _colours(*scale(film, BAR), film, colours)[0]]
    return Text.assemble(f"{least} ", *swatches, f" {most}", (f"  {RELATIVE} map", "dim"))
