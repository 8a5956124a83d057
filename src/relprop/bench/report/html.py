"""The report as one HTML page that needs nothing from outside, light or dark as the reader has it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from relprop.bench.report import blocks
from relprop.bench.report.plots import inline_svg, page_colours
from relprop.render.page import IMAGES, whole_page
from relprop.render.text.html import html as heatmaps_html

CSS = "\n" + Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_STYLE = re.compile(r"<style>(.*?)</style>\s*", re.DOTALL)


def html(sections: Sequence[blocks.Section]) -> str:
    body = "\n".join(
        _section(section, number) + (_contents(sections) if not number else "")
        for number, section in enumerate(sections)
    )
    heatmaps = [block for section in sections for block in section.blocks if isinstance(block, blocks.Heatmaps)]
    style = _STYLE.search(_heatmaps(heatmaps[0])) if heatmaps else None  # once for all, not with every heat map
    sheet = f"<style>{CSS}{style[1] if style else ''}</style>"
    return whole_page(f"{sheet}\n<main>\n{body}\n</main>", sections[0].heading, IMAGES)


def _contents(sections: Sequence[blocks.Section]) -> str:
    links = "".join(
        f'<li><a href="#s{number}">{escape(section.heading)}</a></li>'
        for number, section in enumerate(sections)
        if section.depth == 2
    )
    return f'\n<nav aria-label="Contents"><ul>{links}</ul></nav>' if links else ""


def _section(section: blocks.Section, number: int) -> str:
    heading = f'<h{section.depth} id="s{number}">{escape(section.heading)}</h{section.depth}>'
    return "\n".join([heading, *map(_block, section.blocks)])


def _block(block: blocks.ReportBlock) -> str:
    match block:
        case blocks.Paragraph(text, soft):
            return f"<p{_class('soft' if soft else '')}>{escape(text)}</p>"
        case blocks.Bullets(items):
            return f'<ul class="soft">{"".join(f"<li>{escape(item)}</li>" for item in items)}</ul>'
        case blocks.Code(text):
            return f"<pre><code>{escape(text)}</code></pre>"
        case blocks.TableBlock():
            return _table(block)
        case blocks.Plot():
            panels = "".join(map(inline_svg, block.panels))
            return _figure(block.caption, f'{_legend(block.legend)}<div class="panels">{panels}</div>')
        case blocks.Heatmaps():
            return _figure(block.caption, _STYLE.sub("", _heatmaps(block)), "texts")
        case blocks.ImageRow():
            return _figure(block.caption, f'<div class="images">{_images(block)}</div>')


def _figure(caption: str, content: str, name: str = "") -> str:
    return f"<figure{_class(name)}><figcaption>{escape(caption)}</figcaption>{content}</figure>"


def _heatmaps(block: blocks.Heatmaps) -> str:
    return heatmaps_html(block.heatmaps, full_page=False)


def _images(block: blocks.ImageRow) -> str:
    types = {"png": "png", "svg": "svg+xml"}
    images = ""
    for one in block.images:
        data = base64.b64encode(one.data).decode()
        image = f'<img src="data:image/{types[one.extension]};base64,{data}" alt="{escape(one.alt)}">'
        title = f"<span>{escape(one.title)}</span>" if one.title else ""
        images += f'<div class="{one.extension}">{title}{image}</div>'
    return images


def _legend(entries: Iterable[blocks.LineStyle]) -> str:
    items = "".join(
        f'<li><i style="border-top:2px {one.dash} {page_colours(one.colour)}"></i>{escape(one.name)}</li>'
        for one in entries
    )
    return f'<ul class="legend">{items}</ul>' if items else ""


def _table(table: blocks.TableBlock) -> str:
    """In a box of its own that scrolls sideways; a keyboard can reach it."""
    body = "\n".join(_row(row, table.columns) for row in table.rows)
    caption = f"<caption><span>{escape(table.caption)}</span></caption>"
    content = f"{caption}\n{_head(table)}<tbody>\n{body}\n</tbody>"
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(table.caption)}">'
        f"<table{_class('numbers' if table.numbers else 'words')}>{content}</table></div>"
    )


def _head(table: blocks.TableBlock) -> str:
    groups = [(group, len(list(own))) for group, own in groupby(table.columns, key=lambda column: column.group)]
    grouped = any(group for group, _ in groups)
    if not grouped and not any(column.name for column in table.columns):
        return ""
    corner = f'<th scope="col"{" rowspan=2" if grouped else ""}>{escape(table.corner)}</th>'
    above = "".join(f'<th scope="colgroup" colspan="{count}">{escape(group)}</th>' for group, count in groups)
    names = "".join(
        f'<th scope="col"{_class("soft" if column.soft else "", "first" if first else "")}>{escape(column.name)}</th>'
        for column, first in zip(table.columns, _begins_group(table.columns), strict=True)
    )
    return f"<thead><tr>{corner}{f'{above}</tr><tr>' if grouped else ''}{names}</tr></thead>"


def _begins_group(columns: Sequence[blocks.TableColumn]) -> list[bool]:
    grouped = any(column.group for column in columns)
    return [grouped and (i == 0 or column.group != columns[i - 1].group) for i, column in enumerate(columns)]


def _row(row: blocks.TableRow, columns: Sequence[blocks.TableColumn]) -> str:
    code = f" <code>{escape(row.code)}</code>" if row.code else ""
    cells = "".join(_cell(cell, first) for cell, first in zip(row.cells, _begins_group(columns), strict=True))
    return f'<tr{_class("apart" if row.apart else "")}><th scope="row">{escape(row.name)}{code}</th>{cells}</tr>'


def _cell(cell: blocks.TableCell, first: bool) -> str:
    text = escape(cell.text)
    inner = f"<strong>{text}</strong>" if cell.bold and text else text
    return f"<td{_class('soft' if cell.soft else '', 'first' if first else '')}>{inner}</td>"


def _class(*names: str) -> str:
    given = " ".join(name for name in names if name)
    return f' class="{given}"' if given else ""
