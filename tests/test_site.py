"""The site: it builds without a warning, asks nobody outside, names what there is, and its notebooks were run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

import notebooks
import pages
import relprop
import relprop.methods
import relprop.metrics
from browser import CHROMIUM, Page
from relprop.embedded import EMBEDDED
from relprop.registry import METHODS
from serving_for_tests import until

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SHIPPED = METHODS.names()  # before a test of another file adds to them
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
NEEDS = {"graphs": "molecules"}  # notebook -> the embedded model without which it cannot have been run
NUMBER = re.compile(r"(?<![\w.\-,])\d*\.?\d+(?![\w\-]|\.\d)")


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def can_run(path: Path) -> bool:
    return EMBEDDED[NEEDS.get(path.stem, "sentiment")].is_dir()


def identifiers(page: str) -> list[str]:
    """What a reference page takes from the source."""
    return re.findall(r"^::: (\S+)", (DOCS / "reference" / page).read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, strictly: a warning is an error."""
    for name in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_no_page_asks_for_anything_outside(site: Path) -> None:
    """Scripts, styles, pictures and frames are the site's own; links for people to follow may lead elsewhere."""
    fetched = re.compile(r"""<(?:script|img|iframe|source|video)[^>]*\ssrc=["']?(?:https?:)?//[^\s"'>]+""")
    styles = re.compile(r"""<link[^>]*rel=["']?(?:stylesheet|preconnect|preload|icon)[^>]*href=["']?(?:https?:)?//""")
    built = sorted(site.rglob("*.html"))
    assert len(built) > 60
    assert {str(page.relative_to(site)) for page in built if fetched.search(page.read_text())} == set()
    assert {str(page.relative_to(site)) for page in built if styles.search(page.read_text())} == set()
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", sheet.read_text()), sheet.name


class Address:
    """Of a page on loopback, in place of a file's path."""

    def __init__(self, url: str) -> None:
        self.url = url

    def resolve(self) -> Address:
        return self

    def as_uri(self) -> str:
        return self.url


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """As a web server would serve it: from a folder, browsers tell nothing of what they load."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("page", ["index.html", "notebooks/language-models.html"])
def test_a_browser_loads_the_sites_own_files_only(served: str, page: str) -> None:
    """Also what scripts load; and the stylesheets arrive."""
    with Page(Address(f"{served}/{page}")) as shown:  # type: ignore[arg-type]
        loaded = shown.ask("performance.getEntriesByType('resource').map(one => one.name)")
        assert [name for name in loaded if name.endswith(("main.css", ".min.css", ".min.js", "site.css"))]
        assert [name for name in loaded if not name.startswith((served, "data:"))] == []
        assert shown.ask("getComputedStyle(document.querySelector('.md-header')).position") == "sticky"


WANTED = {"csv": "texts", "parquet": "cli", "NER": "tasks", "LoRA": "wrappers", "own model": "getting-started"}
ASK = "(e => {{e.focus(); e.value = {asked}; e.dispatchEvent(new Event('keyup'))}})(document.querySelector({field}))"
LINKS = "[...document.querySelectorAll('.md-search-result__item > a')].map(one => one.pathname.slice(1))"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_search_finds_the_page_that_says_how(served: str) -> None:
    """Among the first three pages; parts of file names are words, and decisions come after how-tos."""
    with Page(Address(f"{served}/index.html")) as shown:  # type: ignore[arg-type]
        for asked, page in WANTED.items():
            shown.ask(ASK.format(asked=json.dumps(asked), field="'.md-search__input'"))
            until(lambda: f"{page}.html" in shown.ask(LINKS)[:3])  # noqa: B023 - called at once


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_notebooks_show_their_explanations(site: Path) -> None:
    """Drawn as in a notebook: coloured tokens, and no slot left empty."""
    with Page(site / "notebooks/text.html") as shown:
        assert shown.ask("document.querySelectorAll('.output .relprop .t').length") > 50
        assert shown.ask("document.querySelectorAll('[data-output]').length") == 0
        assert shown.ask("document.querySelectorAll('.output table.dataframe').length") == 2


def test_the_reference_has_every_method() -> None:
    """After a new method: a line in docs/reference/methods.md."""
    shipped = [f"{METHODS[name].function.__module__}.{name}" for name in SHIPPED]
    assert sorted(identifiers("methods.md")) == sorted(shipped)


def test_the_reference_has_every_public_metric() -> None:
    """All that `relprop.metrics` exports but its two tables."""
    exported = {name: getattr(relprop.metrics, name) for name in relprop.metrics.__all__}
    homes = {f"{thing.__module__}.{name}" for name, thing in exported.items() if hasattr(thing, "__module__")}
    assert set(identifiers("metrics.md")) == homes


def test_the_reference_has_every_public_name() -> None:
    text = (DOCS / "reference" / "index.md").read_text()
    assert [name for name in relprop.__all__ if name != "__version__" and not re.search(rf"\b{name}\b", text)] == []


def test_numbers_of_the_advice_stand_on_the_pages_it_links() -> None:
    """Section by section: every number is on a page that the section links to, written just so."""
    _, *sections = re.split(r"^## ", (DOCS / "which-method.md").read_text(), flags=re.MULTILINE)
    missing = []
    for section in sections:
        links = re.findall(r"\]\(([\w./-]+\.md)", section)
        linked = " ".join((DOCS / link).read_text() for link in links)
        known = set(NUMBER.findall(linked))
        bare = re.sub(r"\]\([^)]*\)|`[^`]*`", "]", section)
        missing += [(section.split("\n")[0], number) for number in NUMBER.findall(bare) if number not in known]
    assert len(sections) >= 6
    assert missing == []


def test_a_wrong_number_would_be_found() -> None:
    """The reader of numbers above takes whole ones only: .94 is not in .947."""
    assert NUMBER.findall("| .947 | 3.17 (19 of 24), 99.5 % of SST-2, 8 x 128") == [
        ".947", "3.17", "19", "24", "99.5", "8", "128",
    ]  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_were_run(path: Path) -> None:
    """From top to bottom, without an error or a warning, and without a trace of where. `python tools/notebooks.py`."""
    if not can_run(path):
        pytest.skip(f"the embedded model {NEEDS[path.stem]} is not there yet")
    cells = [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    every = [output for cell in cells for output in cell["outputs"]]
    assert len(every) >= len(cells) - 1
    assert {output["output_type"] for output in every} <= {"stream", "display_data", "execute_result"}
    assert [output for output in every if output.get("name") == "stderr"] == []
    assert path.stat().st_size < 300_000
    assert not re.search(r"(?<![\w<:/])/(?:home|root|tmp|opt|usr|work|Users)/", path.read_text())


def test_there_are_notebooks_for_each_kind() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["graphs", "images", "language-models", "tasks", "text"]


@pytest.mark.parametrize(
    "path",
    [one if one.stem in ("tasks", "text") else pytest.param(one, marks=pytest.mark.slow) for one in NOTEBOOKS],
    ids=[one.stem for one in NOTEBOOKS],
)
def test_notebooks_run_again(path: Path) -> None:
    """The same kinds of output, and the same printed text."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    if not can_run(path):
        pytest.skip(f"the embedded model {NEEDS[path.stem]} is not there yet")
    then, now = (list(pages.outputs(one)) for one in (read(path), notebooks.executed(path)))
    assert [sorted(one) for one in now] == [sorted(one) for one in then]
    texts = [["".join(one["text/plain"]) for one in run if "text/plain" in one] for run in (then, now)]
    assert texts[0] == texts[1]


def cell(source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": list(outputs)}


def test_a_notebook_becomes_a_page() -> None:
    """Text as it is, code in fences, printed text escaped, HTML left as slots in order, pictures inside."""
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": ["# Title\n", "\n", "words"]},
            cell("print(1)", {"output_type": "stream", "name": "stdout", "text": ["<script>\n", "& more"]}),
            cell("e", {"output_type": "execute_result", "data": {"text/html": ["<b>", "0</b>"]}}),
            cell("m", {"output_type": "display_data", "data": {"text/markdown": "| a |"}}),
            cell("f", {"output_type": "display_data", "data": {"text/html": "<b>1</b>"}}),
            cell("i", {"output_type": "display_data", "data": {"image/jpeg": "QUJD\n"}}),
        ]
    }
    assert pages.markdown(notebook, "a.ipynb").split("\n\n") == [
        "# Title", "words",
        "[Download this notebook](a.ipynb)",
        "```python\nprint(1)\n```", '<pre class="output">&lt;script&gt;\n&amp; more</pre>',
        "```python\ne\n```", '<div data-output="0"></div>',
        "```python\nm\n```", "| a |",
        "```python\nf\n```", '<div data-output="1"></div>',
        "```python\ni\n```", '<img alt="What the cell drew" src="data:image/jpeg;base64,QUJD">\n',
    ]  # fmt: skip


def test_patterns_of_the_navigation() -> None:
    """Pages by name in place of a pattern, wherever it stands; the rest as it was."""
    nav = [{"Start": ["index.md", {"Why": ["d/*.md"]}]}, "x.md"]
    assert pages.expanded(nav, ["d/1.md", "d/2.md", "index.md"]) == [
        {"Start": ["index.md", {"Why": ["d/1.md", "d/2.md"]}]},
        "x.md",
    ]


def test_links_to_cards_and_notebooks_lead_to_their_pages() -> None:
    class At:
        class file:  # noqa: N801
            src_uri = "results/chefer21.md"

        meta: ClassVar[dict[str, object]] = {}

    text = "[pets](../../src/relprop/models/pets/README.md#a) [other](../log.md) [run](../notebooks/text.ipynb)"
    expected = "[pets](../cards/models/pets.md#a) [other](../log.md) [run](../notebooks/text.md)"
    assert pages.on_page_markdown(text, At) == expected
    assert pages.on_page_markdown("[Download](text.ipynb)", At) == "[Download](text.ipynb)"
    assert "cards/models/pets.md" in pages.cards()
