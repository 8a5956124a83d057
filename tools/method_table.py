"""The table of docs/methods/index.md: every registered method and what is known of it. `--write` puts it there.

python tools/method_table.py            # print
python tools/method_table.py --write    # between the page's markers
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import relprop.methods  # noqa: F401  (fills the registry)
from relprop.registry import METHODS, Record

FOLDER = Path(__file__).parent.parent / "docs" / "methods"
INDEX = FOLDER / "index.md"
BEGIN, END = "<!-- method table: python tools/method_table.py --write -->", "<!-- end of method table -->"
TITLES = ("method", "family", "signed", "gradient", "maps", "complete", "what it does", "source")
HEAD = f"| {' | '.join(TITLES)} |\n{'|---' * len(TITLES)}|"


def page_of(record: Record[Any]) -> Path:
    """Where a method is described: on its family's page, a baseline on the index itself."""
    return INDEX if record.family == "baseline" else FOLDER / f"{record.family}.md"


def row(record: Record[Any]) -> str:
    page = "" if page_of(record) == INDEX else page_of(record).name
    marks = ["yes" if mark else "" for mark in (record.signed, record.gradients, record.maps, record.complete)]
    texts = [text.replace("|", "\\|") for text in (record.summary, record.citation)]
    return f"| {' | '.join([f'[`{record.name}`]({page}#{record.name})', record.family, *marks, *texts])} |"


def table() -> str:
    """Family by family, each in the registry's order."""
    return "\n".join([HEAD, *(row(record) for record in sorted(METHODS, key=lambda record: record.family))])


def on_page(page: str) -> str:
    return page.split(BEGIN)[1].split(END)[0].strip()


def main() -> None:
    found = table()
    print(found)
    if "--write" in sys.argv[1:]:
        before, rest = INDEX.read_text().split(BEGIN)
        INDEX.write_text(f"{before}{BEGIN}\n\n{found}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
