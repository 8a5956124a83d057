"""Claims of the papers: each names what its suite has, and its verdict follows from the paired lead."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from relprop.bench.measurements import Measurements
from relprop.bench.report import read_results
from relprop.bench.report.claims import Claim, claims_page, decide, read_claims
from relprop.bench.store import Store
from relprop.bench.suites import read_suite
from relprop.cli import app
from relprop.errors import InputError
from relprop.metrics import METRICS

CLAIM = Claim("Ali22", "table 1", "AH+LN is ahead", "ali22-text", "auac", "lrp_ah_ln", ("gradient_x_input", "gae"))
LABELS = ("lrp_ah_ln", "gradient_x_input", "gae")


def run(
    folder: Path,
    leads: dict[str, float],
    spread: float = 0.01,
    noisy: str = "",
    names: tuple[str, ...] = ("SST-2", "IMDB"),
    short: str = "",
) -> Path:
    """Tasks of forty examples, or ten, on which the method is ahead of each other one by a lead that varies."""
    random = np.random.default_rng(0)
    tasks = [{"name": name, "model": "sentiment"} for name in names]
    suite = {
        "name": "ali22-text",
        "title": "Own",
        "metrics": ["auac"],
        "methods": [{"method": label, "label": label, "printed": label} for label in LABELS],
        "tasks": tasks,
    }
    with Store(folder) as store:
        store.note("suite", json.dumps(suite))
        store.note("command", "relprop bench run ali22-text")
        for task in tasks:
            count = 10 if task["name"] == short else 40
            found = Measurements(list(range(count)))
            own = random.uniform(0.5, 0.9, count)
            found.add("lrp_ah_ln", "auac", own.tolist())
            for label, lead in leads.items():
                found.add(
                    label, "auac", (own - lead - random.normal(0, 0.5 if label == noisy else spread, count)).tolist()
                )
            store.plan([(task["name"], {"task": task, "places": found.examples})])
            store.succeed(task["name"], found.to_dict(), 1.0)
    return folder


@pytest.mark.parametrize("claim", read_claims(), ids=lambda claim: f"{claim.paper}: {claim.says}")
def test_a_claim_names_what_its_suite_has(claim: Claim) -> None:
    suite = read_suite(claim.suite)
    measured = {task.name: task.metrics or suite.metrics for task in suite.tasks}
    assert {claim.method, *claim.against} <= {one.label for one in suite.methods}
    assert all(claim.metric in measured[task] for task in claim.tasks)
    assert any(claim.metric in metrics for metrics in measured.values())
    assert METRICS[claim.metric].better


@pytest.mark.parametrize(
    ("leads", "verdict", "other"),
    [
        ({"gradient_x_input": 0.1, "gae": 0.05}, "holds", "gae"),
        ({"gradient_x_input": -0.1, "gae": 0.05}, "does not hold", "gradient_x_input"),
        ({"gradient_x_input": 0.1, "gae": 0.0}, "open", "gae"),
    ],
)
def test_the_least_lead_decides(tmp_path: Path, leads: dict[str, float], verdict: str, other: str) -> None:
    found = decide(CLAIM, read_results(run(tmp_path, leads)))
    assert (found.verdict, found.other, found.tasks, found.examples) == (verdict, other, 2, 80)
    assert found.lead is not None
    assert found.ours is not None
    assert found.lead.value == pytest.approx((found.ours[0] - found.ours[1]) / found.ours[1], rel=0.05, abs=0.002)
    assert (found.needed is None) == (verdict != "open")


def test_the_lead_by_seed_is_of_the_tasks_that_have_two(tmp_path: Path) -> None:
    found = decide(CLAIM, read_results(run(tmp_path / "one", {"gradient_x_input": 0.1, "gae": 0.05})))
    assert found.seeds is None
    names = ("SST-2", "IMDB", "SST-2, seed 1")
    results = read_results(run(tmp_path / "two", {"gradient_x_input": 0.1, "gae": 0.05}, names=names))
    found = decide(CLAIM, results)
    assert found.lead is not None
    assert found.seeds is not None
    each = [decide(replace(CLAIM, tasks=(name,)), results).lead for name in names]
    assert found.seeds == pytest.approx([each[0].value, each[2].value])  # type: ignore[union-attr]
    sst2 = (each[0].value + each[2].value) / 2  # type: ignore[union-attr]
    assert found.lead.value == pytest.approx((sst2 + each[1].value) / 2)  # type: ignore[union-attr]
    assert (found.tasks, found.examples) == (3, 80)
    assert f"by seed {found.seeds[0]:+.1%}, {found.seeds[1]:+.1%}" in claims_page([found], {}, tmp_path)


@pytest.mark.parametrize(
    ("second", "narrower"),
    [("SST-2, seed 1", 1.0), ("IMDB", 2**-0.5)],
    ids=["the same data by another model", "other data"],
)
def test_only_other_data_makes_the_interval_narrower(tmp_path: Path, second: str, narrower: float) -> None:
    names = ("SST-2", second)
    results = read_results(run(tmp_path, {"gradient_x_input": 0.1, "gae": 0.05}, spread=0.05, names=names))
    widths = [decide(replace(CLAIM, tasks=(name,)), results).lead.half_width for name in names]  # type: ignore[union-attr]
    both = decide(CLAIM, results).lead
    assert both is not None
    assert both.half_width == pytest.approx(np.mean(widths) * narrower, rel=0.1)


def test_of_the_same_data_each_model_counts_by_its_examples(tmp_path: Path) -> None:
    names = ("SST-2", "SST-2, seed 1")
    leads = {"gradient_x_input": 0.1, "gae": 0.05}
    results = read_results(run(tmp_path, leads, spread=0.05, names=names, short=names[1]))
    each = [decide(replace(CLAIM, tasks=(name,)), results).lead for name in names]
    both = decide(CLAIM, results)
    assert both.lead is not None
    assert both.lead.value == pytest.approx((4 * each[0].value + each[1].value) / 5)  # type: ignore[union-attr]
    assert both.examples == 40


def test_the_lead_over_a_number_that_may_be_0_is_a_difference(tmp_path: Path) -> None:
    """A share of it would be any number."""
    results = read_results(run(tmp_path, {"gradient_x_input": 0.7, "gae": 0.1}))
    every = {other: decide(replace(CLAIM, against=(other,)), results) for other in CLAIM.against}
    assert {other: one.is_share for other, one in every.items()} == {"gradient_x_input": False, "gae": True}
    found = every["gradient_x_input"]
    assert found.verdict == "holds"
    assert found.lead is not None
    assert found.lead.value == pytest.approx(0.7, abs=0.01)
    assert f"| {found.lead.value:+.3f} (" in claims_page([found], {}, tmp_path)


def test_a_lead_that_is_lost_counts_before_a_smaller_one_that_is_open(tmp_path: Path) -> None:
    """`gae` is clearly ahead by a little, gradient x input by more on average, and by chance."""
    results = read_results(run(tmp_path, {"gradient_x_input": -0.1, "gae": -0.01}, noisy="gradient_x_input"))
    leads = {other: decide(replace(CLAIM, against=(other,)), results) for other in CLAIM.against}
    assert {other: one.verdict for other, one in leads.items()} == {"gradient_x_input": "open", "gae": "does not hold"}
    least = {other: one.lead.value for other, one in leads.items() if one.lead is not None}
    assert least["gradient_x_input"] < least["gae"]
    found = decide(CLAIM, results)
    assert (found.verdict, found.other) == ("does not hold", "gae")


def test_more_examples_decide_what_is_open(tmp_path: Path) -> None:
    """The number that is said to be needed grows with the square of interval over lead."""
    found = decide(CLAIM, read_results(run(tmp_path, {"gradient_x_input": 0.1, "gae": 0.002}, spread=0.05)))
    assert found.verdict == "open"
    assert found.lead is not None
    assert found.needed == int(np.ceil(80 * (found.lead.half_width / abs(found.lead.value)) ** 2))


def test_what_was_not_run_is_said(tmp_path: Path) -> None:
    assert decide(CLAIM, None).verdict == "not run"
    partly = run(tmp_path, {"gradient_x_input": 0.1})
    assert decide(CLAIM, read_results(partly)).verdict == "not run"


def test_the_page_says_that_a_run_is_not_whole(tmp_path: Path) -> None:
    folder = run(tmp_path, {"gradient_x_input": 0.1, "gae": 0.05})
    with Store(folder) as store:
        store.plan([("another", {"task": {"name": "SST-2"}, "places": [40]})])
    results = read_results(folder)
    page = claims_page([decide(CLAIM, results)], {"ali22-text": results}, tmp_path)
    assert "`ali22-text` (1 of its cells are still to be done):" in page


def test_the_page_says_what_was_not_begun(tmp_path: Path) -> None:
    """A task whose model is not trained yet has no planned cells."""
    results = read_results(run(tmp_path, {"gradient_x_input": 0.1, "gae": 0.05}))
    results = replace(results, tasks={"SST-2": results.tasks["SST-2"]})
    page = claims_page([decide(CLAIM, results)], {"ali22-text": results}, tmp_path)
    assert "`ali22-text` (there is nothing yet of IMDB):" in page


def test_a_claim_of_a_method_that_the_run_lacks(tmp_path: Path) -> None:
    results = read_results(run(tmp_path, {"gradient_x_input": 0.1, "gae": 0.05}))
    other = Claim("Ali22", "table 1", "rollout is ahead", "ali22-text", "auac", "rollout", ("gae",))
    with pytest.raises(InputError, match='is of "rollout", which "ali22-text" does not have'):
        decide(other, results)


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relprop.bench.report.claims.read_claims", lambda: (CLAIM,))
    folder, page = run(tmp_path / "run", {"gradient_x_input": 0.1, "gae": 0.05}), tmp_path / "claims.md"
    done = CliRunner().invoke(app, ["bench", "claims", str(folder), "--out", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert "Of 1 claims 1 hold, 0 do not" in text
    assert "better on 2 of 2 tasks, worse on 0 | **holds** | `ali22-text` |" in text
    assert "    relprop bench run ali22-text" in text
    (tmp_path / "ali22-text").mkdir()
    (tmp_path / "ali22-text" / "report.md").touch()
    assert CliRunner().invoke(app, ["bench", "claims", str(folder), "--out", str(page)]).exit_code == 0
    assert "| [ali22-text](ali22-text/report.md) |" in page.read_text(encoding="utf-8")
    again = CliRunner().invoke(app, ["bench", "claims", str(folder), str(folder), "--out", str(page)])
    assert "second run" in str(again.exception)
