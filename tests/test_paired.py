"""The paired comparison of two methods in a benchmark's results."""

import json
from pathlib import Path

import numpy as np
import pytest

from paired import Difference, differences, holm_verdicts, main
from relprop.bench.measurements import Measurements
from relprop.bench.store import Store
from relprop.bootstrap import Estimate
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


def test_verdicts_are_corrected_for_the_number_of_comparisons() -> None:
    """p of 0.001, 0.02 and 0.04: all hold among three comparisons, and only the first among six."""
    draws = np.random.default_rng(0).normal(size=20_000)
    draws = (draws - draws.mean()) / draws.std()
    found = [Difference("t", "auac", Estimate(z, draws + z)) for z in (2.0537, -3.2905, 2.3263)]
    assert [one.p_value for one in found] == pytest.approx([0.04, 0.001, 0.02], rel=1e-3)
    assert [one.verdict for one in found] == ["better", "worse", "better"]
    assert holm_verdicts(found) == ["better", "worse", "better"]  # 0.001 < 0.05 / 3, 0.02 < 0.05 / 2, 0.04 < 0.05
    assert holm_verdicts([*found, *found[:1] * 3]) == ["open", "worse", "open", "open", "open", "open"]
    assert holm_verdicts([Difference("t", "auac", Estimate(0.0, np.zeros(5)))]) == ["open"]
