"""The report says what was measured: its numbers are those of the store, and its marks are where they belong."""

import base64
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relprop.bench.cell_work import CellWork
from relprop.bench.kinds.faithfulness import CONSERVATION
from relprop.bench.measurements import Measurements
from relprop.bench.report import Results, figures, plots, read_results, write_report
from relprop.bench.report.blocks import Bullets, Heatmaps, Panel, Paragraph, Series, TableBlock
from relprop.bench.report.comparison import compare
from relprop.bench.report.exhibits import heatmaps
from relprop.bench.report.metric_statistics import metric_statistic, share
from relprop.bench.report.page import report_sections
from relprop.bench.report.published import read_published
from relprop.bench.report.tables import score_table, tables_to_show
from relprop.bench.runner import run_cells
from relprop.bench.store import Store, StoredResult
from relprop.bench.suite_folder import record_plan
from relprop.bench.suite_plan import plan_suite
from relprop.bench.suites import Method, Suite, SuiteTask, Table, suite_from
from relprop.bootstrap import bootstrap
from relprop.errors import InputError, UnknownNameError
from relprop.explanation import Explanation
from relprop.metrics import Conservation, Segmentation

HOSTILE = '<script>alert("a & b")</script> | *bold* film'
TEXTS = [
    ("a gorgeous, witty, seductive movie.", 1),
    (HOSTILE, 0),
    ("dull and far too long", 0),
    ("a warm and funny film", 1),
    ("the plot makes no sense at all", 0),
    ("one of the best films of the year", 1),
]
SUITE: dict[str, Any] = {
    "title": "A small run of <two> tasks",
    "about": "For tests.",
    "metrics": ["auac", "au_mse", "conservation_correlation"],
    "difference": ["lrp_ah_ln", "gradient_x_input"],
    "sample": 6,
    "seed": 3,
    "methods": [
        {"method": "random", "printed": "Random"},
        {"method": "attention_last", "printed": "A-Last"},
        {"method": "gradient_x_input", "printed": "GI"},
        {"method": "lrp_ah_ln", "printed": "LRP(AH+LN)"},
        {"method": "lrp_conservative"},
    ],
    "data": {"own": {"title": "Own", "classes": ["negative", "positive"], "text": "text", "label": "label",
                     "files": {"test": "own.jsonl"}}},
    "tasks": [
        {"name": "SST-2", "model": "sentiment", "data": "own", "explain": "label", "chunk": 3, "show": 2},
        {"name": "Own", "model": "sentiment", "data": "own", "chunk": 3, "without": ["gradient_x_input"]},
    ],
    "tables": [{"title": "Table 1: AUAC", "metric": "auac", "published": "ali22_table1_auac"},
               {"title": "Table 2: AU-MSE", "metric": "au_mse", "published": "ali22_table2_aumse"}],
}  # fmt: skip


@dataclass(frozen=True)
class Working:
    """Real work, with a ceiling added, and a cell that always fails."""

    work: CellWork

    def __call__(self, spec: dict[str, Any]) -> dict[str, Any]:
        if spec["task"]["name"] == "Own" and 5 in spec["places"]:
            raise ValueError("no <memory> left & no hope")
        result = self.work(spec)
        if spec["task"]["name"] == "SST-2":
            for metric, best in (("auac", max), ("au_mse", min)):
                each = [own[metric] for own in result["scores"].values() if metric in own]
                top = [best(column) for column in zip(*each, strict=True)]
                result["scores"].setdefault("ceiling", {})[metric] = [float("nan"), *top[1:]]
        return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("bench")
    (base / "own.jsonl").write_text("\n".join(json.dumps({"text": text, "label": label}) for text, label in TEXTS))
    suite = suite_from(SUITE, "small", "the test's suite")
    plan = plan_suite(suite, base)
    record_plan(plan, base / "run", "relprop bench run small --out 'a b'")
    with Store(base / "run") as store:
        run_cells(store, plan.specs, Working(CellWork(plan.locations)))
        store.note("environment", json.dumps({"torch": "2.13.0", "cpu": "<fast>"}))
        store.note("models", json.dumps({"sentiment": {"accuracy": {"test": 0.875}, "weights": "abc"}}))
    return base / "run"


@pytest.fixture(scope="module")
def report(folder: Path) -> Path:
    write_report(read_results(folder), folder / "report")
    return folder / "report"


class Page(HTMLParser):
    """The tables of a page, [table][row][cell] as (text, is it bold), by caption; and all attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[tuple[str, bool]]]] = {}
        self.attributes: list[tuple[str, str, str]] = []
        self._rows: list[list[tuple[str, bool]]] = []
        self._cell: list[str] | None = None
        self._bold = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("th", "td", "caption"):
            self._cell, self._bold = [], False
        elif tag == "strong":
            self._bold = True

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "caption":
            self.tables["".join(self._cell or [])] = self._rows
        elif tag in ("th", "td"):
            self._rows[-1].append(("".join(self._cell or []), self._bold))
        if tag in ("th", "td", "caption"):
            self._cell = None


def scores(folder: Path, task: str, method: str, metric: str) -> list[float]:
    """Straight from the store."""
    with Store(folder, read_only=True) as store:
        cells = [row.result for row in store.rows() if row.done and row.spec["task"]["name"] == task]
    return [value for cell in cells for value in cell["scores"].get(method, {}).get(metric, [])]


def rows_of(page: Page, caption: str) -> dict[str, list[tuple[str, bool]]]:
    return {row[0][0].split(" ")[0]: row[1:] for row in page.tables[caption]}


def test_numbers_are_those_of_the_store(folder: Path, report: Path) -> None:
    page = Page((report / "report.html").read_text())
    rows = rows_of(page, "Table 1: AUAC")
    names = {"Random": "random", "A-Last": "attention_last", "GI": "gradient_x_input", "LRP(AH+LN)": "lrp_ah_ln"}
    for printed, label in names.items():
        mean = np.mean(scores(folder, "SST-2", label, "auac"))
        assert rows[printed][0][0].split(" ± ")[0] == f"{mean:.3f}"
    own = scores(folder, "Own", "random", "auac")
    assert len(own) == 3
    assert rows["Random"][3][0].startswith(f"{np.mean(own):.3f}")
    correlation = next(rows for caption, rows in page.tables.items() if caption.startswith("conservation_correlation"))
    totals, values = (np.array(scores(folder, "SST-2", "lrp_ah_ln", name)) for name in ("total", "value"))
    cell = next(row for row in correlation if row[0][0].startswith("LRP(AH+LN)"))[1][0]
    assert cell.startswith(f"{Conservation(totals, values).correlation:.3f}")


def test_best_is_bold_and_the_ceiling_does_not_compete(folder: Path, report: Path) -> None:
    page = Page((report / "report.html").read_text())
    labels = ["random", "attention_last", "gradient_x_input", "lrp_ah_ln", "lrp_conservative"]
    for caption, metric, best, decimals in (("Table 1: AUAC", "auac", max, 3), ("Table 2: AU-MSE", "au_mse", min, 2)):
        means = {label: round(float(np.mean(scores(folder, "SST-2", label, metric))), decimals) for label in labels}
        expected = [label for label in labels if means[label] == best(means.values())]
        body = page.tables[caption][2:]
        bold = [row[0][0].split(" ")[-1] for row in body if row[1][1]]
        assert bold == expected
        assert body[-1][0][0] == "ceiling"
        assert [row[0][0].split(" ")[0] for row in body if row[3][1]] == ["LRP(AH+LN)"], "the paper's best"


def test_published_numbers_stand_beside_ours(report: Path) -> None:
    page = Page((report / "report.html").read_text())
    rows = rows_of(page, "Table 1: AUAC")
    head = page.tables["Table 1: AUAC"]
    assert [text for text, _ in head[0]] == ["method", "SST-2 (6)", "Own (3)"]
    assert [text for text, _ in head[1]] == ["ours", "of possible", "paper", "ours"], "no paper has a task called Own"
    paper = [rows[name][2][0] for name in ("Random", "A-Last", "GI", "LRP(AH+LN)", "lrp_conservative", "ceiling")]
    assert paper == ["0.664", "0.712", "0.847", "0.908", "", ""]


def test_rows_of_published_tables_are_called_by_all_their_words() -> None:
    table = read_published("chefer21_table1_perturbation")
    assert str(table["negative predicted", "rollout"]) == "53.1"
    assert ("negative target", "rollout") not in table
    assert str(read_published("song24_table1_aopc_lodds")["Mask-LRP", "QQP LOdds"]) == "-6.001"
    with pytest.raises(UnknownNameError, match="ali22_table1_auac"):
        read_published("ali22_table1_auc")


def test_markdown_has_the_same_tables(report: Path) -> None:
    """Cell by cell, bold by bold; and every row has as many cells as its head."""
    page = Page((report / "report.html").read_text())
    blocks = re.findall(r"^\*\*(.*)\*\*\n\n((?:\|.*\n)+)", (report / "report.md").read_text(), re.MULTILINE)
    assert [re.sub(r"\\(.)", r"\1", caption) for caption, _ in blocks] == list(page.tables)
    for (_, block), rows in zip(blocks, page.tables.values(), strict=True):
        cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.strip().splitlines()]
        assert len({len(line) for line in cells}) == 1
        theirs = [[(text.strip().strip("*`").replace("`", ""), "**" in text) for text in line] for line in cells[2:]]
        ours = rows[-len(theirs) :]
        assert [
            [(text.replace("<", "&lt;").replace(">", "&gt;"), bold) for text, bold in row] for row in ours
        ] == theirs


def test_nothing_is_loaded_from_outside(report: Path) -> None:
    text = (report / "report.html").read_text()
    page = Page(text)
    for tag, name, value in page.attributes:
        assert tag not in ("script", "link", "iframe", "object", "base"), (tag, name)
        assert name != "src" or value.startswith("data:"), value
        assert name != "href" or value.startswith("#"), value
        assert not name.startswith("on"), name
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    assert "http://" not in text
    assert "https://" not in text


def test_hostile_texts_are_only_texts(report: Path) -> None:
    text, plain = (report / "report.html").read_text(), (report / "report.md").read_text()
    for page in (text, plain):
        assert "<script" not in page
        assert "<two>" not in page
        assert "no <memory>" not in text
        assert "A small run of &lt;two&gt; tasks" in page
    shown = re.sub(r"</?span[^>]*>", "", text)
    assert "&lt;script&gt;alert(&quot;a &amp; b&quot;)&lt;/script&gt;" in shown.replace("&quot; a", "&quot;a")
    for figure in (report / "figures").glob("*.svg"):
        ET.parse(figure)


def test_figures_of_markdown_are_there(report: Path) -> None:
    links = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (report / "report.md").read_text())
    assert sorted(report / link for link in links) == sorted((report / "figures").iterdir())
    assert {"figures/curve-auac.svg", "figures/curve-au-mse.svg", "figures/conservation-sst-2.svg"} <= set(links)


def test_a_report_is_the_same_each_time(folder: Path, report: Path, tmp_path: Path) -> None:
    write_report(read_results(folder), tmp_path)
    for name in ("report.html", "report.md"):
        assert (tmp_path / name).read_bytes() == (report / name).read_bytes()


def test_failures_command_environment_and_models_are_told(report: Path) -> None:
    text, plain = (report / "report.html").read_text(), (report / "report.md").read_text()
    assert "no &lt;memory&gt; left &amp; no hope" in text
    assert "ValueError: no <memory> left & no hope" in plain, "in a block of code, as it was said"
    for page in (text, plain):
        assert "Own, examples 3, 4, 5: failed 3 times." in page
        assert "This run is not complete: 1 parts of the work failed and 0 are still to be done." in page
        assert "87.5 %" in page
        assert "&lt;fast&gt;" in page
    assert "    relprop bench run small --out 'a b'\n" in plain


def test_cost_is_told_in_gradients(folder: Path, report: Path) -> None:
    seconds = read_results(folder).tasks["SST-2"].seconds
    rows = rows_of(Page((report / "report.html").read_text()), "What the methods cost")
    assert rows["LRP(AH+LN)"][0][0] == f"{6 / seconds['lrp_ah_ln']:.1f}"
    assert rows["LRP(AH+LN)"][1][0] == f"{seconds['lrp_ah_ln'] / seconds['gradient_x_input']:.2f}"
    assert rows["GI"][1][0] == "1.00"


def test_heatmaps_and_the_difference_that_the_suite_asks_for(folder: Path) -> None:
    """Each scaled to its strongest word."""
    results = read_results(folder)
    found = [block for block in heatmaps(results) if isinstance(block, Heatmaps)]
    assert len(found) == 2
    exhibits = {
        one["method"]: Explanation.from_json(one["explanation"]).without_special()
        for one in results.tasks["SST-2"].exhibits
        if f"example {one['example']}" in found[0].caption
    }
    names = [one.method for one in found[0].heatmaps]
    assert names[:5] == ["Random", "A-Last", "GI", "LRP(AH+LN)", "lrp_conservative"]
    assert names[5] == "difference: LRP(AH+LN) - GI"
    first, second = (np.array(exhibits[label].scores) for label in ("lrp_ah_ln", "gradient_x_input"))
    expected = first / np.abs(first).max() - second / np.abs(second).max()
    np.testing.assert_allclose(found[0].heatmaps[5].scores, expected, atol=1e-12)


def test_folders_that_hold_no_single_run_are_refused(folder: Path, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        with pytest.raises(InputError, match="does not say which suite"):
            read_results(tmp_path)
        with Store(folder, read_only=True) as other:
            store.note("suite", other.about("suite") or "")
            row = other.rows()[0]
        store.plan([("a", row.spec), ("b", row.spec)])
        store.succeed("a", row.result, 1.0)
        store.succeed("b", row.result, 1.0)
    with pytest.raises(InputError, match=r'"SST-2" has example \d twice'):
        read_results(tmp_path)


# What a statistic is: with weights that count examples, the number of the sample in which each stands so many times.

RNG = np.random.default_rng(0)
COLUMNS: dict[str, list[float]] = {
    "auac": [*RNG.random(8), float("nan")],
    "total": list(RNG.normal(size=9)),
    "value": list(RNG.normal(size=9)),
    "correct": list(RNG.integers(1, 50, 9).astype(float)),
    "labelled": list(RNG.integers(50, 60, 9).astype(float)),
    **{f"intersection_{k}": list(RNG.integers(0, 20, 9).astype(float)) for k in (0, 1)},
    **{f"union_{k}": list(RNG.integers(20, 40, 9).astype(float)) for k in (0, 1)},
}


def slowly(metric: str, columns: dict[str, Any]) -> float:
    if metric == "auac":
        return float(np.nanmean(columns["auac"]))
    if metric.startswith("conservation"):
        return Conservation(columns["total"], columns["value"]).summary()[metric]
    inter, union = (np.stack([columns[f"{name}_{k}"] for k in (0, 1)], 1) for name in ("intersection", "union"))
    tally = Segmentation(columns["correct"], columns["labelled"], inter, union, np.zeros(9))
    return tally.summary()[metric]


@pytest.mark.parametrize("metric", ["auac", *CONSERVATION, "pixel_accuracy", "mean_iou"])
def test_statistics_of_samples_drawn_anew(metric: str) -> None:
    statistic = metric_statistic(metric, COLUMNS)
    assert statistic is not None
    weights = np.random.default_rng(1).multinomial(9, np.full(9, 1 / 9), size=20)
    for found, counts in zip(statistic(weights.astype(float)), weights, strict=True):
        sample = {name: np.repeat(values, counts) for name, values in COLUMNS.items()}
        assert found == pytest.approx(slowly(metric, sample))


def test_a_metric_without_columns_is_not_there() -> None:
    assert metric_statistic("auac", {"total": [1.0]}) is None
    assert metric_statistic("conservation_gap", {"total": [1.0]}) is None
    constant = metric_statistic("conservation_correlation", {"total": [1.0, 1.0], "value": [1.0, 2.0]})
    assert constant is not None
    assert bootstrap(constant, 2, 0) is None
    nothing = metric_statistic("auac", {"auac": [float("nan")] * 3})
    assert nothing is not None
    assert bootstrap(nothing, 3, 0) is None


def test_intervals_hold_the_mean_repeat_and_are_paired() -> None:
    values = np.random.default_rng(2).normal(size=200)
    statistic = metric_statistic("x", {"x": list(values)})
    assert statistic is not None
    one, again, other = bootstrap(statistic, 200, 5), bootstrap(statistic, 200, 5), bootstrap(statistic, 200, 6)
    assert one is not None
    assert again is not None
    assert other is not None
    low, high = one.interval()
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 200**0.5, rel=0.1)
    assert one.interval() == again.interval() != other.interval()
    shifted = metric_statistic("x", {"x": list(values + 0.01)})
    assert shifted is not None
    near = bootstrap(shifted, 200, 5)
    assert near is not None
    assert near.minus(one).interval() == pytest.approx((0.01, 0.01)), "paired, the difference is sure"


def test_share_of_what_is_possible() -> None:
    """Only over examples where the ceiling is known: here the last two."""
    values, floor = np.array([9.0, 3.0, 4.0]), np.array([1.0, 1.0, 2.0])
    statistic = share(values, floor, np.array([np.nan, 5.0, 6.0]))
    assert statistic(np.ones((1, 3)))[0] == pytest.approx((2 + 2) / (4 + 4))


def test_shares_in_the_table(folder: Path, report: Path) -> None:
    page = Page((report / "report.html").read_text())
    rows = rows_of(page, "Table 1: AUAC")
    columns = {label: np.array(scores(folder, "SST-2", label, "auac")) for label in ("random", "lrp_ah_ln", "ceiling")}
    known = ~np.isnan(columns["ceiling"])
    assert known.sum() == 4
    floor, ours, top = (columns[label][known].mean() for label in columns)
    assert rows["LRP(AH+LN)"][1][0].split(" ")[0] == f"{100 * (ours - floor) / (top - floor):.0f}"
    assert rows["Random"][1][0] == "0 %"
    assert rows["ceiling"][1][0] == "100 %"
    assert "It is known for 4 of 6 (SST-2) examples" in (report / "report.html").read_text()


# Made-up results, to know what must come out.


@dataclass
class Made:
    """A run of one task with the scores given."""

    scores: dict[str, dict[str, list[float]]]
    printed: dict[str, str] = field(default_factory=dict)
    task: str = "SST-2"

    def results(self, **more: Any) -> Results:
        methods = tuple(Method(label, {}, label, self.printed.get(label, label)) for label in self.scores)
        count = len(next(iter(next(iter(self.scores.values())).values())))
        suite = Suite("made", "Made up", methods, (SuiteTask(self.task, "m"),), **more)
        return Results(suite, {self.task: Measurements(list(range(count)), self.scores)})


def noisy(mean: float, spread: float = 0.01) -> list[float]:
    return [mean + spread * (-1) ** i for i in range(40)]


def test_order_is_compared_with_the_papers() -> None:
    """GI and LRP(AH) are the other way round than in the paper, clearly; A-Last and Rollout not clearly."""
    ours = {"A-Last": noisy(0.71), "Rollout": noisy(0.7099, -0.2), "GI": noisy(0.9), "LRP(AH)": noisy(0.8)}
    results = Made({label: {"auac": values} for label, values in ours.items()}).results()
    table = Table("T", "auac", "ali22_table1_auac")
    column = compare(results, table, "SST-2")
    assert column.agreement() == pytest.approx(1 - 6 * 4 / (4 * 15))
    assert [(one.first, one.second) for one in column.reversals()] == [("LRP(AH)", "GI")]
    said = next(block for block in score_table(results, table) if isinstance(block, Bullets)).items[0]
    assert said == (
        "SST-2: rank correlation with the paper's order 0.60 over 4 methods; the other way round than in the paper, "
        "GI is ahead of LRP(AH) by 0.100 (0.100 to 0.100)."
    )


def test_lower_can_be_better() -> None:
    """By AU-MSE the paper has LRP(AH) ahead of GI; here it is behind."""
    ours = {"A-Last": noisy(3.0), "GI": noisy(1.0), "LRP(AH)": noisy(2.0)}
    results = Made({label: {"au_mse": values} for label, values in ours.items()}).results()
    column = compare(results, Table("T", "au_mse", "ali22_table2_aumse"), "SST-2")
    assert [(one.first, one.second) for one in column.reversals()] == [("LRP(AH)", "GI")]


def grids(results: Results) -> Iterator[TableBlock]:
    for table in tables_to_show(results):
        yield from (block for block in score_table(results, table) if isinstance(block, TableBlock))


def test_nan_is_left_out_and_told() -> None:
    made = Made(
        {"a": {"auac": [0.5, float("nan"), 0.7, 0.9]}, "b": {"auac": [float("nan")] * 4}, "c": {"aopc": [1.0] * 4}}
    )
    auac, aopc = grids(made.results(metrics=("auac", "aopc")))
    assert [line.name for line in auac.rows] == ["a"], "b has no number at all"
    assert auac.rows[0].cells[0].text.startswith("0.700 ± ")
    assert [cell.text for cell in aopc.rows[0].cells] == ["1.000"], "without spread there is no interval"
    assert notes_of(made) == ["SST-2: 3 of 4 examples have a number."]
    both = Made({"a": {"auac": [0.5, float("nan"), 0.7, 0.9]}, "b": {"auac": [0.5] * 4}})
    assert notes_of(both) == ["SST-2: not all 4 examples have a number: a 3."]


def notes_of(made: Made) -> list[str]:
    return [block.text for block in score_table(made.results(), Table("T", "auac")) if isinstance(block, Paragraph)]


def test_tables_of_a_suite_without_any_and_of_metrics_that_no_table_shows() -> None:
    made = Made({"a": {"aopc": [1.0, 2.0], "auac": [0.1, 0.2], "other": [1.0, 1.0]}})
    assert [table.metric for table in tables_to_show(made.results(metrics=("aopc", "auac")))] == ["aopc", "auac"]
    tables = (Table("Mine", "auac", scale=100.0),)
    results = made.results(metrics=("aopc", "auac"), tables=tables)
    assert [table.title[:4] for table in tables_to_show(results)] == ["Mine", "aopc"]
    assert next(grids(results)).rows[0].cells[0].text == "15.00 ± 5.00"


def test_a_table_by_tasks_of_a_paper_that_has_methods_across() -> None:
    """[Chefer21] Table 1: a row is a kind of perturbation, a column a method."""
    made = Made({"a": {"negative_auc_predicted": [0.5, 0.6]}}, {"a": "rollout"}, "ImageNet")
    table = Table(
        "T", "negative_auc_predicted", "chefer21_table1_perturbation", "negative predicted", "{method}", scale=100
    )
    assert str(compare(made.results(), table, "ImageNet").paper["a"]) == "53.1"


def test_curves_are_means_of_what_is_known() -> None:
    results = Made({"random": {"auac": [0.0, 0.0]}, "a": {"auac": [0.0, 0.0]}}).results(metrics=("auac",))
    measured = results.tasks["SST-2"]
    measured.add_curve("random", "auac", [0, 0.5, 1], [[0, 0, 0], [0, 0, 1]])
    measured.add_curve("a", "auac", [0, 0.5, 1], [[0, 1, 1], [0, float("nan"), 1]])
    (plot,) = figures.curves(results)
    assert [(one.style.name, one.points) for one in plot.panels[0].series] == [
        ("random", [(0, 0), (0.5, 0), (1, 0.5)]),
        ("a", [(0, 0), (0.5, 1), (1, 1)]),
    ], "references below the methods"
    assert [(one.name, one.dash) for one in plot.legend] == [("a", "solid"), ("random", "dashed")]
    assert plot.legend[1].colour == plots.GREY


def test_every_method_has_its_own_line_style() -> None:
    styles = [plots.line_style("", number) for number in range(18)]
    assert len({(one.colour, one.dash) for one in styles}) == 18


def panel(*series: Series, title: str = "A & <b> $x$") -> Panel:
    return Panel(title, f"what {title} shows", "x", "y", series)


def path_points(svg: str, colour: str) -> list[tuple[float, float]]:
    """The vertices of the only path of this colour, in units of the drawing."""
    (found,) = [path for path in re.findall(r"<path [^>]*>", svg) if f"stroke: {colour}" in path]
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] ([\d.]+) ([\d.]+)", found)]


def test_a_panel_draws_its_points_where_they_belong() -> None:
    """Evenly spaced along x, and y upwards: the middle point is three quarters up."""
    points = [(0.0, 0.0), (0.5, 0.75), (1.0, 1.0)]
    (x0, y0), (x1, y1), (x2, y2) = path_points(
        plots.inline_svg(panel(Series(plots.line_style("a", 0), points))), plots.COLOURS[0]
    )
    assert x1 - x0 == pytest.approx(x2 - x1, abs=1e-3)
    assert x2 > x0
    assert y0 > y1 > y2
    assert (y0 - y1) / (y0 - y2) == pytest.approx(0.75, abs=1e-3)


def test_a_panel_is_transparent_text_that_takes_the_colour_of_the_page() -> None:
    series = (
        Series(plots.line_style("a", 0), [(0, 0), (1, 1)]),
        Series(plots.line_style("b", 1), [(0, 1)], joined=False),
    )
    svg = plots.inline_svg(panel(*series))
    root = ET.fromstring(svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1))
    svg_name = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    assert root.findtext(f"{svg_name}title") == "what A & <b> $x$ shows"
    texts = [one.text for one in root.iter(f"{svg_name}text")]
    assert {"A & <b> $x$", "x", "y"} <= set(texts), "text as text, and no formulas"
    assert "fill: currentColor" in svg
    assert "#ffffff" not in svg
    assert "<style" not in svg


def test_two_drawings_of_a_page_share_no_id(report: Path) -> None:
    page = Page((report / "report.html").read_text())
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    used = [value.removeprefix("#") for _, name, value in page.attributes if name == "href"]
    assert set(used) <= set(ids)


def test_methods_along_a_line_pictures_heads_and_blocks(tmp_path: Path) -> None:
    made = Made({f"mask {x}": {"aopc": noisy(0.4 - x)} for x in (0.0, 0.1, 0.2)}).results(metrics=("aopc",))
    methods = [
        replace(one, line="both", x=k / 10, options={"corrupt": k / 10}) for k, one in enumerate(made.suite.methods)
    ]
    extra = Method("lrp_ah", {}, "<b>", "<b>")
    results = replace(made, suite=replace(made.suite, methods=(*methods, extra)))
    measured = results.tasks["SST-2"]
    measured.add_curve("<b>", "relevance_by_block", [0, 1, 2], [[0.2, 0.3, 0.5]] * 40)
    png = base64.b64encode(b"\x89PNG not really").decode()
    measured.exhibits.extend([
        {"kind": "heads", "kinds": [["positional", "neither"]], "offsets": {"nsubj": {"-1": 0.6, "2": 0.4}},
         "model": "<m>", "corpus": "c"},
        {"kind": "image", "example": 4, "method": "<b>", "target": "cat", "png": png},
        {"kind": "image", "example": 4, "method": "picture", "png": png},
    ])  # fmt: skip
    found = {section.heading: section.blocks for section in report_sections(results)}
    assert {"Over a setting", "Curves", "Heads", "Pictures"} <= set(found)
    line: Any = found["Over a setting"][0]
    (series,) = line.panels[0].series
    assert [x for x, _ in series.points] == [0.0, 0.1, 0.2]
    assert all(low <= y <= high for (_, y), (low, high) in zip(series.points, series.intervals, strict=True))
    drawn = plots.inline_svg(line.panels[0])
    assert drawn.count("<use") == 3, "a marker per point"
    assert ">corrupt</text>" in drawn
    pictures: Any = found["Pictures"][0]
    assert [one.title for one in pictures.images] == ["picture", "<b>"], "what is no method comes first"
    assert pictures.caption == "SST-2, example 4 (cat)"
    write_report(results, tmp_path)
    assert "<b>" not in (tmp_path / "report.html").read_text()
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".svg", ".png"}


def test_names_that_would_be_one_file_are_two(tmp_path: Path) -> None:
    results = Made({"a": {"total": [1.0, 2.0], "value": [1.0, 3.0]}}).results()
    both = replace(results, tasks={"A b": results.tasks["SST-2"], "A-b": results.tasks["SST-2"]})
    both = replace(both, suite=replace(both.suite, tasks=(SuiteTask("A b", "m"), SuiteTask("A-b", "m"))))
    assert [path.name for path in write_report(both, tmp_path)[2:]] == [
        "conservation-a-b.svg",
        "conservation-a-b-2.svg",
    ]


def test_nothing_done_yet_is_still_a_report(tmp_path: Path) -> None:
    suite = Suite("s", "T", (Method("random", {}, "random", "Random"),), (SuiteTask("One", "m"),), ("auac",))
    left = Results(
        suite, {}, (StoredResult("k", {"task": {"name": "One"}, "places": [1]}, 3, None, None, None),), left=4
    )
    write_report(left, tmp_path)
    assert "4 are still to be done" in (tmp_path / "report.md").read_text()
