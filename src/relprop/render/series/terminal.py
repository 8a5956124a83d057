"""Series in the terminal: one line of bars per channel, on the colours of its scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from relprop.render.audio.terminal import BARS, RAMP, score_legend
from relprop.render.series.layout import Numbers, SeriesLine, SeriesMap, caption, drawn_lines, left_out
from relprop.render.text.terminal import shade_style
from relprop.render.visible import visible

WIDE, NAME = 96, 18  # characters of a line, and of a channel's name


def terminal(maps: Sequence[SeriesMap]) -> RenderableType:
    """Header, the channels on their scores, and what the scores account for, one map under the other."""
    return _SeriesTerminal(tuple(maps))


@dataclass(frozen=True)
class _SeriesTerminal:
    """Maps that wait for the console: only it knows how many colours there are."""

    maps: tuple[SeriesMap, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        colours = "none" if console.no_color else console.color_system or "none"
        width = max(8, min(WIDE, options.max_width - NAME - 3))
        for one in self.maps:
            words = caption(one)
            yield Text.assemble((words.method, "bold"), *(f"  {part}" for part in words.subject), overflow="fold")
            for line in drawn_lines(one):
                yield from _line(line, one, width, colours)
            account = [*words.account, *filter(None, [left_out(one)])]
            yield Text(" · ".join(account), style="dim", overflow="fold")
            yield Text()
        yield score_legend(colours)


def _line(line: SeriesLine, one: SeriesMap, width: int, colours: str) -> Iterator[Text]:
    columns = min(width, len(line.values))
    bars = [BARS[0] if np.isnan(v) else BARS[1 + round(v * (len(BARS) - 2))] for v in _binned(line.scaled, columns)]
    shades = (_binned(line.shares, columns) / one.bound).clip(-1, 1).tolist()
    name = f"{visible(line.name)[:NAME]:>{NAME}} "
    if colours != "none":
        pairs = zip(bars, shades, strict=True)
        yield Text.assemble(name, *((bar, shade_style(shade, colours)) for bar, shade in pairs))
        return
    yield Text(f"{name}{''.join(bars)}")
    signs = {"supports": 1, "opposes": -1} if one.words.signed else {"strength": 1}
    for word, sign in signs.items():
        yield Text(f"{word:>{NAME}} {''.join(RAMP[round(max(0.0, sign * s) * (len(RAMP) - 1))] for s in shades)}")


def _binned(numbers: Numbers, columns: int) -> Numbers:
    """The mean of the steps in each column."""
    edges = np.linspace(0, len(numbers), columns + 1).astype(int)
    return np.array([numbers[low : max(high, low + 1)].mean() for low, high in pairwise(edges)])
