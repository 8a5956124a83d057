"""Heat maps as HTML: one self-contained page, or a fragment for a notebook, light or dark as the reader has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from relprop.render import palette
from relprop.render.page import page, spans, subject
from relprop.render.text.layout import (
    ANSWER_NOTE,
    SCALE_NOTE,
    SEPARATOR,
    Cell,
    TextRow,
    ends,
    signs,
    stacked,
    strongest,
)
from relprop.types import Heatmap

LEVELS = 16  # steps of shade a side: finer than the eye, and thousands of tokens share a few rules
UNDERLINED = 0.2  # opposing tokens from this shade on are underlined; under every faint one it would be noise
NAMED = 3  # strongest units a side that the row's label names to those who cannot see the colours


def html(heatmaps: Sequence[Heatmap], *, full_page: bool = True, title: str = "Relevance of the text") -> str:
    """A page that needs nothing from outside, or the fragment alone; methods about the same target lie in one stack."""
    groups = stacked(heatmaps)
    shown = "".join(_group(parts, members) for parts, members in groups)
    rows = [row for _, members in groups for row in members]
    scale = legend(any(row.answers for row in rows), signs(rows))
    return page(f"{shown}{scale}", shade_rules(), title, full_page=full_page)


def _group(parts: Sequence[str], members: Iterable[TextRow]) -> str:
    return f'<div class="group">\n<div class="subject">{subject(parts)}</div>\n{"".join(map(_row, members))}</div>\n'


def _row(row: TextRow) -> str:
    tokens = "".join(_run(list(cells), marked) for marked, cells in groupby(row.drawn, key=lambda cell: cell.answer))
    return (
        f'<div class="row"><div class="method"><bdi>{escape(row.caption.method)}</bdi></div><div>\n'
        f'<div class="tokens" dir="auto" role="group" aria-label="{escape(_label(row))}">{tokens}</div>\n'
        f'<div class="account">{spans(row.caption.account)}</div></div></div>\n'
    )


def _run(cells: Sequence[Cell], marked: bool) -> str:
    """Tokens in a row; those of the answer in one frame, which begins behind the space."""
    tokens = "".join(map(token_html, cells))
    space = _space(cells[0]) if marked else ""
    return f'{space}<span class="answer">{tokens.removeprefix(space)}</span>' if marked else tokens


def _space(cell: Cell) -> str:
    """What parts a token from the one before: the end of a line, a blank, or nothing."""
    return "<br>" if cell.line_before else " " if cell.space_before else ""


def token_html(cell: Cell) -> str:
    space = _space(cell)
    if cell is SEPARATOR:
        return f'{space}<span class="bar" aria-hidden="true">{cell.text}</span>'
    apart = ' dir="ltr"' if cell.special else ""  # not moved by its neighbours' direction
    return f'{space}<span class="{classes(cell)}"{apart} title="{escape(cell.title)}">{escape(cell.text)}</span>'


def classes(cell: Cell) -> str:
    names = {
        "t": True,
        level(cell.shade, cell.signed): True,
        "minus": cell.signed and cell.shade <= -UNDERLINED,  # the sign is not told by colour alone
        "join": not cell.space_before,
        "special": cell.special,
        "beside": cell.beside,
    }
    return " ".join(name for name, holds in names.items() if name and holds)


def level(shade: float, signed: bool = True) -> str:
    level = round(shade * LEVELS)
    if not signed:
        return f"u{abs(level)}" if level else ""
    return f"p{level}" if level > 0 else f"n{-level}" if level < 0 else ""


def _label(row: TextRow) -> str:
    """The row in words, for those who hear it."""
    sides = zip(
        ("supported", "opposed") if row.signed else ("marked", "marked"), strongest(row.cells, NAMED), strict=True
    )
    named = [f"{side} most by " + ", ".join(f"{c.text} ({c.title})" for c in found) for side, found in sides if found]
    return "; ".join([f"{row.caption.method}, {row.caption.target}", *named])


def legend(answers: bool, kinds: Sequence[bool] = (True,)) -> str:
    """A colour scale per kind of scores, signed or not; `answers`: whether some are marked."""
    answer = f'<span class="answer">{ANSWER_NOTE}</span>' if answers else ""
    scales = "".join(f"{_scale(signed)}<span>{SCALE_NOTE if signed == kinds[-1] else ''}</span>" for signed in kinds)
    return f'<div class="legend">{scales}{answer}</div>\n'


def _scale(signed: bool) -> str:
    swatches = "".join(f'<i class="{level(shade, signed)}"></i>' for shade in palette.legend(signed=signed))
    least, most = ends(signed)
    minus = ' class="minus"' if signed else ""
    return f'<span{minus}>{least}</span><span class="scale" aria-hidden="true">{swatches}</span><span>{most}</span>'


def shade_rules() -> str:
    """One rule a level with the colours of both themes; the first pair is for browsers without light-dark()."""
    shades = [level / LEVELS for level in range(-LEVELS, LEVELS + 1) if level]
    rules = [f".relprop .{level(shade)}{{{_paint(shade)}}}\n" for shade in shades]
    rules += [f".relprop .{level(shade, False)}{{{_paint(shade, False)}}}\n" for shade in shades if shade > 0]
    return "".join(rules)


def _paint(shade: float, signed: bool = True) -> str:
    scales = (palette.LIGHT, palette.DARK) if signed else (palette.LIGHT_AMOUNT, palette.DARK_AMOUNT)
    light, dark = (palette.colour(shade, scale) for scale in scales)
    ground, night = palette.as_hex(light), palette.as_hex(dark)
    ink, chalk = palette.as_hex(palette.ink(light)), palette.as_hex(palette.ink(dark))
    return f"background:{ground};color:{ink};background:light-dark({ground},{night});color:light-dark({ink},{chalk})"
