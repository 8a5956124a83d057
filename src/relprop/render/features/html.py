"""Features as a page: a table with a bar per column, without any script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from relprop.render import palette
from relprop.render.caption import number
from relprop.render.features.layout import FeatureBar, FeatureMap, bars, caption
from relprop.render.page import method_name, page, spans, subject

CSS = f"""
.relprop table{{border-collapse:collapse;width:100%;font-size:.875rem;margin:.4rem 0}}
.relprop th{{text-align:left;font-weight:600;color:var(--soft)}}
.relprop td,.relprop th{{padding:.12rem .6rem .12rem 0;border-top:1px solid var(--line);overflow-wrap:anywhere}}
.relprop .number{{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}}
.relprop .lane{{position:relative;height:1rem;min-width:10rem;border-left:0}}
.relprop .lane::before{{content:"";position:absolute;left:50%;top:0;bottom:0;border-left:1px solid var(--soft)}}
.relprop .lane i{{position:absolute;top:.1rem;bottom:.1rem;border-radius:.15rem}}
.relprop .lane .supports{{left:50%;background:{palette.as_hex(palette.LIGHT.supports)}}}
.relprop .lane .opposes{{right:50%;background:{palette.as_hex(palette.LIGHT.opposes)}}}
"""


def html(maps: Sequence[FeatureMap], *, full_page: bool = True, title: str = "Relevance of the columns") -> str:
    """A page that needs nothing from outside, or the fragment alone."""
    return page("".join(map(_table, maps)), CSS, title, full_page=full_page)


def _table(one: FeatureMap) -> str:
    words = caption(one)
    rows = "".join(map(_row, bars(one)))
    head = '<tr><th scope="col">column<th scope="col" class="number">value<th scope="col" class="number">score'
    return (
        f'<div class="group">\n<div class="subject">{subject(words.subject)}</div>\n'
        f'<div class="method">{method_name(words.method)}</div>\n<table><thead>{head}'
        f'<th scope="col">opposes | supports</thead><tbody>\n{rows}</tbody></table>\n'
        f'<div class="account">{spans(words.account)}</div></div>\n'
    )


def _row(bar: FeatureBar) -> str:
    side = "supports" if bar.score > 0 else "opposes"
    return (
        f'<tr><th scope="row"><bdi>{escape(bar.column)}</bdi><td class="number"><bdi>{escape(bar.value)}</bdi>'
        f'<td class="number">{number(bar.score)}<td><div class="lane"><i class="{side}" '
        f'style="width:{50 * abs(bar.shade):.2f}%"></i></div>\n'
    )
