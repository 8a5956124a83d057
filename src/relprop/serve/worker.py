"""One thread loads and asks the models, another writes the answers. Inputs wait in a bounded queue, like with like."""

from __future__ import annotations

import ctypes
import gc
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from relprop.errors import RelpropError
from relprop.serve.body import Wish
from relprop.serve.limits import Limits, RefusedError
from relprop.serve.metrics import Metrics
from relprop.serve.models import OutOfTimeError, Served

TIDY, QUIET = 50, 1.0  # freed memory is given back after so many batches, and when nothing came for so many seconds
AHEAD = 3  # batches: so far an input may be passed by others that fit better, which bounds how long it waits
log = logging.getLogger("relprop.serve")


@dataclass(eq=False)
class Job:
    """A request's inputs, which may go in several batches, and what is written of their answers in the end."""

    model: str
    wish: Wish
    given: Sequence[tuple[Any, int]]  # each with its size
    target: Any
    written: Callable[[list[Any]], Any]
    until: float
    answer: Future[Any] = field(default_factory=Future)
    found: dict[int, Any] = field(default_factory=dict)

    def items(self) -> list[Item]:
        return [Item(self, number, given, size) for number, (given, size) in enumerate(self.given)]

    @property
    def wanted(self) -> bool:
        """Is anyone still waiting?"""
        return not self.answer.done() and time.monotonic() < self.until

    def write(self) -> None:
        try:
            made = self.written([self.found[i] for i in range(len(self.given))])
        except Exception as error:
            self.fail(error)
        else:
            if self.answer.set_running_or_notify_cancel():
                self.answer.set_result(made)

    def fail(self, error: Exception, number: int | None = None) -> None:
        """With the error of one of its inputs, or of the writing."""
        if self.answer.done() or not self.answer.set_running_or_notify_cancel():
            return
        if not isinstance(error, RelpropError):
            log.error("a request failed: %r", self.wish, exc_info=error)
        elif number is not None and len(self.given) > 1:
            error = type(error)(f"instance {number}: {error}")
        self.answer.set_exception(error)


@dataclass(frozen=True, eq=False)
class Item:
    """One input of a job."""

    job: Job
    number: int
    given: Any
    size: int
    since: float = field(default_factory=time.monotonic)

    def like(self, other: Item) -> bool:
        return (self.job.model, self.job.wish) == (other.job.model, other.job.wish)


class Worker:
    """The two threads, and the queue before them."""

    def __init__(self, models: Mapping[str, Served], limits: Limits, metrics: Metrics) -> None:
        self.models, self._limits, self._metrics = models, limits, metrics
        self._waiting: list[Item] = []
        self._inside = 0  # inputs that wait, are worked on, or are being written
        self._changed = threading.Condition()
        self._stopping = False
        self._pace = 0.05  # seconds an input, as of late
        self._asking = threading.Thread(target=self._run, name="relprop", daemon=True)
        self._writing = ThreadPoolExecutor(1, "relprop-writer")
        metrics.depth.set_function(lambda: self._inside)

    def start(self) -> None:
        self._asking.start()

    def stop(self) -> None:
        """After what waits is done. Nobody waits for a model that is being loaded, or for longer than requests do."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if not any(model.loading for model in self.models.values()):
            self._asking.join(self._limits.seconds)
        self._writing.shutdown()
        gc.unfreeze()

    def submit(self, job: Job) -> Future[Any]:
        """Puts a job in the queue, if there is room."""
        items = job.items()
        with self._changed:
            self.check_room(len(items))
            self._inside += len(items)
            self._waiting += items
            self._changed.notify()
        job.answer.add_done_callback(lambda _: self._leave(len(items)))
        return job.answer

    def check_room(self, inputs: int = 1) -> None:
        """Refuses where the queue is full: whoever comes later may have more luck."""
        if self._inside and self._inside + inputs > self._limits.queue:
            wait = max(1, math.ceil(self._inside * self._pace))
            raise RefusedError(503, f"{self._inside} inputs are waiting already: try again later", wait)

    def _leave(self, inputs: int) -> None:
        with self._changed:
            self._inside -= inputs

    def _run(self) -> None:
        if self._limits.threads is not None:
            torch.set_num_threads(self._limits.threads)
        for model in self.models.values():
            model.load()
        gc.collect()
        gc.freeze()  # what was loaded stays: looking through it again would hold up every thread for a while
        for number in count():
            if number % TIDY == 0 or not self._busy(QUIET):
                give_back()
            batch = self._next()
            if not batch:
                return
            began = time.monotonic()
            self._ask(batch)
            self._took(len(batch), time.monotonic() - began)

    def _busy(self, seconds: float | None = None) -> bool:
        """Waits for work, so long at most."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._waiting or self._stopping, seconds))

    def _next(self) -> list[Item]:
        """The oldest input and, of those like it, the nearest in size. Where they are few, others may come yet."""
        self._busy()
        with self._changed:
            if not self._waiting:
                return []
            oldest, most = self._waiting[0], self._limits.batch
            still = oldest.since + self._limits.linger - time.monotonic()
            if still > 0:
                self._changed.wait_for(lambda: len(self._alike(oldest)) >= most, still)
            near = sorted(self._alike(oldest)[: AHEAD * most], key=lambda item: abs(item.size - oldest.size))[:most]
            taken = set(near)
            self._waiting = [item for item in self._waiting if item not in taken]
            return near

    def _alike(self, item: Item) -> list[Item]:
        return [one for one in self._waiting if one.like(item)]

    def _ask(self, items: list[Item]) -> None:
        """All together; where that fails in halves, so that one bad input spoils no other."""
        items = [item for item in items if item.job.wanted]
        if not items:
            return
        job, until = items[0].job, max(item.job.until for item in items)
        given, targets = [item.given for item in items], [item.job.target for item in items]
        try:
            found = self.models[job.model].answer(job.wish, given, targets, until)
        except OutOfTimeError:
            return  # those who waited have been told
        except Exception as error:
            if len(items) == 1:
                job.fail(error, items[0].number)
                return
            half = len(items) // 2
            self._ask(items[:half])
            self._ask(items[half:])
            return
        self._metrics.batch.observe(len(items))
        for item, one in zip(items, found, strict=True):
            item.job.found[item.number] = one
            if len(item.job.found) == len(item.job.given):
                self._writing.submit(item.job.write)

    def _took(self, inputs: int, seconds: float) -> None:
        self._pace += 0.1 * (seconds / inputs - self._pace)
        self._metrics.seconds.observe(seconds)


def give_back() -> None:
    """Freed memory to the system: glibc keeps it, in more and more pieces. Other libraries have no such call."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
