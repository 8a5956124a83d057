"""Heat maps over pictures as HTML: one self-contained page, or a fragment for a notebook, without any script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from io import BytesIO

from PIL import Image

from relprop.render import html as text
from relprop.render.image import Bound, Contour, ImageMap, Pixels, bounds, fitted, overlay
from relprop.render.image_layout import Row, caption, described, ends, films, grid, scale_note, strip
from relprop.render.palette import Film
from relprop.render.visible import visible

LONGEST = 448  # pixels of a picture's longer side: twice what the page shows, for fine screens

# The picture lies under its map once a row, as a background: pointing at a map lets it through, a click keeps it.
CSS = """
.relprop figure{margin:0}
.relprop .panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr));gap:1rem;
 padding:.7rem 0 .8rem;border-top:1px solid var(--line)}
.relprop .panels>figure{max-width:15rem}
.relprop .panels figcaption{padding-top:.3rem;overflow-wrap:anywhere;line-height:1.35}
.relprop .panels b{font-weight:600;font-size:.875rem}
.relprop .panels .account{margin:0}
.relprop .frame{display:block;position:relative;border-radius:.25rem;overflow:hidden;
 background-size:100% 100%;box-shadow:0 0 0 1px var(--line)}
.relprop .frame img{display:block;width:100%;height:auto;margin:0;max-width:none;transition:opacity .15s}
.relprop label.frame{cursor:pointer;background-image:var(--picture)}
.relprop .frame input{position:absolute;top:.4rem;right:.4rem;margin:0;opacity:0;cursor:pointer}
.relprop .frame:hover input,.relprop .frame input:focus-visible,.relprop .frame input:checked{opacity:1}
.relprop .frame:has(input:focus-visible){box-shadow:0 0 0 2px var(--ink)}
.relprop .frame:hover img.map,.relprop .frame input:checked~img.map{opacity:0}
.relprop .legend img{display:block;width:9rem;height:.8rem;border:1px solid var(--line);border-radius:.2rem}
.relprop .legend+.legend{padding-top:.25rem;border-top:0}
@media print{.relprop .frame input{display:none}}
@media (prefers-reduced-motion:reduce){.relprop .frame img{transition:none}}
"""

PAGE = text.PAGE.replace("default-src 'none';", "default-src 'none'; img-src data:;")


def html(
    maps: Sequence[ImageMap],
    *,
    full_page: bool = True,
    title: str = "Relevance of the picture",
    contour: Contour = None,
    bound: Bound = None,
) -> str:
    """A page that needs nothing from outside, or the fragment alone: a row a picture and target, a panel a method."""
    table, limits = grid(maps), bounds(maps, bound)
    rows = "".join(_group(row, table.methods, limits, contour) for row in table.rows)
    legends = "".join(_legend(film, scale_note(film, bound, limits)) for film in films(maps))
    body = f'<div class="relprop">\n<style>{text.CSS}{CSS}</style>\n{rows}{legends}</div>'
    return PAGE.format(title=escape(visible(title)), body=body) if full_page else body


def _group(row: Row, methods: Sequence[str], limits: Mapping[str, float | None], contour: Contour) -> str:
    """The target and the prediction over the picture and its maps."""
    first = fitted(row.first, LONGEST)
    picture, words = _data(first.image), caption(first)
    subject = text._spans(words.subject).replace("<span>", '<span class="target">', 1)
    height, width = row.first.image.shape[:2]
    plain = f'<span class="frame"><img src="{picture}" alt="the picture, {width} × {height} pixels"></span>'
    panels = "".join(
        _panel(fitted(cell, LONGEST), contour, limits[cell.method]) if cell else _missing(method)
        for cell, method in zip(row.cells, methods, strict=True)
    )
    return (
        f'<figure class="group">\n<figcaption class="subject">{subject}</figcaption>\n'
        f'<div class="panels" style="--picture:url({picture})">\n'
        f"<figure>{plain}<figcaption><b>picture</b></figcaption></figure>\n{panels}</div></figure>\n"
    )


def _panel(cell: ImageMap, contour: Contour, bound: float | None) -> str:
    words, pixels = caption(cell), overlay(cell, contour=contour, bound=bound)
    account = f'<div class="account">{text._spans(words.account)}</div>'
    image = f'<img class="map" src="{_data(pixels)}" alt="{escape(described(cell))}">'
    toggle = '<input type="checkbox" aria-label="show the picture without the map">'
    return (
        f'<figure><label class="frame" title="point to see the picture, click to keep it">{toggle}{image}</label>'
        f"<figcaption>{_name(words.method)}{account}</figcaption></figure>\n"
    )


def _missing(method: str) -> str:
    """An empty panel keeps the columns in line."""
    return f"<figure><figcaption>{_name(method)} –</figcaption></figure>\n"


def _name(method: str) -> str:
    """A long name may break after any of its underscores."""
    return f"<b><bdi>{escape(method).replace('_', '_<wbr>')}</bdi></b>"


def _legend(film: Film, note: str) -> str:
    least, most = ends(film)
    bar = f'<img src="{_data(strip(film, 128))}" alt="">'
    return f'<div class="legend"><span>{least}</span>{bar}<span>{most}</span><span>{escape(note)}</span></div>\n'


def _data(pixels: Pixels) -> str:
    """The pixels as a PNG within the page."""
    file = BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"
