"""Pairs as a page: a matrix, the first text down and the second across."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from relprop.render.page import page, spans, subject
from relprop.render.pairs.layout import SCALE, PairMap
from relprop.render.text import html as text
from relprop.render.text.layout import SCALE_NOTE, title

CSS = """
.relprop .matrix{overflow-x:auto;padding:.55rem 0 .6rem;border-top:1px solid var(--line)}
.relprop .matrix table{border-collapse:collapse;font-size:.875rem}
.relprop .matrix th{font-weight:400;padding:.15rem .4rem;white-space:nowrap}
.relprop .matrix thead th{vertical-align:bottom}
.relprop .matrix thead bdi{writing-mode:vertical-rl;transform:rotate(180deg)}
.relprop .matrix tbody th{text-align:right}
.relprop .matrix td{min-width:1.5rem;height:1.5rem;padding:0;border:1px solid var(--ground)}
.relprop .matrix .special{color:var(--soft)}
"""


def html(maps: Sequence[PairMap], *, full_page: bool = True, title: str = "Relevance of pairs") -> str:
    """A page that needs nothing from outside, or the fragment alone."""
    legend = text.legend(False).replace(SCALE_NOTE, SCALE)
    body = "".join(map(_group, maps)) + legend
    return page(body, CSS + text.shade_rules(), title, full_page=full_page)


def _group(one: PairMap) -> str:
    words = one.caption
    return (
        f'<div class="group">\n<div class="subject">{subject([words.target])}{spans([words.method])}</div>\n'
        f'<div class="matrix" dir="auto">{_table(one)}</div>\n<div class="account">{spans(words.account)}</div></div>\n'
    )


def _table(one: PairMap) -> str:
    first, second = one.labels()
    head = "".join(f'<th scope="col"{_special(cell.special)}><bdi>{escape(cell.text)}</bdi></th>' for cell in second)
    rows = "".join(
        f'<tr><th scope="row"{_special(cell.special)}><bdi>{escape(cell.text)}</bdi></th>{_cells(one, i)}</tr>\n'
        for i, cell in enumerate(first)
    )
    return f"<table><thead><tr><td></td>{head}</tr></thead><tbody>\n{rows}</tbody></table>"


def _cells(one: PairMap, row: int) -> str:
    """One row of scores; the numbers stand in the titles, and in words for those who hear them."""
    return "".join(
        f'<td class="{text.level(one.shade(row, column))}" title="{escape(title(score))}"></td>'
        for column, score in enumerate(one.scores[row])
    )


def _special(special: bool) -> str:
    return ' class="special"' if special else ""
