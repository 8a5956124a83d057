"""Benchmarks on Ray: the same numbers, one failure a dead worker, and a local cluster that nobody else can reach."""

import importlib.util
import ipaddress
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import bench_work
from relprop.bench.executors import Executor, in_process, on_ray, processes
from relprop.bench.export import fingerprint, result_rows
from relprop.bench.runner import RunSummary, run_cells
from relprop.bench.store import Store, cell_key
from relprop.errors import InputError, RelpropError

if importlib.util.find_spec("ray") is None:  # not importorskip: Ray reads its settings when it is first imported
    pytest.skip("needs ray", allow_module_level=True)


HANGS = 300.0  # seconds; nothing here takes as long
os.environ.update(RAY_gcs_server_port_wait_time_s="300", RAY_worker_register_timeout_seconds="300")


@pytest.fixture(autouse=True, scope="module")
def _unhurried() -> None:
    on_ray()  # imports Ray, with relprop's settings
    bench_work.unhurried()


def ran(folder: Path, work: Any, specs: list[dict[str, Any]], executor: Executor, **options: Any) -> RunSummary:
    with Store(folder) as store:
        return run_cells(store, specs, work, executor=executor, **options)


def family() -> list[psutil.Process]:
    return [psutil.Process(), *psutil.Process().children(recursive=True)]


def listening() -> set[str]:
    """The addresses at which this process and those that it started can be reached."""
    found = set()
    for process in family():
        with suppress(psutil.NoSuchProcess):
            listeners = [one for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
            found.update(one.laddr.ip.removeprefix("::ffff:") for one in listeners)
    return found


def test_the_same_numbers_everywhere_and_nobody_can_listen_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the last bits: workers have one thread, whatever the environment says."""
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    threads, specs, addresses = torch.get_num_threads(), bench_work.specs(8), set[str]()
    torch.set_num_threads(1)
    try:
        assert ran(tmp_path / "here", bench_work.summed, specs, in_process).complete
    finally:
        torch.set_num_threads(threads)
    assert ran(tmp_path / "processes", bench_work.summed, specs, processes(2)).complete

    def watch(*_: Any) -> None:
        addresses.update(listening())

    assert ran(tmp_path / "ray", bench_work.summed, specs, on_ray(num_cpus=2), watch=watch).complete
    assert list(result_rows(tmp_path / "ray")) == list(result_rows(tmp_path / "here"))
    assert len({fingerprint(tmp_path / name) for name in ("here", "processes", "ray")}) == 1
    assert {row[-1] for row in result_rows(tmp_path / "ray") if row[3] == "threads"} == {1}
    assert addresses
    assert all(ipaddress.ip_address(address).is_loopback for address in addresses)


def test_a_dead_worker_is_one_failure(tmp_path: Path) -> None:
    """A cell that kills its worker once is tried once more; one that always does is set aside; no other is blamed."""
    specs = bench_work.specs(12, marks=str(tmp_path))
    summary = ran(tmp_path, bench_work.poisonous, specs, on_ray(num_cpus=2), tries=2)
    with Store(tmp_path) as store:
        rows = {row.spec["number"]: row for row in store.rows()}
    assert {number: row.failures for number, row in rows.items() if row.failures} == {3: 2, 5: 2, 6: 1}
    assert {row.spec["number"] for row in summary.quarantined} == {3, 5}
    assert rows[3].error == "the worker died"
    assert (rows[5].error or "").startswith("ValueError: no luck (bench_work.py:")
    assert {number for number, row in rows.items() if row.done} == set(range(12)) - {3, 5}
    assert rows[6].result == bench_work.square({"number": 6})


def test_ctrl_c_leaves_nothing_behind() -> None:
    """A function made here travels, too."""
    before, cells = family(), [(cell_key(spec), spec) for spec in bench_work.specs(50)]
    outcomes = on_ray(num_cpus=1)(lambda spec: spec["number"], cells)
    assert next(outcomes).error is None
    started = [process for process in family() if process not in before]
    assert started
    with pytest.raises(KeyboardInterrupt):
        outcomes.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    _, alive = psutil.wait_procs(started, timeout=HANGS)
    assert not alive
    assert not sys.modules["ray"].is_initialized()


def test_a_killed_driver_leaves_nothing_behind(tmp_path: Path) -> None:
    """Left alone, Ray's agents look for a cluster that is gone."""
    command = [sys.executable, bench_work.__file__, str(tmp_path), "50", "local", "--leave"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.stdin.write("one more\n" * 5)
        process.stdin.flush()
        assert process.stdout.readline()
        started = psutil.Process(process.pid).children(recursive=True)
        assert any("Agent" in one.name() for one in started)
        assert any("process.kill()" in " ".join(one.cmdline()) for one in started)  # who ends them
        process.kill()
        _, alive = psutil.wait_procs(started, timeout=HANGS)
    for one in alive:
        one.kill()
    assert not alive


CLUSTER = """
import ray, sys
sys.path.append(sys.argv[1])
import bench_work
bench_work.unhurried()
print(ray.init(address="local", num_cpus=1, include_dashboard=False).address_info["gcs_address"], flush=True)
input()
"""


@contextmanager
def cluster(environment: dict[str, str]) -> Iterator[str]:
    """The address of a cluster that somebody else started."""
    command = [sys.executable, "-c", CLUSTER, str(Path(bench_work.__file__).parent)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.write("\n")


def test_a_cluster_that_exists(tmp_path: Path) -> None:
    own = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment = {**os.environ, **own}
    with cluster(environment) as address:
        command = [sys.executable, bench_work.__file__, str(tmp_path / "ray"), "6", address]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANGS, check=True)
    assert said.stdout.count("\n") == 1 + 6
    assert said.stderr == ""
    ran(tmp_path / "here", bench_work.square, bench_work.specs(6), in_process)
    assert fingerprint(tmp_path / "ray") == fingerprint(tmp_path / "here")


def test_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    with pytest.raises(InputError, match="num_cpus is the size"):
        on_ray("auto", num_cpus=2)
    with pytest.raises(InputError, match="at least 1, of a local cluster; got 0"):
        on_ray(num_cpus=0)
    with socket.socket() as taken:  # bound and not listening: nobody answers there
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RelpropError, match=f'Ray cannot be reached at "{address}": .*refused'):
            next(on_ray(address)(bench_work.square, []))
    with pytest.raises(RelpropError, match='Ray cannot be reached at "nonsense": Invalid address format'):
        next(on_ray("nonsense")(bench_work.square, []))
    with monkeypatch.context() as patch:
        patch.setattr(ray.util, "get_node_ip_address", lambda: "192.0.2.7")
        with pytest.raises(RelpropError, match=r"would listen on 192\.0\.2\.7.*RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0"):
            next(on_ray()(bench_work.square, []))
    with monkeypatch.context() as patch:
        patch.setattr(ray, "is_initialized", lambda: True)
        with pytest.raises(RelpropError, match="already connected to Ray"):
            next(on_ray()(bench_work.square, []))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RelpropError, match=r'pip install "relprop\[ray\]"'):
        on_ray()
