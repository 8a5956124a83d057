"""Sounds in the terminal: loudness as bars on the colour of their scores, over a line of seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from relprop.render import palette
from relprop.render.audio.layout import AudioMap, Numbers, caption, envelope, shades
from relprop.render.text.terminal import FEW, shade_style

WIDE = 96  # characters
BARS = " ▁▂▃▄▅▆▇█"
RAMP = " .:-=+*#%@"
NOTE = "relative to the strongest score of each"


def terminal(maps: Sequence[AudioMap]) -> RenderableType:
    """Header, the sound on its scores, seconds and what the scores account for, one map under the other."""
    return _AudioTerminal(tuple(maps))


@dataclass(frozen=True)
class _AudioTerminal:
    """Maps that wait for the console: only it knows how many colours there are."""

    maps: tuple[AudioMap, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        colours = "none" if console.no_color else console.color_system or "none"
        width = max(10, min(WIDE, options.max_width - (11 if colours == "none" else 1)))
        for one in self.maps:
            words = caption(one)
            yield Text.assemble((words.method, "bold"), *(f"  {part}" for part in words.subject), overflow="fold")
            yield from _plain(one, width) if colours == "none" else [_coloured(one, width, colours)]
            yield Text(seconds_line(one.duration, width), style="dim")
            yield Text(" · ".join(words.account), style="dim", overflow="fold")
            yield Text()
        yield score_legend(colours)


def _loudness(one: AudioMap, width: int) -> list[str]:
    low, high = envelope(one, width).T
    return [BARS[round(loud * (len(BARS) - 1))] for loud in np.maximum(high, -low).clip(0, 1).tolist()]


def _coloured(one: AudioMap, width: int, colours: str) -> Text:
    pairs = zip(_loudness(one, width), shades(one, width).tolist(), strict=True)
    return Text.assemble(*((bar, shade_style(shade, colours)) for bar, shade in pairs))


def _plain(one: AudioMap, width: int) -> Iterator[RenderableType]:
    yield Text(f"{''.join(_loudness(one, width))}  sound")
    strengths = shades(one, width)
    yield Text(f"{_ramp(strengths)}  supports")
    if one.words.signed:
        yield Text(f"{_ramp(-strengths)}  opposes")


def _ramp(strengths: Numbers) -> str:
    return "".join(RAMP[round(max(0.0, one) * (len(RAMP) - 1))] for one in strengths.tolist())


def seconds_line(duration: float, width: int) -> str:
    """Seconds at the left edge of their place, as many as have room."""
    line = [" "] * width
    step = next((one for one in (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60) if one / duration * width >= 8), duration)
    for k in range(int(duration / step) + 1):
        place, label = int(k * step / duration * width), f"{k * step:g} s"
        if place + len(label) <= width:
            line[place : place + len(label)] = label
    return "".join(line)


def score_legend(colours: str) -> Text:
    """What the colours or characters mean."""
    if colours == "none":
        return Text(f'"{RAMP}"  {NOTE}', style="dim")
    swatch = "••" if colours in FEW else "  "
    swatches = [(swatch, shade_style(shade, colours)) for shade in palette.legend()]
    return Text.assemble("opposes ", *swatches, " supports", (f"  {NOTE}", "dim"))
