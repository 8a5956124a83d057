"""The report as one HTML page that needs nothing from outside, light or dark as the reader has it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from relprop.bench.report import plots
from relprop.bench.report.blocks import (
    Block,
    Bullets,
    Cell,
    Code,
    Column,
    Grid,
    Heatmaps,
    Key,
    Line,
    Pictures,
    Plot,
    Section,
    Text,
)
from relprop.bench.report.style import CSS
from relprop.render.text.html import html as heatmaps_html

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{css}{shades}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
_STYLE = re.compile(r"<style>(.*?)</style>\s*", re.DOTALL)


def html(sections: Sequence[Section]) -> str:
    body = "\n".join(
        _section(section, number) + (_contents(sections) if not number else "")
        for number, section in enumerate(sections)
    )
    drawn = [block for section in sections for block in section.blocks if isinstance(block, Heatmaps)]
    found = _STYLE.search(_fragment(drawn[0])) if drawn else None
    shades = found[1] if found else ""  # once for all, not with every heat map
    return _PAGE.format(title=escape(sections[0].heading), css=CSS, shades=shades, body=body)


def _contents(sections: Sequence[Section]) -> str:
    links = "".join(
        f'<li><a href="#s{number}">{escape(section.heading)}</a></li>'
        for number, section in enumerate(sections)
        if section.depth == 2
    )
    return f'\n<nav aria-label="Contents"><ul>{links}</ul></nav>' if links else ""


def _section(section: Section, number: int) -> str:
    heading = f'<h{section.depth} id="s{number}">{escape(section.heading)}</h{section.depth}>'
    return "\n".join([heading, *map(_block, section.blocks)])


def _block(block: Block) -> str:
    match block:
        case Text(text, soft):
            return f"<p{_classed('soft' if soft else '')}>{escape(text)}</p>"
        case Bullets(items):
            return f'<ul class="soft">{"".join(f"<li>{escape(item)}</li>" for item in items)}</ul>'
        case Code(text):
            return f"<pre><code>{escape(text)}</code></pre>"
        case Grid():
            return _table(block)
        case Plot():
            panels = "".join(map(plots.inline, block.panels))
            caption = f"<figcaption>{escape(block.caption)}</figcaption>"
            return f'<figure>{caption}{_legend(block.legend)}<div class="panels">{panels}</div></figure>'
        case Heatmaps():
            caption = f"<figcaption>{escape(block.caption)}</figcaption>"
            return f'<figure class="texts">{caption}{_STYLE.sub("", _fragment(block))}</figure>'
        case Pictures():
            return _pictures(block)


def _fragment(block: Heatmaps) -> str:
    return heatmaps_html(block.heatmaps, full_page=False)


def _pictures(block: Pictures) -> str:
    kinds = {"png": "png", "svg": "svg+xml"}
    images = ""
    for one in block.pictures:
        data = base64.b64encode(one.data).decode()
        image = f'<img src="data:image/{kinds[one.ending]};base64,{data}" alt="{escape(one.alt)}">'
        title = f"<span>{escape(one.title)}</span>" if one.title else ""
        images += f'<div class="{one.ending}">{title}{image}</div>'
    return f'<figure><figcaption>{escape(block.caption)}</figcaption><div class="pictures">{images}</div></figure>'


def _legend(entries: Iterable[Key]) -> str:
    items = "".join(
        f'<li><svg width="26" height="10" aria-hidden="true">{plots.swatch(one)}</svg>{escape(one.name)}</li>'
        for one in entries
    )
    return f'<ul class="legend">{items}</ul>' if items else ""


def _table(grid: Grid) -> str:
    """In a box of its own that scrolls sideways; a keyboard can reach it."""
    body = "\n".join(_line(line, grid.columns) for line in grid.lines)
    caption = f"<caption><span>{escape(grid.caption)}</span></caption>"
    table = (
        f"<table{_classed('numbers' if grid.numbers else 'words')}>{caption}\n"
        f"{_head(grid)}<tbody>\n{body}\n</tbody></table>"
    )
    return f'<div class="wide" role="region" tabindex="0" aria-label="{escape(grid.caption)}">{table}</div>'


def _head(grid: Grid) -> str:
    groups = [(group, len(list(own))) for group, own in groupby(grid.columns, key=lambda column: column.group)]
    named = any(group for group, _ in groups)
    if not named and not any(column.name for column in grid.columns):
        return ""
    corner = f'<th scope="col"{" rowspan=2" if named else ""}>{escape(grid.corner)}</th>'
    over = "".join(f'<th scope="colgroup" colspan="{count}">{escape(group)}</th>' for group, count in groups)
    names = "".join(
        f'<th scope="col"{_classed("soft" if column.soft else "", "first" if named and first else "")}>'
        f"{escape(column.name)}</th>"
        for column, first in zip(grid.columns, _firsts(grid.columns), strict=True)
    )
    return (
        f"<thead><tr>{corner}{over}</tr><tr>{names}</tr></thead>"
        if named
        else f"<thead><tr>{corner}{names}</tr></thead>"
    )


def _firsts(columns: Sequence[Column]) -> list[bool]:
    """Which columns begin a group."""
    return [i == 0 or column.group != columns[i - 1].group for i, column in enumerate(columns)]


def _line(line: Line, columns: Sequence[Column]) -> str:
    code = f" <code>{escape(line.code)}</code>" if line.code else ""
    named = any(column.group for column in columns)
    cells = "".join(_cell(cell, named and first) for cell, first in zip(line.cells, _firsts(columns), strict=True))
    return f'<tr{_classed("apart" if line.apart else "")}><th scope="row">{escape(line.name)}{code}</th>{cells}</tr>'


def _cell(cell: Cell, first: bool) -> str:
    text = escape(cell.text)
    inner = f"<strong>{text}</strong>" if cell.bold and text else text
    return f"<td{_classed('soft' if cell.soft else '', 'first' if first else '')}>{inner}</td>"


def _classed(*names: str) -> str:
    given = " ".join(name for name in names if name)
    return f' class="{given}"' if given else ""
