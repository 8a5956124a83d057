"""Where cells are worked on: in this process, in other processes, or on Ray. All give the same numbers.

An executor takes (key, spec) pairs and yields an outcome for each as it comes, in any order. A worker that dies takes
down no more than the cells that it held, and says so.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from relprop.errors import InputError, RelpropError

Work = Callable[[dict[str, Any]], Any]
Cell = tuple[str, dict[str, Any]]
Executor = Callable[[Work, Iterable[Cell]], Iterator["Outcome"]]


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: a result, or an error in one line."""

    key: str
    result: Any = None
    error: str | None = None
    seconds: float = 0.0


def attempt(work: Work, key: str, spec: dict[str, Any]) -> Outcome:
    """Work on a cell; whatever goes wrong becomes its error."""
    start = time.perf_counter()
    try:
        return Outcome(key, work(spec), None, time.perf_counter() - start)
    except RelpropError as error:
        return Outcome(key, error=str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(where.filename)}:{where.lineno}"
        return Outcome(key, error=f"{type(error).__name__}: {error} ({place})")


def in_process(work: Work, cells: Iterable[Cell]) -> Iterator[Outcome]:
    """One after the other, here."""
    for key, spec in cells:
        yield attempt(work, key, spec)


def processes(count: int) -> Executor:
    """`count` workers of one thread each.

    When one dies nobody knows which cell killed it: those that were held are then tried one at a time, so that only a
    cell that kills a worker of its own is to blame.
    """
    if count < 1:
        raise InputError(f"the number of workers must be at least 1, got {count}")

    def execute(work: Work, cells: Iterable[Cell]) -> Iterator[Outcome]:
        waiting = iter(cells)
        while True:
            suspects: list[Cell] = []
            yield from _until_broken(work, waiting, count, suspects)
            if not suspects:
                return
            for suspect in suspects:
                blamed: list[Cell] = []
                yield from _until_broken(work, iter([suspect]), 1, blamed)
                if blamed:
                    yield Outcome(suspect[0], error="the worker died")

    return execute


def _until_broken(work: Work, waiting: Iterator[Cell], count: int, suspects: list[Cell]) -> Iterator[Outcome]:
    """Outcomes until there are no more cells, or a worker dies: then the cells held go to `suspects`."""
    held: dict[Future[Outcome], Cell] = {}
    pool = _pool(count)
    try:
        while not suspects:
            while len(held) < 2 * count and (cell := next(waiting, None)) is not None:
                try:
                    held[pool.submit(attempt, work, *cell)] = cell
                except BrokenProcessPool:
                    suspects.append(cell)
                    break
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
        for future, cell in held.items():
            try:
                outcome = future.result(timeout=60)
            except BrokenProcessPool:
                suspects.append(cell)
            else:
                yield outcome
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _pool(count: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")  # threads of torch do not survive a fork
    return ProcessPoolExecutor(count, mp_context=context, initializer=_one_thread)


def _one_thread() -> None:
    """Several processes of several threads each would crawl. A worker leaves Ctrl-C to the driver."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)


def on_ray(address: str | None = None) -> Executor:
    """Ray Core tasks on a cluster that exists, or on a local one bound to loopback."""
    ray = _ray()

    def execute(work: Work, cells: Iterable[Cell]) -> Iterator[Outcome]:
        if address:
            ray.init(address=address, log_to_driver=False)
        else:
            ray.init(include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
        try:
            yield from _tasks(ray, work, cells)
        finally:
            ray.shutdown()

    return execute


def _tasks(ray: Any, work: Work, cells: Iterable[Cell]) -> Iterator[Outcome]:
    remote = ray.remote(num_cpus=1, max_retries=0)(attempt)  # the driver counts failures: a death is one
    waiting = iter(cells)
    held: dict[Any, str] = {}
    most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    while True:
        while len(held) < most and (cell := next(waiting, None)) is not None:
            held[remote.remote(work, *cell)] = cell[0]
        if not held:
            return
        ready, _ = ray.wait(list(held), num_returns=1)
        for reference in ready:
            key = held.pop(reference)
            try:
                yield ray.get(reference)
            except ray.exceptions.RayError as error:
                yield Outcome(key, error=f"the worker died ({type(error).__name__})")


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise RelpropError('running on Ray needs the ray package: pip install "relprop[ray]"') from None
    return ray
