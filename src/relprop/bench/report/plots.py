"""Small drawings in SVG: axes, lines, points. Ink is the reader's own colour, so that it suits any page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from relprop.bench.report.blocks import Key, Panel, Plot

WIDTH, HEIGHT = 340, 250
LEFT, RIGHT, TOP, BOTTOM = 56, 10, 24, 40
TITLE, SMALL = 12.5, 11
# Tol's vibrant scheme: told apart by colour-blind readers, and seen on white and on black.
COLOURS = ("#0077bb", "#ee7733", "#009988", "#cc3311", "#33bbee", "#ee3377")
DASHES = ("", "7 3", "2 2.5")
GREY = "#8a939e"
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','Liberation Sans',sans-serif"

Points = Sequence[tuple[float, float]]


def key(name: str, number: int) -> Key:
    """Its own colour and dash for every method."""
    return Key(name, COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)])


@dataclass(frozen=True)
class Frame:
    """Where numbers lie in a drawing."""

    x: tuple[float, float]
    y: tuple[float, float]

    @classmethod
    def around(cls, xs: Sequence[float], ys: Sequence[float]) -> Frame:
        return cls(_range(xs, 0.0), _range(ys, 0.06))

    def at(self, x: float, y: float) -> tuple[float, float]:
        right = LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - TOP - BOTTOM)
        return round(right, 2), round(down, 2)


def _range(values: Sequence[float], margin: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * margin or (0.0 if high > low else abs(high) * 0.1 or 1.0)
    return low - room, high + room


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two bounds."""
    size = 10 ** math.floor(math.log10((high - low) / count))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if (high - low) / (size * m) <= count)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _told(values: Sequence[float]) -> list[str]:
    """All with as many decimals as their distance asks for."""
    step = values[1] - values[0] if len(values) > 1 else abs(values[0]) or 1.0
    if max(map(abs, values)) >= 1e5 or step < 1e-4:
        return [f"{value:.1e}" if value else "0" for value in values]
    decimals = next(d for d in range(8) if abs(round(step, d) - step) < 1e-9 * step + 1e-12)
    return [f"{value + 0.0:.{decimals}f}" for value in values]


def axes(frame: Frame, title: str, x: str, y: str) -> str:
    """Title, faint lines at round numbers, and what the numbers are."""
    (left, bottom), (right, top) = frame.at(frame.x[0], frame.y[0]), frame.at(frame.x[1], frame.y[1])
    parts = [_text(title, LEFT, 14, TITLE, weight=600)]
    across = ticks(*frame.y)
    for value, told in zip(across, _told(across), strict=True):
        _, at = frame.at(frame.x[0], value)
        parts.append(f'<path d="M{left} {at}H{right}" stroke="currentColor" stroke-opacity=".13"/>')
        parts.append(_text(told, left - 6, at + 3.8, SMALL, anchor="end", opacity=0.75))
    along = ticks(*frame.x)
    for value, told in zip(along, _told(along), strict=True):
        at, _ = frame.at(value, frame.y[0])
        parts.append(f'<path d="M{at} {bottom}v4" stroke="currentColor" stroke-opacity=".4"/>')
        parts.append(_text(told, at, bottom + 16, SMALL, anchor="middle", opacity=0.75))
    parts.append(f'<path d="M{left} {bottom}H{right}" stroke="currentColor" stroke-opacity=".4"/>')
    parts.append(_text(x, (left + right) / 2, HEIGHT - 6, SMALL, anchor="middle", opacity=0.75))
    middle = round((top + bottom) / 2, 1)
    upright = f'transform="rotate(-90 11 {middle})"'
    parts.append(_text(y, 11, middle, SMALL, anchor="middle", opacity=0.75, more=upright))
    return "".join(parts)


def line(frame: Frame, points: Points, one: Key, width: float = 1.8) -> str:
    """Through the points that are numbers."""
    known = [frame.at(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if not known:
        return ""
    path = "L".join(f"{x} {y}" for x, y in known)
    dash = f' stroke-dasharray="{one.dash}"' if one.dash else ""
    return (
        f'<path d="M{path}" fill="none" stroke="{one.colour}" stroke-width="{width}" stroke-linejoin="round"{dash}>'
        f"<title>{escape(one.name)}</title></path>"
    )


def dots(frame: Frame, points: Points, one: Key, radius: float = 2.6, opacity: float = 1.0) -> str:
    known = [frame.at(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    circles = "".join(f'<circle cx="{x}" cy="{y}" r="{radius}"/>' for x, y in known)
    return f'<g fill="{one.colour}" fill-opacity="{opacity}">{circles}</g>'


def bars(frame: Frame, intervals: Sequence[tuple[float, float, float]], one: Key) -> str:
    """Uncertainty: from low to high at x."""
    ends = [(frame.at(x, low), frame.at(x, high)) for x, low, high in intervals]
    path = "".join(f"M{x} {y}V{top}" for (x, y), (_, top) in ends)
    return f'<path d="{path}" stroke="{one.colour}" stroke-opacity=".55"/>'


def _text(
    text: str, x: float, y: float, size: float, *, anchor: str = "start", opacity: float = 1.0, weight: int = 400,
    more: str = "",
) -> str:  # fmt: skip
    return (
        f'<text x="{round(x, 1)}" y="{round(y, 1)}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="currentColor" fill-opacity="{opacity}" {more}>{escape(text)}</text>'
    )


def inline(panel: Panel) -> str:
    """For a page: it grows and shrinks with its place."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(panel.alt)}" '
        f'font-family="{FONT}">{panel.drawing}</svg>'
    )


def sheet(plot: Plot, columns: int = 3) -> str:
    """A file of its own: the legend, then all panels, on white."""
    across = min(columns, len(plot.panels))
    width = max(across, 2) * WIDTH
    legend, below = _legend(plot.legend, width)
    height = below + -(-len(plot.panels) // across) * HEIGHT
    panels = "".join(
        f'<svg x="{i % across * WIDTH}" y="{below + i // across * HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
        f"{panel.drawing}</svg>"
        for i, panel in enumerate(plot.panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="{FONT}" color="#1f2328"><title>{escape(plot.caption)}</title>'
        f'<rect width="100%" height="100%" fill="#fff"/>{legend}{panels}</svg>\n'
    )


def swatch(one: Key) -> str:
    """The sample of a legend, 26 wide and 10 high."""
    if one.dots:
        return f'<circle cx="13" cy="5" r="3" fill="{one.colour}"/>'
    dash = f' stroke-dasharray="{one.dash}"' if one.dash else ""
    return f'<path d="M0 5H26" stroke="{one.colour}" stroke-width="2.2"{dash}/>'


def _legend(entries: Sequence[Key], width: int) -> tuple[str, int]:
    """Entries in rows, and how far down they reach."""
    parts, x, y = [], LEFT, 12
    for one in entries:
        room = 38 + round(7.2 * len(one.name)) + 12
        if x + room > width and x > LEFT:
            x, y = LEFT, y + 18
        sample = f'<svg x="{x}" y="{y - 5}" width="26" height="10">{swatch(one)}</svg>'
        parts.append(sample + _text(one.name, x + 32, y + 4, 12))
        x += room
    return "".join(parts), y + 18 if entries else 0
