"""Hooks of mkdocs.yml, for what mkdocs does not do by itself: notebooks and the models' cards become pages.

mkdocs build --strict
"""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads its hooks from anywhere
import cli_page

SOURCE = Path(__file__).parent.parent / "src" / "relprop"
CARD = re.compile(r"\]\((?:\.\./)+src/relprop/([\w/]+)/README\.md")
NOTEBOOK = re.compile(r"\]\(((?:\.\./)*notebooks/[\w-]+)\.ipynb")
PICTURES = {"image/jpeg", "image/png"}
# A search names the first page to read before how-tos, and these before what tells why.
BOOSTS = {"getting-started.md": 10.0, "decisions/*": 0.1, "results/*": 0.1, "cards/*": 0.1, "log.md": 0.1}
SLOT = re.compile(r'<div data-output="(\d+)"></div>')


def on_config(config: Any) -> Any:
    """Patterns of the navigation become the pages that they match."""
    docs = Path(config["docs_dir"])
    pages = sorted({*(str(page.relative_to(docs)) for page in docs.rglob("*.md")), *cards()})
    config["nav"] = expanded(config["nav"], pages)
    return config


def expanded(nav: list[Any], pages: list[str]) -> list[Any]:
    """A navigation with each "*" replaced by pages; mkdocs itself then says what is not found, or left out."""
    every: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and "*" in entry:
            every += [page for page in pages if fnmatch(page, entry)]
        elif isinstance(entry, dict):
            every.append({key: expanded(v, pages) if isinstance(v, list) else v for key, v in entry.items()})
        else:
            every.append(entry)
    return every


def cards() -> dict[str, Path]:
    """What the models and data in the source tree say of themselves, by page."""
    return {f"cards/{card.parent.relative_to(SOURCE)}.md": card for card in sorted(SOURCE.rglob("README.md"))}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made: the cards, and one beside each notebook, which stays to be downloaded."""
    from mkdocs.structure.files import File

    for page, card in cards().items():
        files.append(File.generated(config, page, content=card.read_text()))
    for notebook in sorted(Path(config["docs_dir"]).glob("notebooks/*.ipynb")):
        page = f"notebooks/{notebook.stem}.md"
        files.append(File.generated(config, page, content=markdown(json.loads(notebook.read_text()), notebook.name)))
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Links to a card in the source tree, or to a notebook, lead to its page; commands stand where their mark is."""
    for boost in (boost for pattern, boost in BOOSTS.items() if fnmatch(page.file.src_uri, pattern)):
        page.meta["search"] = {"boost": boost}
    if cli_page.MARK in text:
        text = text.replace(cli_page.MARK, cli_page.reference())
    up = "../" * page.file.src_uri.count("/")
    return NOTEBOOK.sub(r"](\1.md", CARD.sub(rf"]({up}cards/\1.md", text))


def on_page_content(text: str, page: Any, config: Any, **_: Any) -> str:
    """What a notebook's cells drew, put in once Markdown can do it no harm."""
    notebook = Path(config["docs_dir"], page.file.src_uri).with_suffix(".ipynb")
    if not notebook.exists():
        return text
    drawn = [data["text/html"] for data in outputs(json.loads(notebook.read_text())) if "text/html" in data]
    return SLOT.sub(lambda slot: f'<div class="output">{_joined(drawn[int(slot[1])])}</div>', text)


def markdown(notebook: dict[str, Any], name: str) -> str:
    """A notebook as a page: its text, its code, and what that printed; HTML is left as slots."""
    parts, slots = [], 0
    for cell in notebook["cells"]:
        source = _joined(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for data in _of_cell(cell):
            parts.append(_shown(data, slots))
            slots += "text/html" in data
    title, *rest = parts
    return "\n\n".join([title, f"[Download this notebook]({name})", *rest]) + "\n"


def outputs(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Whatever the cells showed, by type, in order."""
    for cell in notebook["cells"]:
        yield from _of_cell(cell)


def _of_cell(cell: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for output in cell.get("outputs", ()):
        yield output.get("data") or {"text/plain": output.get("text", "")}


def _shown(data: dict[str, Any], slot: int) -> str:
    if "text/html" in data:
        return f'<div data-output="{slot}"></div>'
    if "text/markdown" in data:
        return _joined(data["text/markdown"])
    for kind in PICTURES & set(data):
        return f'<img alt="What the cell drew" src="data:{kind};base64,{_joined(data[kind]).strip()}">'
    return f'<pre class="output">{html.escape(_joined(data["text/plain"]))}</pre>'


def _joined(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)
