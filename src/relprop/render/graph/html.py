"""Drawings of graphs as HTML: one self-contained page, or a fragment for a notebook, without any script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from relprop.render.graph.drawing import INK, GraphMap, drawn
from relprop.render.graph.layout import NOTE, caption, covered, described, grid, strip
from relprop.render.graph.shapes import Drawing
from relprop.render.grid import GridRow, films
from relprop.render.image.layout import ends
from relprop.render.page import IMAGES, PANELS, legend, method_name, missing_panel, page, spans, subject

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
    """A page that needs nothing from outside, or the fragment: a row per graph and target, a panel per method."""
    table = grid(maps)
    rows = "".join(_group(row, table.methods, covered(table)) for row in table.rows)
    legends = "".join(legend(strip(film, 128), *ends(film), NOTE) for film in films(maps))
    return page(f"{rows}{legends}", f"{PANELS}{CSS}", title, full_page=full_page, policy=IMAGES)


def _group(row: GridRow[GraphMap], methods: Sequence[str], hidden: bool) -> str:
    """The target, the prediction and the graph's title over its drawings."""
    words = caption(row.first)
    named = subject([*words.subject, words.note] if words.note else words.subject)
    wide = min(WIDEST, max(NARROWEST, LARGER * drawn(row.first).box[2]))
    plain = _panel(drawn(row.first.plain()), "the picture itself", "picture") if hidden else ""
    panels = "".join(
        _panel(drawn(cell), described(cell), method, *caption(cell).scored) if cell else missing_panel(method)
        for cell, method in zip(row.cells, methods, strict=True)
    )
    return (
        f'<figure class="group">\n<figcaption class="subject">{named}</figcaption>\n'
        f'<div class="panels graphs" style="--wide:{wide:.0f}px">\n{plain}{panels}</div></figure>\n'
    )


def _panel(drawing: Drawing, label: str, name: str, *account: str) -> str:
    below = f'<div class="account">{spans(account)}</div>' if account else ""
    return (
        f'<figure><span class="paper">{svg(drawing, label)}</span>'
        f"<figcaption>{method_name(name)}{below}</figcaption></figure>\n"
    )


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
