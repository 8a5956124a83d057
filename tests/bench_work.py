"""Work for tests of the benchmark runner, importable by its workers."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from relprop.bench.executors import in_process, processes
from relprop.bench.runner import run
from relprop.bench.store import Store


def specs(count: int) -> list[dict[str, Any]]:
    return [{"number": number} for number in range(count)]


def square(spec: dict[str, Any]) -> dict[str, float]:
    """Takes a moment, so that a kill may come in the middle of it."""
    time.sleep(0.01)
    return {"square": spec["number"] ** 2, "root": spec["number"] ** 0.5}


def poisonous(spec: dict[str, Any]) -> dict[str, float]:
    """Number 3 kills whoever works on it; number 5 always fails."""
    if spec["number"] == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if spec["number"] == 5:
        raise ValueError("no luck")
    return square(spec)


def main() -> None:
    """python bench_work.py FOLDER COUNT WORKERS: says when it has started and what is acknowledged."""
    folder, count, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    executor = processes(workers) if workers > 1 else in_process
    with Store(folder) as store:
        print("started", flush=True)
        run(store, specs(count), square, executor=executor, watch=lambda outcome, *_: print(outcome.key, flush=True))


if __name__ == "__main__":
    main()
