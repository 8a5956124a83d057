"""The paired comparison of two methods in a benchmark's results."""

import json
from pathlib import Path

import pytest

from paired import differences, main
from relprop.bench.measurements import Measurements
from relprop.bench.store import Store
from relprop.errors import InputError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Ten examples: `gae` is ahead by 0.1 on every one, though they differ far more from each other."""
    low = [number / 10 for number in range(10)]
    found = Measurements(list(range(10)))
    for label, lead in (("rollout", 0.0), ("gae", 0.1)):
        found.add(label, "auac", [value + lead for value in low])
        found.add(label, "au_mse", [value + lead for value in low])
    task = {"name": "own", "model": "sentiment"}
    suite = {
        "name": "own",
        "title": "Own",
        "metrics": ["auac", "au_mse"],
        "methods": [{"method": label, "label": label} for label in ("rollout", "gae")],
        "tasks": [task],
    }
    with Store(tmp_path) as store:
        store.note("suite", json.dumps(suite))
        store.plan([("a", {"task": task, "places": found.examples})])
        store.succeed("a", found.to_dict(), 1.0)
    return tmp_path


def test_differences_are_paired_and_signed_by_what_is_better(run: Path) -> None:
    auac, au_mse = differences(run, "gae", "rollout")
    assert (auac.lead.value, au_mse.lead.value) == (pytest.approx(0.1), pytest.approx(-0.1))
    assert auac.lead.half_width < 1e-9  # unpaired it would be about 0.25
    assert (auac.verdict, au_mse.verdict) == ("better", "worse")


def test_counts_are_printed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(run), "--method", "gae", "--against", "rollout"])
    assert "1 better, 0 open, 1 worse" in capsys.readouterr().out


def test_a_method_that_is_not_there_is_said(run: Path) -> None:
    with pytest.raises(InputError, match='has no method "lrp"; it has gae, rollout'):
        list(differences(run, "lrp", "gae"))
