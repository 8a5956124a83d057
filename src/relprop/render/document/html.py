"""A page with its words: boxes over the picture in the colours of the text beside it, without any script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from relprop.render.document.layout import THOUSANDTHS, BoxedWord, DocumentMap
from relprop.render.image import html as image_html
from relprop.render.page import CSS as PAGE_CSS
from relprop.render.page import IMAGES, PANELS, png, spans, subject, whole_page
from relprop.render.text import html as text
from relprop.render.text.layout import Cell, TextRow, caption, cells, chips, strength, title
from relprop.render.visible import visible

CSS = """
.relprop.document .both{display:grid;grid-template-columns:minmax(14rem,30rem) minmax(0,1fr);gap:1.25rem;
 padding:.7rem 0;border-top:1px solid var(--line);align-items:start}
.relprop.document .sheet{position:relative;border-radius:.25rem;overflow:hidden;box-shadow:0 0 0 1px var(--line)}
.relprop.document .sheet img{display:block;width:100%;height:auto;filter:grayscale(1)}
.relprop.document .sheet i{position:absolute;padding:0;border-radius:0;mix-blend-mode:multiply;box-sizing:border-box;
 color:transparent;cursor:default}
.relprop.document .sheet i.minus{border-bottom:2px dotted #2166ac}
.relprop.document .sheet i:hover{outline:2px solid #000}
@media (max-width:40rem){.relprop.document .both{grid-template-columns:minmax(0,1fr)}}
"""
NOTE = '<div class="account"><span>boxes are shaded relative to the strongest word of the page</span></div>'


def html(
    maps: Sequence[DocumentMap], *, full_page: bool = True, title: str = "Relevance of the words of a page"
) -> str:
    """A page that needs nothing from outside, or the fragments alone."""
    body = "\n".join(_fragment(one) for one in maps)
    pictures = [one.picture for one in maps if one.picture is not None]
    body += f"\n{image_html.html(pictures, full_page=False)}" if pictures else ""
    return whole_page(body, title, IMAGES) if full_page else body


def _fragment(one: DocumentMap) -> str:
    words, row = caption(one.text), TextRow(caption(one.text), cells(one.text), chips(one.text))
    tokens = "".join(map(text.token_html, row.drawn))
    return (
        f'<div class="relprop document">\n<style>{PAGE_CSS}{PANELS}{text.shade_rules()}{CSS}</style>\n'
        f'<div class="subject">{subject(words.subject)}</div>\n'
        f'<div class="both"><div><div class="sheet">{_sheet(one)}</div>{NOTE}</div>\n'
        f'<div><div class="method"><bdi>{escape(words.method)}</bdi></div>'
        f'<div class="tokens" dir="auto">{tokens}</div>\n'
        f'<div class="account">{spans(words.account)}</div></div></div>\n'
        f"{text.legend(row.answers, (one.text.signed,))}</div>"
    )


def _sheet(one: DocumentMap) -> str:
    height, width = one.page.image.shape[:2]
    boxes = "".join(_box(word, one) for word in one.words)
    return f'<img src="{png(one.page.image)}" alt="the page, {width} × {height} pixels">{boxes}'


def _box(word: BoxedWord, one: DocumentMap) -> str:
    """A word's box, shaded by the strongest word of the page."""
    signed, shade = one.text.signed, word.score / (one.bound or 1.0) * strength(one.text)
    said = f"{visible(word.text)}: {title(word.score, signed)}"
    names = text.classes(Cell("", word.score, shade, False, True, said, signed=signed))
    left, top, right, bottom = (edge / THOUSANDTHS * 100 for edge in word.box)
    place = f"left:{left:.2f}%;top:{top:.2f}%;width:{right - left:.2f}%;height:{bottom - top:.2f}%"
    return f'<i class="{names}" style="{place}" title="{escape(said)}"></i>'
