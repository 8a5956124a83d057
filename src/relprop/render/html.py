"""Heat maps as HTML: one self-contained page, or a fragment for a notebook, light or dark as the reader has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from relprop.render import palette
from relprop.render.layout import ANSWER_NOTE, SCALE_NOTE, SEPARATOR, Cell, Row, stacked, strongest
from relprop.render.visible import visible
from relprop.types import Heatmap

LEVELS = 16  # steps of shade a side: finer than the eye, and thousands of tokens share a few rules
UNDERLINED = 0.2  # opposing tokens from this shade on are underlined; under every faint one it would be noise
NAMED = 3  # strongest units a side that the row's label names to those who cannot see the colours

CSS = """
.relprop{color-scheme:light dark;--ink:#1f2328;--soft:#5b636d;--line:#dfe3e8;--ground:#ffffff;
 --ink:light-dark(#1f2328,#e4e7eb);--soft:light-dark(#5b636d,#9aa4b0);--line:light-dark(#dfe3e8,#343a43);
 --ground:light-dark(#ffffff,#181a1f);
 max-width:64rem;box-sizing:border-box;padding:1rem 1.25rem;border-radius:.5rem;
 background:var(--ground);color:var(--ink);
 font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif;text-align:left;
 print-color-adjust:exact;-webkit-print-color-adjust:exact}
/* a notebook's own theme goes before that of the system */
[data-jp-theme-light="true"] .relprop,.vscode-light .relprop,[theme="light"] .relprop{color-scheme:light}
[data-jp-theme-light="false"] .relprop,.vscode-dark .relprop,[theme="dark"] .relprop{color-scheme:dark}
.relprop .subject{margin:0;padding:0 0 .5rem;overflow-wrap:anywhere}
.relprop .subject .target{font-weight:600}
.relprop .subject span+span{margin-left:1rem;color:var(--soft)}
.relprop .row{display:grid;grid-template-columns:11rem minmax(0,1fr);column-gap:1.25rem;padding:.55rem 0 .6rem;
 border-top:1px solid var(--line)}
.relprop .method{padding-top:.28rem;font-weight:600;font-size:.875rem;overflow-wrap:anywhere}
.relprop .tokens{line-height:1.95;overflow-wrap:anywhere}
.relprop .account{margin-top:.2rem;color:var(--soft);font-size:.8125rem;font-variant-numeric:tabular-nums;
 overflow-wrap:anywhere}
.relprop .account span+span::before{content:" · "}
.relprop .t{padding:.17em .16em;border-radius:.2em;-webkit-box-decoration-break:clone;box-decoration-break:clone}
.relprop .t+.join{margin-left:-.12em;padding-left:.05em;border-top-left-radius:0;border-bottom-left-radius:0}
.relprop .special{font-size:.8em}
.relprop .bar{margin:0 .35em;color:var(--soft)}
.relprop .minus{text-decoration:underline dotted;text-decoration-thickness:1px;text-underline-offset:.2em}
.relprop .answer{padding:.17em .1em;border-radius:.3em;box-shadow:0 0 0 1px var(--ink);
 -webkit-box-decoration-break:clone;box-decoration-break:clone}
.relprop .legend .answer{padding:0 .4em}
.relprop .legend{display:flex;flex-wrap:wrap;align-items:center;gap:.25rem .6rem;padding-top:.7rem;
 border-top:1px solid var(--line);color:var(--soft);font-size:.8125rem}
.relprop .scale{display:inline-flex;border:1px solid var(--line);border-radius:.2rem;overflow:hidden}
.relprop .scale i{width:1.1rem;height:.8rem}
.relprop .group+.group{margin-top:1.5rem}
@media (max-width:40rem){.relprop .row{grid-template-columns:minmax(0,1fr)}}
"""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body{{margin:0;padding:1rem;background:#fff;background:light-dark(#fff,#181a1f)}}
.relprop{{margin:0 auto}}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def html(heatmaps: Sequence[Heatmap], *, full_page: bool = True, title: str = "Relevance of the text") -> str:
    """A page that needs nothing from outside, or the fragment alone; methods about the same target lie in one stack."""
    groups = stacked(heatmaps)
    shown = "".join(_group(subject, members) for subject, members in groups)
    legend = _legend(any(row.answers for _, members in groups for row in members))
    body = f'<div class="relprop">\n<style>{CSS}{_shade_rules()}</style>\n{shown}{legend}</div>'
    return PAGE.format(title=escape(visible(title)), body=body) if full_page else body


def _group(subject: Sequence[str], members: Iterable[Row]) -> str:
    parts = _spans(subject).replace("<span>", '<span class="target">', 1)
    return f'<div class="group">\n<div class="subject">{parts}</div>\n{"".join(map(_row, members))}</div>\n'


def _row(row: Row) -> str:
    tokens = "".join(_run(list(cells), marked) for marked, cells in groupby(row.cells, key=lambda cell: cell.answer))
    return (
        f'<div class="row"><div class="method"><bdi>{escape(row.caption.method)}</bdi></div><div>\n'
        f'<div class="tokens" dir="auto" role="group" aria-label="{escape(_label(row))}">{tokens}</div>\n'
        f'<div class="account">{_spans(row.caption.account)}</div></div></div>\n'
    )


def _run(cells: Sequence[Cell], marked: bool) -> str:
    """Tokens in a row; those of the answer in one frame, which begins behind the space."""
    tokens = "".join(map(_token, cells))
    space = " " if marked and cells[0].space_before else ""
    return f'{space}<span class="answer">{tokens.removeprefix(space)}</span>' if marked else tokens


def _token(cell: Cell) -> str:
    space = " " if cell.space_before else ""
    if cell is SEPARATOR:
        return f'{space}<span class="bar" aria-hidden="true">{cell.text}</span>'
    return f'{space}<span class="{_classes(cell)}" title="{escape(cell.title)}">{escape(cell.text)}</span>'


def _classes(cell: Cell) -> str:
    names = {
        "t": True,
        _level(cell.shade): True,
        "minus": cell.shade <= -UNDERLINED,  # the sign is not told by colour alone
        "join": not cell.space_before,
        "special": cell.special,
    }
    return " ".join(name for name, holds in names.items() if name and holds)


def _level(shade: float) -> str:
    level = round(shade * LEVELS)
    return f"p{level}" if level > 0 else f"n{-level}" if level < 0 else ""


def _label(row: Row) -> str:
    """The row in words, for those who hear it."""
    sides = zip(("supported", "opposed"), strongest(row.cells, NAMED), strict=True)
    named = [f"{side} most by " + ", ".join(f"{c.text} ({c.title})" for c in found) for side, found in sides if found]
    return "; ".join([f"{row.caption.method}, {row.caption.target}", *named])


def _legend(answers: bool) -> str:
    swatches = "".join(f'<i class="{_level(shade)}"></i>' for shade in palette.legend())
    scale = f'<span class="scale" aria-hidden="true">{swatches}</span>'
    ends = f'<span class="minus">opposes</span>{scale}<span>supports</span>'
    answer = f'<span class="answer">{ANSWER_NOTE}</span>' if answers else ""
    return f'<div class="legend">{ends}<span>{SCALE_NOTE}</span>{answer}</div>\n'


def _shade_rules() -> str:
    """One rule a level with the colours of both themes; the first pair is for browsers without light-dark()."""
    shades = [level / LEVELS for level in range(-LEVELS, LEVELS + 1) if level]
    return "".join(f".relprop .{_level(shade)}{{{_paint(shade)}}}\n" for shade in shades)


def _paint(shade: float) -> str:
    light, dark = (palette.colour(shade, scale) for scale in (palette.LIGHT, palette.DARK))
    ground, night = palette.as_hex(light), palette.as_hex(dark)
    ink, chalk = palette.as_hex(palette.ink(light)), palette.as_hex(palette.ink(dark))
    return f"background:{ground};color:{ink};background:light-dark({ground},{night});color:light-dark({ink},{chalk})"


def _spans(parts: Iterable[str]) -> str:
    return "".join(f"<span><bdi>{escape(part)}</bdi></span>" for part in parts)
