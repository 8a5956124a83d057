"""The pages say the truth: their Python blocks run, their links lead somewhere."""

import re
from pathlib import Path

import pytest

import relprop.methods  # noqa: F401  (fills the registry before a page may add to it)
from relprop.registry import METHODS

ROOT = Path(__file__).parent.parent
COMPARISONS = ("README.md", "docs/index.md")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
WALKS = ROOT / "docs" / "walks.md"  # its commands and its Python go together: test_walks.py runs both
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


RUN = [page for page in PAGES if page != WALKS and BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page, in order, in one namespace and an empty folder."""
    monkeypatch.chdir(tmp_path)
    list(METHODS)  # all are imported, so that only what the page adds is taken away again
    METHODS.every()  # those that are not listed are registered before, too
    monkeypatch.setattr(METHODS, "_records", dict(METHODS._records))  # a page may register a method
    namespace: dict[str, object] = {"__name__": "page"}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, str(page), "exec"), namespace)


def anchors(page: Path) -> set[str]:
    """What links to a page's headings end with."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.*)", prose, re.MULTILINE)]
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        if not link.startswith(("http", "mailto:")):
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_libraries_are_compared_alike() -> None:
    """In the README and on the site's first page."""
    tables = [re.findall(r"^\| \| relprop \|.*\n(?:\|.*\n)+", (ROOT / page).read_text(), re.M) for page in COMPARISONS]
    assert len(tables[0]) == 1
    assert tables[0] == tables[1]
