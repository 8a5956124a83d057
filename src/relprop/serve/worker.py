"""One thread loads and calls the models, another writes the answers. Inputs of equal requests are batched by size."""

from __future__ import annotations

import ctypes
import gc
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from relprop.errors import RelpropError
from relprop.serve.body import ExplainRequest
from relprop.serve.limits import Limits, RefusedError
from relprop.serve.models import OutOfTimeError, ServedModel
from relprop.serve.prometheus import ServiceMetrics

RELEASE_AFTER, IDLE = 50, 1.0  # freed memory is released after so many batches, or so many seconds without work
AHEAD = 3  # batches from which inputs of similar size are taken: this bounds how long an input waits
log = logging.getLogger(__name__)


@dataclass(eq=False)
class RequestJob:
    """A request's inputs, which may be explained in several batches, and its answer."""

    model: str
    request: ExplainRequest
    inputs: Sequence[tuple[Any, int]]  # each with its size
    target: Any
    write: Callable[[list[Any]], Any]  # from the inputs' results to the answer
    deadline: float
    answer: Future[Any] = field(default_factory=Future)
    results: dict[int, Any] = field(default_factory=dict)  # by the input's number

    def queued(self) -> list[QueuedInput]:
        return [QueuedInput(self, number, value, size) for number, (value, size) in enumerate(self.inputs)]

    @property
    def wanted(self) -> bool:
        """Whether the client still waits."""
        return not self.answer.done() and time.monotonic() < self.deadline

    def finish(self) -> None:
        try:
            answer = self.write([self.results[i] for i in range(len(self.inputs))])
        except Exception as error:
            self.fail(error)
        else:
            if self.answer.set_running_or_notify_cancel():
                self.answer.set_result(answer)

    def fail(self, error: Exception, number: int | None = None) -> None:
        """Answer with the error of one of its inputs, or of writing."""
        if self.answer.done() or not self.answer.set_running_or_notify_cancel():
            return
        if not isinstance(error, RelpropError):
            log.error("a request failed: %r", self.request, exc_info=error)
        elif number is not None and len(self.inputs) > 1:
            error = type(error)(f"instance {number}: {error}")
        self.answer.set_exception(error)


@dataclass(frozen=True, eq=False)
class QueuedInput:
    """One input of a job."""

    job: RequestJob
    number: int
    value: Any
    size: int
    since: float = field(default_factory=time.monotonic)

    def fits_with(self, other: QueuedInput) -> bool:
        return (self.job.model, self.job.request) == (other.job.model, other.job.request)


class Worker:
    """The two threads and their queue."""

    def __init__(self, models: Mapping[str, ServedModel], limits: Limits, metrics: ServiceMetrics) -> None:
        self.models, self._limits, self._metrics = models, limits, metrics
        self._waiting: list[QueuedInput] = []
        self._inside = 0  # inputs that wait, are explained, or whose answer is being written
        self._changed = threading.Condition()
        self._stopping = False
        self._pace = 0.05  # seconds per input, a moving average
        self._calling = threading.Thread(target=self._run, name="relprop", daemon=True)
        self._writing = ThreadPoolExecutor(1, "relprop-writer")
        metrics.depth.set_function(lambda: self._inside)

    def start(self) -> None:
        self._calling.start()

    def stop(self) -> None:
        """Stop once waiting inputs are done; do not wait for a model to load, nor longer than a request may take."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if not any(model.loading for model in self.models.values()):
            self._calling.join(self._limits.seconds)
        self._writing.shutdown()
        gc.unfreeze()

    def submit(self, job: RequestJob) -> Future[Any]:
        """The answer of a job that is put in the queue; refused where it is full."""
        items = job.queued()
        with self._changed:
            self.check_room(len(items))
            self._inside += len(items)
            self._waiting += items
            self._changed.notify()
        job.answer.add_done_callback(lambda _: self._leave(len(items)))
        return job.answer

    def check_room(self, inputs: int = 1) -> None:
        """Refuse if the queue is full; requests that arrive later may still fit."""
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
        gc.freeze()  # the models stay: garbage collection need not look through them again
        for number in count():
            if number % RELEASE_AFTER == 0 or not self._has_work(IDLE):
                release_freed_memory()
            batch = self._next_batch()
            if not batch:
                return
            began = time.monotonic()
            self._explain(batch)
            self._note_time(len(batch), time.monotonic() - began)

    def _has_work(self, seconds: float | None = None) -> bool:
        """Whether there is work, or the worker stops, after at most so many seconds."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._waiting or self._stopping, seconds))

    def _next_batch(self) -> list[QueuedInput]:
        """The oldest input and, of those that fit with it, the nearest in size; waits a little while they are few."""
        self._has_work()
        with self._changed:
            if not self._waiting:
                return []
            oldest, most = self._waiting[0], self._limits.batch
            wait = oldest.since + self._limits.linger - time.monotonic()
            if wait > 0:
                self._changed.wait_for(lambda: len(self._fitting(oldest)) >= most, wait)
            near = sorted(self._fitting(oldest)[: AHEAD * most], key=lambda item: abs(item.size - oldest.size))[:most]
            taken = set(near)
            self._waiting = [item for item in self._waiting if item not in taken]
            return near

    def _fitting(self, item: QueuedInput) -> list[QueuedInput]:
        return [one for one in self._waiting if one.fits_with(item)]

    def _explain(self, items: list[QueuedInput]) -> None:
        """All inputs together; after an error in halves, so that one bad input does not fail the others."""
        items = [item for item in items if item.job.wanted]
        if not items:
            return
        job, deadline = items[0].job, max(item.job.deadline for item in items)
        inputs, targets = [item.value for item in items], [item.job.target for item in items]
        try:
            results = self.models[job.model].answer(job.request, inputs, targets, deadline)
        except OutOfTimeError:
            return  # the clients have had their answer
        except Exception as error:
            if len(items) == 1:
                job.fail(error, items[0].number)
                return
            half = len(items) // 2
            self._explain(items[:half])
            self._explain(items[half:])
            return
        self._metrics.batch.observe(len(items))
        for item, result in zip(items, results, strict=True):
            item.job.results[item.number] = result
            if len(item.job.results) == len(item.job.inputs):
                self._writing.submit(item.job.finish)

    def _note_time(self, inputs: int, seconds: float) -> None:
        self._pace += 0.1 * (seconds / inputs - self._pace)
        self._metrics.seconds.observe(seconds)


def release_freed_memory() -> None:
    """Give freed memory back to the system, which glibc keeps in ever more pieces; other C libraries lack the call."""
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
