"""The page around every drawing: one style sheet, light or dark as the reader has it, and the pieces that kinds share.

A page needs nothing from outside and runs no script of anybody else's.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

from relprop.render.visible import visible

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CSS = """
.relprop{color-scheme:light dark;--ink:#1f2328;--soft:#5b636d;--line:#dfe3e8;--ground:#ffffff;
 --ink:light-dark(#1f2328,#e4e7eb);--soft:light-dark(#5b636d,#9aa4b0);--line:light-dark(#dfe3e8,#343a43);
 --ground:light-dark(#ffffff,#181a1f);
 max-width:64rem;box-sizing:border-box;padding:1rem 1.25rem;border-radius:.5rem;
 background:var(--ground);color:var(--ink);
 font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif;text-align:left;
 print-color-adjust:exact;-webkit-print-color-adjust:exact}
/* a notebook's own theme goes before that of the system */
[data-jp-theme-light="true"] .relprop,.vscode-light .relprop,[theme="light"] .relprop{color-scheme:light}
[data-jp-theme-light="false"] .relprop,.vscode-dark .relprop,[theme="dark"] .relprop{color-scheme:dark}
.relprop .subject{margin:0;padding:0 0 .5rem;overflow-wrap:anywhere}
.relprop .subject .target{font-weight:600}
.relprop .subject span+span{margin-left:1rem;color:var(--soft)}
.relprop .row{display:grid;grid-template-columns:11rem minmax(0,1fr);column-gap:1.25rem;padding:.55rem 0 .6rem;
 border-top:1px solid var(--line)}
.relprop .method{padding-top:.28rem;font-weight:600;font-size:.875rem;overflow-wrap:anywhere}
.relprop .tokens{line-height:1.95;overflow-wrap:anywhere}
.relprop .account{margin-top:.2rem;color:var(--soft);font-size:.8125rem;font-variant-numeric:tabular-nums;
 overflow-wrap:anywhere}
.relprop .account span+span::before{content:" · "}
.relprop .t{padding:.17em .16em;border-radius:.2em;-webkit-box-decoration-break:clone;box-decoration-break:clone}
.relprop .t+.join{margin-left:-.12em;padding-left:.05em;border-top-left-radius:0;border-bottom-left-radius:0}
.relprop .special{font-size:.8em}
.relprop .beside{box-shadow:inset 0 0 0 1px var(--soft);font-variant-numeric:tabular-nums;white-space:nowrap}
.relprop .bar{margin:0 .35em;color:var(--soft)}
.relprop .minus{text-decoration:underline dotted;text-decoration-thickness:1px;text-underline-offset:.2em}
.relprop .answer{padding:.17em .1em;border-radius:.3em;box-shadow:0 0 0 1px var(--ink);
 -webkit-box-decoration-break:clone;box-decoration-break:clone}
.relprop .legend .answer{padding:0 .4em}
.relprop .legend{display:flex;flex-wrap:wrap;align-items:center;gap:.25rem .6rem;padding-top:.7rem;
 border-top:1px solid var(--line);color:var(--soft);font-size:.8125rem}
.relprop .scale{display:inline-flex;border:1px solid var(--line);border-radius:.2rem;overflow:hidden}
.relprop .scale i{width:1.1rem;height:.8rem}
.relprop .group+.group{margin-top:1.5rem}
@media (max-width:40rem){.relprop .row{grid-template-columns:minmax(0,1fr)}}
"""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; {policy}style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body{{margin:0;padding:1rem;background:#fff;background:light-dark(#fff,#181a1f)}}
.relprop{{margin:0 auto}}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def page(body: str, style: str, title: str, *, full_page: bool, policy: str = "") -> str:
    """The fragment with its style, for a notebook; or a whole page. `policy`: what else the page may load."""
    fragment = f'<div class="relprop">\n<style>{CSS}{style}</style>\n{body}</div>'
    return whole_page(fragment, title, policy) if full_page else fragment


def whole_page(fragment: str, title: str, policy: str = "") -> str:
    return PAGE.format(title=escape(visible(title)), body=fragment, policy=policy)


WARNINGS = """
.relprop .warning{margin:0;padding:.2rem .6rem;border-left:3px solid #bf8700;overflow-wrap:anywhere}
.relprop .warning+.warning{margin-top:.4rem}
"""


def warning_lines(sentences: Iterable[str]) -> str:
    """What the numbers above do not say."""
    lines = (f'<p class="warning">Warning: <bdi>{escape(visible(one))}</bdi></p>' for one in sentences)
    return page("\n".join(lines), WARNINGS, "", full_page=False)


def spans(parts: Iterable[str]) -> str:
    return "".join(f"<span><bdi>{escape(part)}</bdi></span>" for part in parts)


def subject(parts: Iterable[str]) -> str:
    """What was explained, the target first and bold."""
    return spans(parts).replace("<span>", '<span class="target">', 1)


# The picture lies under its map once a row, as a background: pointing at a map lets it through, a click keeps it.
PANELS = """
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

IMAGES = "img-src data:; "  # of a page whose pictures lie within it


MEDIA = "media-src data:; "  # of one whose sounds do


def allowing(*scripts: str) -> str:
    """The policy of a page in which these scripts alone may run."""
    hashes = [f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts]
    return f"script-src {' '.join(hashes)}; " if hashes else ""


def missing_panel(method: str) -> str:
    """An empty panel keeps the columns in line."""
    return f"<figure><figcaption>{method_name(method)} –</figcaption></figure>\n"


def method_name(method: str) -> str:
    """A long name may break after any of its underscores."""
    return f"<b><bdi>{escape(method).replace('_', '_<wbr>')}</bdi></b>"


def legend(bar: NDArray[np.uint8], least: str, most: str, note: str) -> str:
    """A colour bar with its ends in words."""
    image = f'<img src="{png(bar)}" alt="">'
    return f'<div class="legend"><span>{least}</span>{image}<span>{most}</span><span>{escape(note)}</span></div>\n'


def png(pixels: NDArray[np.uint8]) -> str:
    """The pixels as a PNG within the page."""
    from PIL import Image

    file = BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"
