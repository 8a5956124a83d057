"""The tables of the result pages are filled from runs, and every mark on the pages can be."""

from dataclasses import replace
from pathlib import Path

import pytest

import result_tables
from relprop.bench.report import read_results
from relprop.bench.suites import read_suite
from relprop.errors import InputError
from relprop.metrics import METRICS
from test_bench_claims import run

PAGE = """Before.

<!-- {mark} -->
| | SST-2 (7) | IMDB (7) |
|---|---|---|
| gradients (`gradient_x_input`) | 1 | 2 |
| `gae` | 3 | 4 |

| `gae` | stays | stays |
"""
COLUMNS = "ali22-text | SST-2 / IMDB | auac | 3"


def rows(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.split("\n") if line.startswith("|")]


def test_numbers_and_leads_are_put_in(tmp_path: Path) -> None:
    runs = {"ali22-text": read_results(run(tmp_path, {"gradient_x_input": 0.1, "gae": 0.05}, spread=0.0))}
    found = rows(result_tables.filled(PAGE.format(mark=f"numbers {COLUMNS}"), runs))
    leads = rows(result_tables.filled(PAGE.format(mark=f"leads of lrp_ah_ln: {COLUMNS}"), runs))
    assert found[0] == ["", "SST-2 (40)", "IMDB (40)"]
    assert found[2][0] == "gradients (`gradient_x_input`)"
    assert [float(cell) + 0.05 for cell in found[2][1:]] == pytest.approx([float(cell) for cell in found[3][1:]])
    assert [row[1] for row in leads[2:4]] == ["+0.100 (+0.100 to +0.100)", "+0.050 (+0.050 to +0.050)"]
    assert found[-1] == leads[-1] == ["`gae`", "stays", "stays"]


def test_a_table_of_another_run_stays(tmp_path: Path) -> None:
    page = PAGE.format(mark=f"numbers {COLUMNS}")
    assert result_tables.filled(page, {}) == page


def test_a_column_that_was_not_measured_stays(tmp_path: Path) -> None:
    results = read_results(run(tmp_path, {"gradient_x_input": 0.1, "gae": 0.05}))
    results = replace(results, tasks={"SST-2": results.tasks["SST-2"]})
    found = rows(result_tables.filled(PAGE.format(mark=f"numbers {COLUMNS}"), {"ali22-text": results}))
    assert found[0] == ["", "SST-2 (40)", "IMDB (7)"]
    assert [row[2] for row in found[2:4]] == ["2", "4"]


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("numbers ali22-text | SST-2 | auac | 3", "has 2 columns, and its mark names 1"),
        ("numbers ali22-text | SST-2 / Yelp | auac | 3", 'has no task "Yelp"'),
        ("numbers ali22-text | SST-2 / IMDB | auac", "is not RUN"),
    ],
)
def test_a_mark_that_is_wrong_is_refused(tmp_path: Path, mark: str, said: str) -> None:
    runs = {"ali22-text": read_results(run(tmp_path, {"gradient_x_input": 0.1, "gae": 0.05}))}
    with pytest.raises(InputError, match=said):
        result_tables.filled(PAGE.format(mark=mark), runs)


def test_the_marks_of_the_pages_name_what_the_suites_have() -> None:
    marks = [
        mark
        for page in sorted(result_tables.PAGES.rglob("*.md"))
        for line in page.read_text(encoding="utf-8").split("\n")
        if (mark := result_tables.MARK.fullmatch(line))
    ]
    assert len(marks) > 10
    for mark in marks:
        for column in result_tables.columns_of(mark["columns"]):
            suite = read_suite(column.run)
            task = next(task for task in suite.tasks if task.name == column.task)
            measured = task.metrics or suite.metrics
            assert column.metric in measured
            assert column.metric in METRICS
