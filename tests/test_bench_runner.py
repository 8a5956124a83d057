"""The benchmark runner: nothing acknowledged is lost, nothing counts twice, and what fails does not stop the rest."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import bench_work
from relprop.bench.executors import in_process, processes
from relprop.bench.runner import key_of, run
from relprop.bench.store import FILE, Row, Store
from relprop.errors import InputError, RelpropError


def content(folder: Path) -> list[tuple[str, Any]]:
    """What counts in the end: every cell's result, in order; not how long it took."""
    with Store(folder, create=False) as store:
        return [(row.key, row.result) for row in store.rows()]


def finished(folder: Path, count: int, **options: Any) -> list[tuple[str, Any]]:
    with Store(folder) as store:
        assert run(store, bench_work.specs(count), bench_work.square, **options).complete
    return content(folder)


def killed(folder: Path, count: int, workers: int, after: float) -> list[str]:
    """Run, kill after a while; the keys that were acknowledged."""
    command = [sys.executable, bench_work.__file__, str(folder), str(count), str(workers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
        return process.stdout.read().splitlines()


def test_a_run_killed_again_and_again_ends_as_if_undisturbed(tmp_path: Path) -> None:
    """SIGKILL at random moments: every acknowledged cell is there each time, and the end is bit-identical."""
    rng, count = random.Random(0), 200
    expected = finished(tmp_path / "calm", count)
    known: set[str] = set()
    for _ in range(30):
        known.update(line for line in killed(tmp_path / "wild", count, 1, rng.uniform(0.0, 0.15)) if len(line) == 32)
        done = {key for key, result in content(tmp_path / "wild") if result is not None}
        assert known <= done
    assert 0 < len(known) < count
    assert finished(tmp_path / "wild", count) == expected


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_killed_with_several_workers(tmp_path: Path, workers: int) -> None:
    rng, count = random.Random(workers), 200
    expected = finished(tmp_path / "calm", count)
    for _ in range(5):
        known = set(killed(tmp_path / "wild", count, workers, rng.uniform(3, 8)))
        assert {key for key in known if len(key) == 32} <= {k for k, r in content(tmp_path / "wild") if r is not None}
    assert finished(tmp_path / "wild", count, executor=processes(workers)) == expected


def test_done_cells_are_not_worked_on_again(tmp_path: Path) -> None:
    """Also when the plan grows: the old results stay, in the new order."""
    seen: list[str] = []
    finished(tmp_path, 5)
    with Store(tmp_path) as store:
        plan = [*bench_work.specs(8)[::-1]]
        run(store, plan, bench_work.square, watch=lambda outcome, *_: seen.append(outcome.key))
        assert [row.spec["number"] for row in store.rows()] == [7, 6, 5, 4, 3, 2, 1, 0]
    assert seen == [key_of({"number": number}) for number in (7, 6, 5)]


def test_a_result_is_stored_once(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.plan([("a", {})])
        store.succeed("a", {"x": 1}, 0.1)
        store.succeed("a", {"x": 2}, 0.1)
        assert store.fail("a", "late") == 0
        assert store.rows() == [Row("a", {}, 0, None, {"x": 1}, 0.1)]


def test_a_cell_that_fails_is_tried_and_set_aside(tmp_path: Path) -> None:
    """Three times, then it is named with its error; all others are done. `forgive` lets it try again."""

    def unlucky(spec: dict[str, Any]) -> dict[str, float]:
        if spec["number"] == 5:
            raise ValueError("no luck")
        return bench_work.square(spec)

    outcomes = []
    with Store(tmp_path) as store:
        specs = bench_work.specs(8)
        summary = run(store, specs, unlucky, watch=lambda outcome, done, total: outcomes.append((done, total)))
        assert (summary.done, summary.left, summary.complete) == (7, 0, False)
        (bad,) = summary.quarantined
        assert (bad.spec, bad.failures) == ({"number": 5}, 3)
        assert bad.error is not None
        assert "ValueError: no luck (test_bench_runner.py:" in bad.error
        assert len(outcomes) == 10
        assert outcomes[-1] == (8, 8)
        assert run(store, specs, unlucky).quarantined[0].failures == 3
        store.forgive()
        assert run(store, specs, bench_work.square).complete


def test_a_dying_worker_is_blamed_alone(tmp_path: Path) -> None:
    """The cell that kills its worker is set aside; those that shared the pool with it have no failure on them."""
    with Store(tmp_path) as store:
        summary = run(store, bench_work.specs(8), bench_work.poisonous, executor=processes(2), tries=2)
        assert {row.spec["number"]: row.error for row in summary.quarantined}.keys() == {3, 5}
        by_number = {row.spec["number"]: row for row in store.rows()}
        assert by_number[3].error == "the worker died"
        assert all(row.failures == 0 for number, row in by_number.items() if number not in (3, 5))
    assert summary.done == 6


def test_processes_give_the_same_numbers(tmp_path: Path) -> None:
    assert finished(tmp_path / "a", 12, executor=processes(2)) == finished(tmp_path / "b", 12, executor=in_process)


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no benchmark results"):
        Store(tmp_path / "none", create=False)
    with pytest.raises(InputError, match="at least 1, got 0"):
        processes(0)
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(RelpropError, match="cannot be opened"):
        Store(tmp_path)
    (tmp_path / "new").mkdir()
    with Store(tmp_path / "new") as store:
        store.note("schema_version", "99")
    with pytest.raises(InputError, match="schema version 99"):
        Store(tmp_path / "new")
