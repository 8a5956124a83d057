"""Series as a page: a line per channel, on the colours of its scores, without any script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from relprop.render.caption import number
from relprop.render.grid import RELATIVE
from relprop.render.image.layout import ends, strip
from relprop.render.page import IMAGES, legend, method_name, page, png, spans, subject
from relprop.render.palette import SIGNED, UNSIGNED
from relprop.render.series.figure import ground
from relprop.render.series.layout import SeriesLine, SeriesMap, caption, described, drawn_lines, left_out
from relprop.render.visible import visible

TALL = 40  # units of the drawing's height
CSS = """
.relprop .channel{display:grid;grid-template-columns:9rem minmax(0,1fr) 5rem;gap:.6rem;align-items:center;
 padding:.15rem 0;font-size:.8125rem}
.relprop .channel b{font-weight:500;text-align:right;overflow-wrap:anywhere}
.relprop .channel .range{color:var(--soft);font-variant-numeric:tabular-nums}
.relprop .plot{position:relative;height:2.8rem;border-radius:.25rem;overflow:hidden;box-shadow:0 0 0 1px var(--line)}
.relprop .plot img,.relprop .plot svg{position:absolute;inset:0;width:100%;height:100%;image-rendering:pixelated}
.relprop .plot path{fill:none;stroke:#1f2328;stroke-width:1.4;vector-effect:non-scaling-stroke}
.relprop .plot rect{fill:transparent}
.relprop .legend img{display:block;width:9rem;height:.8rem;border:1px solid var(--line);border-radius:.2rem}
"""


def html(maps: Sequence[SeriesMap], *, full_page: bool = True, title: str = "Relevance of the series") -> str:
    """A page that needs nothing from outside, or the fragment alone."""
    films = dict.fromkeys(SIGNED if one.words.signed else UNSIGNED for one in maps)
    legends = "".join(legend(strip(film, 128), *ends(film), f"{RELATIVE} drawing") for film in films)
    return page(f"{''.join(map(_map, maps))}{legends}", CSS, title, full_page=full_page, policy=IMAGES)


def _map(one: SeriesMap) -> str:
    words = caption(one)
    lines = "".join(_line(line, one) for line in drawn_lines(one))
    account = [words.total, *filter(None, (words.note, left_out(one)))]
    return (
        f'<div class="group">\n<div class="subject">{subject(words.subject)}</div>\n'
        f'<div class="method">{method_name(words.method)}</div>\n'
        f'<div role="group" aria-label="{escape(described(one))}">{lines}</div>\n'
        f'<div class="account">{spans(account)}</div></div>\n'
    )


def _line(line: SeriesLine, one: SeriesMap) -> str:
    steps, known = len(line.values), line.values[np.isfinite(line.values)]
    colours = np.rint(255 * ground(line, one)).astype(np.uint8)[None]
    between = f"{known.min():.3g} to {known.max():.3g}" if len(known) else "nothing observed"
    return (
        f'<div class="channel"><b><bdi>{escape(visible(line.name))}</bdi></b><div class="plot">'
        f'<img src="{png(colours)}" alt=""><svg viewBox="0 0 {steps} {TALL}" preserveAspectRatio="none">'
        f'<path d="{_path(line)}"/>{_tips(line)}</svg></div><span class="range">{between}</span></div>\n'
    )


def _path(line: SeriesLine) -> str:
    """A line from step to step, broken where nothing was observed; a single value is a dash."""
    commands, drawing = [], False
    for step, value in enumerate(line.scaled.tolist()):
        if np.isnan(value):
            drawing = False
            continue
        commands.append(f"{'L' if drawing else 'M'}{step + 0.5:g} {TALL - 3 - value * (TALL - 6):.1f}")
        drawing = True
    return "".join(commands) + ("h.4" if len(commands) == 1 else "")


def _tips(line: SeriesLine, most: int = 400) -> str:
    """What a pointer is told: the step, its value and its score; of very long series nothing."""
    if len(line.values) > most:
        return ""
    pairs = enumerate(zip(line.values.tolist(), line.shares.tolist(), strict=True))
    tips = ((k, f"step {k}: {value:.4g}, score {number(score)}") for k, (value, score) in pairs)
    return "".join(f'<rect x="{k}" y="0" width="1" height="{TALL}"><title>{tip}</title></rect>' for k, tip in tips)
