"""Work for tests of the benchmark runner, importable by its workers."""

import os
import signal
import sys
import time
from collections.abc import Generator, Iterable
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from relprop.bench.executors import Executor, KeyedSpec, Outcome, WorkFunction, in_process, on_ray, processes
from relprop.bench.measurements import Measurements
from relprop.bench.runner import run_cells
from relprop.bench.store import Store


def specs(count: int, **more: Any) -> list[dict[str, Any]]:
    """Cells as an export expects them."""
    about = {"task": {"name": "numbers", "model": "none"}, "weights": "none"}
    return [{"number": number, **about, **more} for number in range(count)]


def square(spec: dict[str, Any]) -> dict[str, Any]:
    measured = Measurements([spec["number"]])
    measured.add("square", "value", [spec["number"] ** 2])
    measured.add("root", "value", [spec["number"] ** 0.5])
    return measured.to_dict()


def poisonous(spec: dict[str, Any]) -> dict[str, Any]:
    """Number 3 kills whoever works on it; number 5 always fails; number 6 kills the first that works on it."""
    if spec["number"] == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if spec["number"] == 5:
        raise ValueError("no luck")
    if spec["number"] == 6 and "marks" in spec and not (mark := Path(spec["marks"], "killed")).exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return square(spec)


def summed(spec: dict[str, Any]) -> dict[str, Any]:
    """A sum whose last bits depend on how many threads share it, and how many there are."""
    import torch

    random = torch.Generator().manual_seed(spec["number"])
    measured = Measurements([spec["number"]])
    measured.add("sum", "value", [torch.randn(500_000, generator=random).sum().item()])
    measured.add("threads", "value", [torch.get_num_threads()])
    return measured.to_dict()


def with_leave(executor: Executor) -> Executor:
    """Takes a cell only for a line of the standard input: so the caller knows how far it can be, however fast it is."""

    def execute(work: WorkFunction, cells: Iterable[KeyedSpec]) -> Generator[Outcome, None, None]:
        return executor(work, takewhile(lambda _: sys.stdin.readline(), cells))

    return execute


def unhurried() -> None:
    """Stop the clock by which Ray gives up on a node that has not started after 30 s, however busy the machine is."""
    from ray._private import node

    node.time = SimpleNamespace(**{**vars(time), "monotonic": lambda: 0.0})


def executor_of(name: str) -> Executor:
    """1: here; 2, 3, ...: processes; "local": on Ray; anything else: the address of a Ray cluster."""
    if name == "local":
        executor = on_ray(num_cpus=2)
        unhurried()
        return executor
    if not name.isdigit():
        return on_ray(name)
    return processes(int(name)) if int(name) > 1 else in_process


def main() -> None:
    """python bench_work.py FOLDER COUNT EXECUTOR [--leave]: says when it has started and what is acknowledged."""
    folder, count, executor = Path(sys.argv[1]), int(sys.argv[2]), executor_of(sys.argv[3])
    executor = with_leave(executor) if sys.argv[4:] else executor
    with Store(folder) as store:
        print("started", flush=True)
        run_cells(
            store, specs(count), square, executor=executor, watch=lambda outcome, *_: print(outcome.key, flush=True)
        )


if __name__ == "__main__":
    main()
