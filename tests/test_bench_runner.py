"""The benchmark runner: nothing acknowledged is lost, nothing counts twice, and what fails does not stop the rest."""

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import bench_work
from relprop.bench.executors import Executor, in_process, processes
from relprop.bench.export import fingerprint
from relprop.bench.runner import run_cells
from relprop.bench.store import Store, StoredResult, cell_key
from relprop.bench.store_files import FILE
from relprop.errors import InputError, RelpropError

KILLS, CELLS = 10, 500
AHEAD = 6  # cells that three workers hold
HANGS = 300.0  # seconds; nothing here takes as long


def rows(folder: Path) -> list[StoredResult]:
    with Store(folder, read_only=True) as store:
        return store.rows()


def finish(folder: Path, count: int, executor: Executor = in_process) -> None:
    with Store(folder) as store:
        assert run_cells(store, bench_work.specs(count), bench_work.square, executor=executor).complete


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of the export of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("calm")
    finish(folder, CELLS)
    return fingerprint(folder)


def killed(folder: Path, workers: int, after: int) -> list[str]:
    """Run, and kill after so many acknowledgements; the keys that were acknowledged. No worker stays behind.

    The run is let go a little further than that, so that the kill comes in the middle of something.
    """
    command = [sys.executable, bench_work.__file__, str(folder), str(CELLS), str(workers), "--leave"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.stdin.write("one more\n" * (after + AHEAD))
        process.stdin.flush()
        seen = [process.stdout.readline() for _ in range(after)]
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        _, left = psutil.wait_procs(children, timeout=HANGS)
        for orphan in left:
            orphan.kill()
        assert not left
        return [line.strip() for line in [*seen, *process.stdout]]


@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_a_run_killed_again_and_again_ends_as_if_undisturbed(tmp_path: Path, undisturbed: str, workers: int) -> None:
    """SIGKILL at random moments: what was acknowledged stays and is never worked on again; the export is the same."""
    rng, known = random.Random(workers), list[str]()
    for _ in range(KILLS):
        known += killed(tmp_path, workers, after=rng.randrange(8))
        assert set(known) <= {row.key for row in rows(tmp_path) if row.done}
    assert KILLS < len(known) < CELLS
    assert len(known) == len(set(known))
    finish(tmp_path, CELLS, bench_work.executor_of(str(workers)))
    assert fingerprint(tmp_path) == undisturbed
    assert not any(row.failures for row in rows(tmp_path))


def test_done_cells_are_not_worked_on_again(tmp_path: Path) -> None:
    """Also when the plan grows: the old results stay, in the new order."""
    seen: list[str] = []
    finish(tmp_path, 5)
    with Store(tmp_path) as store:
        plan = bench_work.specs(8)[::-1]
        run_cells(store, plan, bench_work.square, watch=lambda outcome, *_: seen.append(outcome.key))
        assert [row.spec["number"] for row in store.rows()] == [7, 6, 5, 4, 3, 2, 1, 0]
    assert sorted(seen) == sorted(cell_key(spec) for spec in plan[:3])


def test_a_run_that_is_stopped_has_a_fair_sample_of_each_task_in_turn(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    plan = [spec for name in ("b", "a") for spec in bench_work.specs(50, task={"name": name, "model": "none"})]

    def watched(spec: dict[str, Any]) -> dict[str, Any]:
        seen.append(spec)
        return bench_work.square(spec)

    with Store(tmp_path) as store:
        run_cells(store, plan, watched)
        assert [row.spec for row in store.rows()] == plan
    assert [spec["task"]["name"] for spec in seen] == ["b"] * 50 + ["a"] * 50
    first = [spec["number"] for spec in seen[:20]]
    assert 15 < sum(first) / 20 < 35
    assert min(first) < 10
    assert max(first) >= 40


def test_a_result_is_stored_once(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.plan([("a", {})])
        store.succeed("a", {"x": 1}, 0.1)
        store.succeed("a", {"x": 2}, 0.1)
        assert store.fail("a", "late") == 0
        assert store.rows() == [StoredResult("a", {}, 0, None, {"x": 1}, 0.1)]


def test_a_cell_that_fails_is_tried_and_set_aside(tmp_path: Path) -> None:
    """Three times, then it is named with its error; all others are done. `forgive` lets it try again."""

    def unlucky(spec: dict[str, Any]) -> dict[str, Any]:
        if spec["number"] == 5:
            raise ValueError("no luck")
        return bench_work.square(spec)

    outcomes = []
    with Store(tmp_path) as store:
        specs = bench_work.specs(8)
        summary = run_cells(store, specs, unlucky, watch=lambda outcome, done, total: outcomes.append((done, total)))
        assert (summary.done, summary.left, summary.complete) == (7, 0, False)
        (bad,) = summary.quarantined
        assert (bad.spec["number"], bad.failures) == (5, 3)
        assert bad.error is not None
        assert "ValueError: no luck (test_bench_runner.py:" in bad.error
        assert len(outcomes) == 10
        assert outcomes[-1] == (8, 8)
        assert run_cells(store, specs, unlucky).quarantined[0].failures == 3
        store.forget_failures()
        assert run_cells(store, specs, bench_work.square).complete


def test_a_dying_worker_is_blamed_alone(tmp_path: Path) -> None:
    """The cell that kills its worker is set aside; those that shared the pool with it have no failure on them."""
    with Store(tmp_path) as store:
        summary = run_cells(store, bench_work.specs(8), bench_work.poisonous, executor=processes(2), tries=2)
        assert {row.spec["number"]: row.error for row in summary.quarantined}.keys() == {3, 5}
        by_number = {row.spec["number"]: row for row in store.rows()}
        assert by_number[3].error == "the worker died"
        assert all(row.failures == 0 for number, row in by_number.items() if number not in (3, 5))
    assert summary.done == 6


def test_processes_give_the_same_numbers(tmp_path: Path) -> None:
    finish(tmp_path / "a", 12, processes(2))
    finish(tmp_path / "b", 12)
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no benchmark results"):
        Store(tmp_path / "none", read_only=True)
    with pytest.raises(InputError, match="at least 1, got 0"):
        processes(0)
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(RelpropError, match=r"damaged \(file is not a database\)"):
        Store(tmp_path)
    (tmp_path / "new").mkdir()
    with Store(tmp_path / "new") as store:
        store.note("schema_version", "99")
    with pytest.raises(InputError, match="schema version 99"):
        Store(tmp_path / "new")
