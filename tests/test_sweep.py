"""Coverage of architectures: a sample in every run, the whole of transformers in the slow one."""

import pytest

import sweep
from tiny_models import cases

SAMPLE = 20  # every twentieth pair: all tasks, small and odd architectures alike


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", cases()[::SAMPLE], ids=lambda case: f"{case.task}-{case.architecture}")
def test_sampled_architectures_are_unchanged_and_close(case: sweep.Case) -> None:
    """What runs gives the plain outputs, and its books close unless a function of its own hides its insides."""
    result = sweep.run(case)
    assert result.status in ("closed", "not built") or "not traced (" in result.detail, result


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_architecture() -> None:
    """At least 300 pairs run with unchanged outputs; at least 95 % of those that run close their books."""
    results = sweep.sweep(cases())
    ran = [result for result in results if result.status not in ("not built", "failed")]
    closed = [result for result in ran if result.status == "closed"]
    assert sum(result.unchanged for result in ran) >= 300
    assert len(closed) >= 0.95 * len(ran)
    assert all(result.detail for result in results if result.status != "closed")
