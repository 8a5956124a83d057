"""The table of docs/released.md: every golden array, what gives it, and how far off it is. `--write` puts it there.

python tools/golden_table.py            # print
python tools/golden_table.py --write    # between the page's markers
"""

from __future__ import annotations

import sys
from pathlib import Path

from golden_arrays import LINES, Line
from golden_cases import ATTENTION

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "released.md"
BEGIN, END = "<!-- golden table: python tools/golden_table.py --write -->", "<!-- end of golden table -->"
HEAD = "| array | relprop | difference | tolerance | verdict |\n|---|---|---|---|---|"


def row(line: Line, measure: bool = True) -> str:
    """A line of the table; the difference is the largest over targets and attention implementations."""
    cells = [f"{line.file.removesuffix('.npz').removesuffix('/golden')} {line.array}", line.says]
    if line.found is None:
        return f"| {' | '.join([*cells, '', '', line.reason])} |"
    if not measure:
        return f"| {' | '.join([*cells, '?', f'{line.tolerance:.0e}', line.reason or 'matched'])} |"
    worst = max(line.difference(key, kind) for key in line.keys for kind in ATTENTION)
    within = worst < line.tolerance
    verdict = line.reason or "matched"
    return f"| {' | '.join([*cells, f'{worst:.0e}', f'{line.tolerance:.0e}', verdict if within else 'NOT MATCHED'])} |"


def table(measure: bool = True) -> str:
    return "\n".join([HEAD, *(row(line, measure) for line in LINES)])


def structure(text: str) -> list[str]:
    """The table without its measured numbers, which differ from machine to machine."""
    rows = [line.split(" | ") for line in text.strip().splitlines()]
    return [" | ".join(cell for place, cell in enumerate(cells) if place != 2) for cells in rows]


def on_page(page: str) -> str:
    return page.split(BEGIN)[1].split(END)[0].strip()


def main() -> None:
    found = table()
    print(found)
    if "--write" in sys.argv[1:]:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{found}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
