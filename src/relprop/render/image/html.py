"""Heat maps over pictures as HTML: one self-contained page, or a fragment for a notebook, without any script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from relprop.render.grid import GridRow, films
from relprop.render.image.layout import caption, described, ends, grid, scale_note, shared_note, strip
from relprop.render.image.overlay import Bound, Contour, ImageMap, bounds, fitted, overlay
from relprop.render.page import IMAGES, PANELS, legend, method_name, missing_panel, page, png, spans, subject

LONGEST = 448  # pixels of a picture's longer side: twice what the page shows, for fine screens


def html(
    maps: Sequence[ImageMap],
    *,
    full_page: bool = True,
    title: str = "Relevance of the picture",
    contour: Contour = None,
    bound: Bound = None,
) -> str:
    """A page that needs nothing from outside, or the fragment: a row per picture and target, a panel per method."""
    table, limits = grid(maps), bounds(maps, bound)
    rows = "".join(_group(row, table.methods, limits, contour) for row in table.rows)
    legends = "".join(legend(strip(film, 128), *ends(film), scale_note(film, bound, limits)) for film in films(maps))
    return page(f"{rows}{legends}", PANELS, title, full_page=full_page, policy=IMAGES)


def _group(row: GridRow[ImageMap], methods: Sequence[str], limits: Mapping[str, float | None], contour: Contour) -> str:
    """The target and the prediction over the picture and its maps."""
    first = fitted(row.first, LONGEST)
    picture, words, shared = png(first.image), caption(first), shared_note(row)
    height, width = row.first.image.shape[:2]
    plain = f'<span class="frame"><img src="{picture}" alt="the picture, {width} × {height} pixels"></span>'
    panels = "".join(
        _panel(fitted(cell, LONGEST), contour, limits[cell.method], shared) if cell else missing_panel(method)
        for cell, method in zip(row.cells, methods, strict=True)
    )
    return (
        f'<figure class="group">\n<figcaption class="subject">{subject(words.subject)}</figcaption>\n'
        f'<div class="panels" style="--picture:url({picture})">\n'
        f"<figure>{plain}<figcaption><b>picture</b>{_account([shared])}</figcaption></figure>\n{panels}</div></figure>\n"
    )


def _account(lines: Sequence[str]) -> str:
    told = list(filter(None, lines))
    return f'<div class="account">{spans(told)}</div>' if told else ""


def _panel(cell: ImageMap, contour: Contour, bound: float | None, shared: str) -> str:
    words, pixels = caption(cell), overlay(cell, contour=contour, bound=bound)
    account = _account(words.scored if shared else words.account)
    image = f'<img class="map" src="{png(pixels)}" alt="{escape(described(cell))}">'
    toggle = '<input type="checkbox" aria-label="show the picture without the map">'
    return (
        f'<figure><label class="frame" title="point to see the picture, click to keep it">{toggle}{image}</label>'
        f"<figcaption>{method_name(words.method)}{account}</figcaption></figure>\n"
    )
