"""Drawings of graphs as HTML: one self-contained page, or a fragment for a notebook, without any script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from relprop.render import html as text
from relprop.render.drawing import INK, Drawing, GraphMap, drawn
from relprop.render.graph_layout import NOTE, Row, caption, described, films, grid, strip
from relprop.render.image_html import CSS as IMAGE_CSS
from relprop.render.image_html import PAGE, _data, _missing, _name
from relprop.render.image_layout import ends
from relprop.render.palette import Film
from relprop.render.visible import visible

LARGER = 1.35  # than its natural size, at most
READABLE = 0.45  # not smaller: a wide drawing can be moved in its panel
NARROWEST, WIDEST = 200, 900  # pixels of a panel

# Drawings lie on paper, white in a dark theme too. What lies above a node lets the pointer through to its score.
CSS = """
.relprop .graphs{grid-template-columns:repeat(auto-fill,minmax(min(100%,var(--wide)),1fr))}
.relprop .graphs>figure{max-width:none}
.relprop .paper{display:block;background:#fff;border-radius:.25rem;padding:.25rem;
 overflow-x:auto;box-shadow:0 0 0 1px var(--line)}
.relprop .paper svg{display:block;margin:0 auto;max-width:100%;height:auto}
.relprop .paper svg text,.relprop .paper svg path.ink{pointer-events:none}
"""


def html(maps: Sequence[GraphMap], *, full_page: bool = True, title: str = "Relevance of the graph") -> str:
    """A page that needs nothing from outside, or the fragment alone: a row a graph and target, a panel a method."""
    table = grid(maps)
    rows = "".join(_group(row, table.methods, table.covered) for row in table.rows)
    legends = "".join(_legend(film) for film in films(maps))
    body = f'<div class="relprop">\n<style>{text.CSS}{IMAGE_CSS}{CSS}</style>\n{rows}{legends}</div>'
    return PAGE.format(title=escape(visible(title)), body=body) if full_page else body


def _group(row: Row, methods: Sequence[str], covered: bool) -> str:
    """The target, the prediction and the graph's title over its drawings."""
    words = caption(row.first)
    subject = text._spans([*words.subject, words.note] if words.note else words.subject)
    subject = subject.replace("<span>", '<span class="target">', 1)
    wide = min(WIDEST, max(NARROWEST, LARGER * drawn(row.first).box[2]))
    plain = _panel(drawn(row.first.plain()), "the picture itself", "picture") if covered else ""
    panels = "".join(
        _panel(drawn(cell), described(cell), method, caption(cell).total) if cell else _missing(method)
        for cell, method in zip(row.cells, methods, strict=True)
    )
    return (
        f'<figure class="group">\n<figcaption class="subject">{subject}</figcaption>\n'
        f'<div class="panels graphs" style="--wide:{wide:.0f}px">\n{plain}{panels}</div></figure>\n'
    )


def _panel(drawing: Drawing, label: str, name: str, *account: str) -> str:
    below = f'<div class="account">{text._spans(account)}</div>' if account else ""
    return (
        f'<figure><span class="paper">{svg(drawing, label)}</span>'
        f"<figcaption>{_name(name)}{below}</figcaption></figure>\n"
    )


def _legend(film: Film) -> str:
    least, most = ends(film)
    bar = f'<img src="{_data(strip(film, 128))}" alt="">'
    return f'<div class="legend"><span>{least}</span>{bar}<span>{most}</span><span>{NOTE}</span></div>\n'


def svg(drawing: Drawing, label: str) -> str:
    """The drawing as inline SVG. Pointing at a node or a scored edge tells its score."""
    left, top, width, height = drawing.box
    shapes = "".join(
        f'<path d="{one.path}" fill="{one.fill}" stroke="{one.stroke}" stroke-width="{one.width:.2f}"'
        + (f"><title>{escape(one.title)}</title></path>" if one.title else ' class="ink"/>')
        for one in drawing.shapes
    )
    names = "".join(
        f'<text x="{one.x:.2f}" y="{one.y:.2f}" font-size="{one.size:.1f}" fill="{INK}" text-anchor="middle" '
        f'dominant-baseline="central">{escape(one.text)}</text>'
        for one in drawing.labels
    )
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{LARGER * width:.0f}" height="{LARGER * height:.0f}" '
        f'style="min-width:{READABLE * width:.0f}px" '
        f'viewBox="{left:.2f} {top:.2f} {width:.2f} {height:.2f}">{shapes}{names}</svg>'
    )
