"""Where cells are worked on: in this process, in other processes, or on Ray. All give the same numbers.

An executor takes (key, spec) pairs and yields one outcome per pair, in any order. When a worker dies, only the cells
that it held fail.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from relprop.errors import InputError, RelpropError

CellSpec = dict[str, Any]  # all that a cell's result depends on; it is stored as JSON
WorkFunction = Callable[[CellSpec], Any]
KeyedSpec = tuple[str, CellSpec]
Executor = Callable[[WorkFunction, Iterable[KeyedSpec]], Generator["Outcome", None, None]]


@dataclass(frozen=True)
class Outcome:
    """The result of a cell, or its error in one line."""

    key: str
    result: Any = None
    error: str | None = None
    seconds: float = 0.0


def attempt(work: WorkFunction, key: str, spec: CellSpec) -> Outcome:
    """Work on a cell; any exception becomes its error."""
    start = time.perf_counter()
    try:
        return Outcome(key, work(spec), None, time.perf_counter() - start)
    except RelpropError as error:
        return Outcome(key, error=str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(where.filename)}:{where.lineno}"
        return Outcome(key, error=f"{type(error).__name__}: {error} ({place})")


def in_process(work: WorkFunction, cells: Iterable[KeyedSpec]) -> Generator[Outcome, None, None]:
    """One cell after the other, in this process."""
    for key, spec in cells:
        yield attempt(work, key, spec)


def processes(count: int) -> Executor:
    """`count` workers with one thread each.

    When a worker dies, it is not known which cell killed it: the cells in progress are then tried one at a time, and
    only a cell that kills its worker again has failed.
    """
    if count < 1:
        raise InputError(f"the number of workers must be at least 1, got {count}")

    def execute(work: WorkFunction, cells: Iterable[KeyedSpec]) -> Generator[Outcome, None, None]:
        waiting = iter(cells)
        while True:
            suspects: list[KeyedSpec] = []
            yield from _until_broken(work, waiting, count, suspects)
            if not suspects:
                return
            for suspect in suspects:
                blamed: list[KeyedSpec] = []
                yield from _until_broken(work, iter([suspect]), 1, blamed)
                if blamed:
                    yield Outcome(suspect[0], error="the worker died")

    return execute


def _until_broken(
    work: WorkFunction, waiting: Iterator[KeyedSpec], count: int, suspects: list[KeyedSpec]
) -> Iterator[Outcome]:
    """Outcomes until there are no more cells or a worker dies; then the cells in progress go to `suspects`."""
    held: dict[Future[Outcome], KeyedSpec] = {}
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker)
    try:
        while True:
            while not suspects and len(held) < 2 * count and (cell := next(waiting, None)) is not None:
                try:
                    held[pool.submit(attempt, work, *cell)] = cell
                except BrokenProcessPool:
                    suspects.append(cell)
            if not held:
                return
            for future in wait(held, return_when=FIRST_COMPLETED).done:
                cell = held.pop(future)
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    suspects.append(cell)
                else:
                    yield outcome
    finally:
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        if held:  # stopped in the middle: nobody waits for these cells
            for worker in workers:
                worker.kill()


def _start_worker() -> None:
    _limit_threads()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit when the driver is killed: a worker holds both ends of its queue, so nothing else would wake it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _limit_threads() -> None:
    """One thread per worker, as many processes with many threads are slow; Ctrl-C is left to the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # read when torch is first imported, if it ever is
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


def on_ray(address: str | None = None, *, num_cpus: int | None = None) -> Executor:
    """Ray Core tasks on the cluster at `address`, or on a local one of `num_cpus` workers, bound to loopback."""
    if num_cpus is not None and (address or num_cpus < 1):
        raise InputError(f"num_cpus is the size, at least 1, of a local cluster; got {num_cpus}, address {address!r}")
    ray = _ray(_AT_ADDRESS if address else _LOCAL)

    def execute(work: WorkFunction, cells: Iterable[KeyedSpec]) -> Generator[Outcome, None, None]:
        if ray.is_initialized():
            raise RelpropError("this process is already connected to Ray; call ray.shutdown() first")
        driver = import_module("psutil").Process()  # the package comes with Ray
        before = set(driver.children(recursive=True))
        with ExitStack() as ending:
            ending.callback(ray.shutdown)
            _connect(ray, address, num_cpus)
            if started := set(driver.children(recursive=True)) - before:
                ending.enter_context(_ended_with_driver([one.pid for one in started]))
                ending.callback(ray.shutdown)
            yield from _tasks(ray, work, cells)

    return execute


@contextmanager
def _ended_with_driver(pids: Sequence[int]) -> Iterator[None]:
    """Have the processes of a local cluster killed when the driver is: some of Ray's would stay behind for minutes."""
    command = [sys.executable, "-c", _KILLER, json.dumps(sys.path), *map(str, pids)]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
    ) as killer:
        try:
            yield
        finally:
            killer.communicate(b"done")


# The pipe ends without a word when the driver is killed. psutil kills no process that has another's number by now.
_KILLER = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from contextlib import suppress
import psutil
cluster = []
for pid in sys.argv[2:]:
    with suppress(psutil.Error):
        cluster.append(psutil.Process(int(pid)))
if not sys.stdin.read():
    for process in cluster:
        with suppress(psutil.Error):
            process.kill()
"""


# Ray reads these when it is imported. Without the first, a local cluster listens on every interface, whatever address
# its node is given; without the last, Ray tries a port where something else answers for a quarter of an hour.
_LOCAL = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
_AT_ADDRESS = {"RAY_NUM_REDIS_GET_RETRIES": "1"}
_SECONDS_TO_ANSWER = 10


def _ray(settings: dict[str, str]) -> ModuleType:
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    try:
        return import_module("ray")
    except ImportError:
        raise RelpropError('running on Ray needs the ray package: pip install "relprop[ray]"') from None


def _connect(ray: ModuleType, address: str | None, num_cpus: int | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address:
            _check_answers(address)
            ray.init(address=address, **quiet)
        else:
            _check_loopback(ray)
            ray.init(address="local", num_cpus=num_cpus, object_store_memory=2**27, include_dashboard=False, **quiet)
    except Exception as error:  # Ray raises a plain one where a node does not start in time
        where = f'cannot be reached at "{address}"' if address else "cannot be started here"
        raise RelpropError(f"Ray {where}: {' '.join(str(error.__cause__ or error).split())}") from error


def _check_answers(address: str) -> None:
    """Raise at once if nothing listens there; Ray itself would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_ANSWER).close()


def _check_loopback(ray: ModuleType) -> None:
    here = ray.util.get_node_ip_address()
    if not ipaddress.ip_address(here).is_loopback:
        raise RelpropError(
            f"a local Ray cluster would listen on {here}, as Ray was imported before it was told not to; "
            "set RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 in the environment, or give the address of a cluster"
        )


def _tasks(ray: ModuleType, work: WorkFunction, cells: Iterable[KeyedSpec]) -> Iterator[Outcome]:
    remote = ray.remote(num_cpus=1, max_retries=0)(_on_worker)  # the driver counts failures, deaths included
    path, packed = ray.put(sys.path), ray.put(ray.cloudpickle.dumps(work))
    waiting = iter(cells)
    held: dict[object, str] = {}
    most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    while True:
        while len(held) < most and (cell := next(waiting, None)) is not None:
            held[remote.remote(path, packed, *cell)] = cell[0]
        if not held:
            return
        ready, _ = ray.wait(list(held), num_returns=1)
        for reference in ready:
            yield _outcome(ray, reference, held.pop(reference))


def _on_worker(path: list[str], packed: bytes, key: str, spec: CellSpec) -> Outcome:
    """Work on a cell with the driver's module path, as the work may be in any of its modules."""
    _limit_threads()
    sys.path.extend(entry for entry in path if entry not in sys.path)
    return attempt(pickle.loads(packed), key, spec)


def _outcome(ray: ModuleType, reference: object, key: str) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.WorkerCrashedError:
        return Outcome(key, error="the worker died")
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        return Outcome(key, error=f"Ray: {type(cause).__name__}: {cause}".splitlines()[0])
    return outcome
