"""Cells to results: what is done stays done, what fails is tried again a few times and then set aside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from relprop.bench.executors import Cell, Executor, Outcome, Work, in_process
from relprop.bench.store import Row, Store

TRIES = 3


@dataclass(frozen=True)
class Summary:
    """How a run ended."""

    done: int
    quarantined: tuple[Row, ...]
    left: int

    @property
    def complete(self) -> bool:
        return not self.left and not self.quarantined


def key_of(spec: dict[str, Any]) -> str:
    """A cell's name is its content: the same work has the same key in every run."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def run(
    store: Store,
    specs: Sequence[dict[str, Any]],
    work: Work,
    *,
    executor: Executor = in_process,
    tries: int = TRIES,
    watch: Callable[[Outcome, int, int], None] | None = None,
) -> Summary:
    """Work on every cell that is not done. `watch(outcome, settled, all)` is told of each as it is stored."""
    store.plan([(key_of(spec), spec) for spec in specs])
    own = {key_of(spec) for spec in specs}
    rows = [row for row in store.rows() if row.key in own]
    settled = sum(row.done or row.failures >= tries for row in rows)
    queue = _Queue([(row.key, row.spec) for row in rows if not row.done and row.failures < tries])
    with closing(executor(work, queue)) as outcomes:  # whatever ends this, workers are not left behind
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
    return summary([row for row in store.rows() if row.key in own], tries)


def summary(rows: Sequence[Row], tries: int = TRIES) -> Summary:
    quarantined = tuple(row for row in rows if not row.done and row.failures >= tries)
    done = sum(row.done for row in rows)
    return Summary(done, quarantined, len(rows) - done - len(quarantined))


class _Queue:
    """Cells to be handed out; one that failed goes to the end, while the executor still asks."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._waiting = list(cells)
        self._specs = dict(self._waiting)

    def again(self, key: str) -> None:
        self._waiting.append((key, self._specs[key]))

    def __iter__(self) -> Iterator[Cell]:
        return self

    def __next__(self) -> Cell:
        if not self._waiting:
            raise StopIteration
        return self._waiting.pop(0)
