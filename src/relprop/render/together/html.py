"""A picture and a text as a page, in the same colours: pointing at a written token colours the patches and words that
it is made of, pointing at a patch or a word the tokens that it makes. Without a script it shows the sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from relprop.errors import InputError
from relprop.render.generation import html as generation
from relprop.render.generation.layout import GenerationMap
from relprop.render.image.html import LONGEST
from relprop.render.image.overlay import Contour, fitted
from relprop.render.page import CSS as PAGE_CSS
from relprop.render.page import IMAGES, allowing, png, spans, subject, whole_page
from relprop.render.text import html as text
from relprop.render.text.layout import SEPARATOR, Cell, caption, cells, shades, title
from relprop.render.together.layout import TogetherMap, cell_boxes, told_sums
from relprop.types import Unit

CSS = """
.relprop.together .both{display:grid;grid-template-columns:minmax(12rem,22rem) minmax(0,1fr);gap:1.25rem;
 padding:.7rem 0;border-top:1px solid var(--line);align-items:start}
.relprop.together .generation{border-top:0;padding-top:0}
.relprop.together .pic{position:relative;border-radius:.25rem;overflow:hidden;box-shadow:0 0 0 1px var(--line)}
.relprop.together .pic img{display:block;width:100%;height:auto;filter:grayscale(1)}
.relprop.together .pic i{position:absolute;padding:0;border-radius:0;opacity:.68;box-sizing:border-box;cursor:default}
.relprop.together .pic i.minus{border:1px dotted currentColor}
.relprop.together .pic i.on,.relprop.together .t.at{outline:2px solid var(--ink);outline-offset:-1px}
.relprop.together .pic:hover i:not(.on){opacity:.4}
@media (max-width:40rem){.relprop.together .both{grid-template-columns:minmax(0,1fr)}}
"""
HINT = (
    "Point at an underlined token to see the patches and words that it is made of, or at a patch or a word to see the "
    "tokens that it makes; a click keeps a token, arrow keys go on, Escape lets go."
)
SCRIPTS = (generation.script(HINT),)  # that may run in a page


def html(
    maps: Sequence[TogetherMap],
    *,
    full_page: bool = True,
    title: str = "Relevance of a picture and a text",
    contour: Contour = None,
) -> str:
    """A page that needs nothing from outside, or the fragments alone."""
    if contour is not None:
        raise InputError("a page shows a picture with its text patch by patch: save a figure to see a contour")
    (script,) = SCRIPTS
    body = "\n".join(_fragment(one, script) for one in maps)
    if not full_page:
        return body
    return whole_page(body, title, IMAGES + allowing(*SCRIPTS))


def _fragment(one: TogetherMap, script: str) -> str:
    words = caption(one.text)
    told = spans([words.method, *told_sums(one), words.note] if words.note else [words.method, *told_sums(one)])
    live = (
        ""
        if one.generation is None
        else f'<div class="detail" role="status"></div>\n<script type="application/json">'
        f"{generation.data(_joined(one, one.generation))}</script>\n<script>{script}</script>"
    )
    return (
        f'<div class="relprop together{" continuation" if one.generation else ""}">\n'
        f"<style>{PAGE_CSS}{generation.CSS}{text.shade_rules()}{CSS}</style>\n"
        f'<div class="subject">{subject(words.subject)}{told}</div>\n'
        f'<div class="both"><div class="pic">{_picture(one)}</div>\n'
        f'<div class="generation" dir="auto">{"".join(_tokens(one))}</div></div>\n{live}'
        f"{text.legend(False, (one.text.signed,))}</div>"
    )


def _shades(one: TogetherMap) -> tuple[list[float], list[float]]:
    """Of patches and of words, both by the strongest of all: they are shares of the same number."""
    both = shades([*one.grid.ravel().tolist(), *one.text.scores])
    return both[: one.grid.size], both[one.grid.size :]


def _picture(one: TogetherMap) -> str:
    small = fitted(one.picture, LONGEST)
    height, width = one.picture.image.shape[:2]
    patches = []
    columns = one.grid.shape[1]
    for i, (box, shade, score) in enumerate(
        zip(cell_boxes(one), _shades(one)[0], one.grid.ravel().tolist(), strict=True)
    ):
        signed = one.text.signed
        cell = Cell("", score, shade, False, False, title(score, signed), signed=signed)
        name = f"patch {i // columns + 1}, {i % columns + 1}"
        place = "left:{:.3f}%;top:{:.3f}%;width:{:.3f}%;height:{:.3f}%".format(*box)
        names = text.classes(cell).replace(" join", "")
        patches.append(f'<i class="{names}" style="{place}" data-name="{name}" title="{cell.title}"></i>')
    return f'<img src="{png(small.image)}" alt="the picture, {width} × {height} pixels">{"".join(patches)}'


def _tokens(one: TogetherMap) -> Iterator[str]:
    """In reading order; written tokens can be pointed at."""
    given = len(one.text.units) if one.generation is None else one.generation.given
    levels = iter(_shades(one)[1])
    numbers = iter(range(len(one.text.units)))
    for cell in cells(one.text):
        if cell is SEPARATOR:
            yield text.token_html(cell)
            continue
        shaded = text.token_html(replace(cell, shade=next(levels)))
        written = '<span class="t g' if next(numbers) >= given else '<span class="t'
        yield shaded.replace('<span class="t', written, 1)


def _joined(one: TogetherMap, written: GenerationMap) -> GenerationMap:
    """The map of all units, the patches before the words."""
    count = one.grid.size
    patches = tuple(Unit("") for _ in range(count))
    scores = tuple(
        (*np.asarray(grid).ravel().tolist(), *row) for grid, row in zip(one.grids, written.scores, strict=True)
    )
    return replace(written, units=(*patches, *written.units), given=written.given + count, scores=scores)
