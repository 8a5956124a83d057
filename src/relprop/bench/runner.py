"""Runs cells: finished cells stay finished, failed ones are tried again a few times and then set aside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from relprop.bench.executors import CellSpec, Executor, KeyedSpec, Outcome, WorkFunction, in_process
from relprop.bench.store import Store, StoredResult, cell_key

TRIES = 3


@dataclass(frozen=True)
class RunSummary:
    """How a run ended."""

    done: int
    quarantined: tuple[StoredResult, ...]
    left: int

    @property
    def complete(self) -> bool:
        return not self.left and not self.quarantined


def run_cells(
    store: Store,
    specs: Sequence[CellSpec],
    work: WorkFunction,
    *,
    tasks: Collection[str] | None = None,
    executor: Executor = in_process,
    tries: int = TRIES,
    watch: Callable[[Outcome, int, int], None] | None = None,
) -> RunSummary:
    """Plan cells, and work on those that are not done, of all tasks or of these.

    `watch(outcome, settled, all)` is called after each is stored.
    """
    store.plan([(cell_key(spec), spec) for spec in specs])
    own = {cell_key(spec) for spec in specs if tasks is None or spec["task"]["name"] in tasks}
    rows = [row for row in store.rows() if row.key in own]
    settled = sum(row.done or row.failures >= tries for row in rows)
    queue = _CellQueue(_in_order([row for row in rows if not row.done and row.failures < tries]))
    with closing(executor(work, queue)) as outcomes:  # ends the workers, also after an error
        for outcome in outcomes:
            if outcome.error is None:
                store.succeed(outcome.key, outcome.result, outcome.seconds)
                settled += 1
            elif store.fail(outcome.key, outcome.error) < tries:
                queue.again(outcome.key)
            else:
                settled += 1
            if watch is not None:
                watch(outcome, settled, len(rows))
    return summarise([row for row in store.rows() if row.key in own], tries)


def _in_order(rows: Sequence[StoredResult]) -> list[KeyedSpec]:
    """Task by task, but the cells of each in the order of their hashes: a run that is stopped has a fair sample."""
    tasks = list(dict.fromkeys(row.spec["task"]["name"] for row in rows))
    ordered = sorted(rows, key=lambda row: (tasks.index(row.spec["task"]["name"]), row.key))
    return [(row.key, row.spec) for row in ordered]


def summarise(rows: Sequence[StoredResult], tries: int = TRIES) -> RunSummary:
    quarantined = tuple(row for row in rows if not row.done and row.failures >= tries)
    done = sum(row.done for row in rows)
    return RunSummary(done, quarantined, len(rows) - done - len(quarantined))


class _CellQueue:
    """Cells that are waiting; one that failed goes to the end, while the executor still takes cells."""

    def __init__(self, cells: Iterable[KeyedSpec]) -> None:
        self._waiting = list(cells)
        self._specs = dict(self._waiting)

    def again(self, key: str) -> None:
        self._waiting.append((key, self._specs[key]))

    def __iter__(self) -> Iterator[KeyedSpec]:
        return self

    def __next__(self) -> KeyedSpec:
        if not self._waiting:
            raise StopIteration
        return self._waiting.pop(0)
