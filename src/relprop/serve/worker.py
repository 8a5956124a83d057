"""One thread loads and calls the models, two others write the answers. Inputs of equal requests are batched by size.

A fourth calls the models too, for small requests alone, where the first has been busy with one batch for long.
"""

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
from functools import partial
from itertools import count
from typing import Any

import torch

from relprop.deadline import OutOfTimeError, stop_when
from relprop.errors import RelpropError
from relprop.serve.body import ExplainRequest
from relprop.serve.drawing import DrawingError, DrawingProcess
from relprop.serve.instances import ExplainerInput
from relprop.serve.limits import Limits, RefusedError, numbered
from relprop.serve.models import Result, ServedModel
from relprop.serve.prometheus import ServiceMetrics

RELEASE_AFTER, IDLE = 50, 1.0  # freed memory is released after so many batches, or so many seconds without work
AHEAD = 3  # batches from which inputs of similar size are taken: this bounds how long an input waits
UNITS_TOGETHER = 24_576  # of a batch, with padding: this bounds its memory
SLOW_SHARE = 8  # batches of slow methods are smaller by this, so that fast ones need not wait for long
PATIENCE = 0.25  # share of a request's time in which small and fast requests that come later go first
SMALL_INPUTS, SMALL_UNITS = 4, 1_024  # of a request with a fast method that may be explained beside a long batch
SHARE_OF_LARGE = 0.75  # of the queue: the rest is for small requests
GRACE = 2.0  # seconds that a batch may take to notice that its time is over
log = logging.getLogger(__name__)
Clock = Callable[[], float]
Written = str | bytes


@dataclass(eq=False)
class RequestJob:
    """A request's inputs, which may be explained in several batches, and its answer."""

    model: str
    request: ExplainRequest
    inputs: Sequence[tuple[ExplainerInput, int]]  # each with its size: a number of units that it does not exceed
    target: Any
    write: Callable[[list[Any]], Written]  # from the inputs' results to the answer
    draws: bool = False  # `write` draws, which may take long
    arrived: float = 0.0
    deadline: float = math.inf
    checked: bool = False  # that it does not take too much work
    answer: Future[Written] = field(default_factory=Future)
    results: dict[int, Result] = field(default_factory=dict)  # by the input's number

    def queued(self) -> list[QueuedInput]:
        return [QueuedInput(self, number, value, size) for number, (value, size) in enumerate(self.inputs)]

    def is_wanted(self, now: float) -> bool:
        """Whether the client still waits."""
        return not self.answer.done() and now < self.deadline

    @property
    def small(self) -> bool:
        few = len(self.inputs) <= SMALL_INPUTS and sum(size for _, size in self.inputs) <= SMALL_UNITS
        return few and not self.request.slow

    @property
    def write_results(self) -> Callable[[], Written]:
        return partial(self.write, [self.results[number] for number in range(len(self.inputs))])

    def finish(self, answer: Written) -> None:
        if not self.answer.done() and self.answer.set_running_or_notify_cancel():
            self.answer.set_result(answer)

    def fail(self, error: BaseException, number: int | None = None) -> None:
        """Answer with the error of one of its inputs, or of writing."""
        if self.answer.done() or not self.answer.set_running_or_notify_cancel():
            return
        if not isinstance(error, RelpropError):
            log.error("a request failed: %r", self.request, exc_info=error)
            error = RuntimeError("a request failed")  # a SystemExit must not end whoever waits for the answer
        elif number is not None and len(self.inputs) > 1:
            error = numbered(error, number)
        self.answer.set_exception(error)


@dataclass(frozen=True, eq=False)
class QueuedInput:
    """One input of a job."""

    job: RequestJob
    number: int
    value: ExplainerInput
    size: int

    def fits_with(self, other: QueuedInput) -> bool:
        return (self.job.model, self.job.request) == (other.job.model, other.job.request)


class Worker:
    """The four threads and their queue. `on_loaded` is called once all models are loaded, or have failed to."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        limits: Limits,
        metrics: ServiceMetrics,
        *,
        on_loaded: Callable[[], None] = lambda: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.models, self._limits, self._metrics = models, limits, metrics
        self._on_loaded, self._clock = on_loaded, clock
        self._waiting: list[QueuedInput] = []
        self._inside = 0  # inputs that wait, are explained, or whose answer is being written
        self._changed = threading.Condition()
        self._stopping = False
        self._pace = 0.05  # seconds per input, a moving average
        self._busy_since = math.inf  # when the first thread began its batch
        self._deadlines: dict[str, float] = {}  # of the batches that are being explained, by thread
        self._calling = threading.Thread(target=self._run, name="relprop", daemon=True)
        self._beside = threading.Thread(target=self._work_beside, name="relprop-beside", daemon=True)
        self._writing = ThreadPoolExecutor(1, "relprop-writer")
        self._drawing = ThreadPoolExecutor(1, "relprop-drawer")
        self._drawer = DrawingProcess()
        metrics.depth.set_function(lambda: self._inside)

    def start(self) -> None:
        self._calling.start()

    def stop(self) -> None:
        """Stop once waiting inputs are done; do not wait for a model to load, nor longer than a request may take."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if not any(model.loading for model in self.models.values()):
            self._calling.join(self._limits.seconds)
            if self._beside.ident is not None:
                self._beside.join(self._limits.seconds)
        self._writing.shutdown()
        self._drawing.shutdown()
        self._drawer.close()
        gc.unfreeze()

    @property
    def problem(self) -> str | None:
        """Why no request can be answered now, or None."""
        if self._calling.ident is not None and not self._calling.is_alive() and not self._stopping:
            return "the thread that calls the models has ended; the log has the reason"
        over = self._clock() - min(list(self._deadlines.values()), default=math.inf)
        return f"a batch runs {over:.0f} seconds beyond its limit" if over > GRACE else None

    def submit(self, job: RequestJob) -> Future[Written]:
        """The answer of a job that is put in the queue; refused where it is full."""
        job.arrived = self._clock()
        job.deadline = job.arrived + self._limits.seconds
        items = job.queued()
        with self._changed:
            self.check_room(len(items), 1 if job.small else SHARE_OF_LARGE)
            self._inside += len(items)
            self._waiting += items
            self._changed.notify_all()
        job.answer.add_done_callback(lambda _: self._leave(len(items)))
        return job.answer

    def check_room(self, inputs: int = 1, share: float = 1) -> None:
        """Refuse if this share of the queue is full; requests that arrive later may still fit."""
        if self.problem is not None:
            raise RefusedError(503, f"{self.problem}: try again later", 5)
        if self._inside and self._inside + inputs > share * self._limits.queue:
            wait = max(1, math.ceil(self._inside * self._pace))
            raise RefusedError(503, f"{self._inside} inputs are waiting already: try again later", wait)

    def _leave(self, inputs: int) -> None:
        with self._changed:
            self._inside -= inputs

    def _run(self) -> None:
        try:
            self._load()
            self._beside.start()
            self._work()
        except BaseException:
            log.critical("the thread that calls the models has ended", exc_info=True)
        finally:
            self._fail_waiting()

    def _fail_waiting(self) -> None:
        with self._changed:
            left, self._waiting = self._waiting, []
        for item in left:
            item.job.fail(RefusedError(503, "the service has stopped", 5))

    def _load(self) -> None:
        if self._limits.threads is not None:
            torch.set_num_threads(self._limits.threads)
        for model in self.models.values():
            model.load()
        gc.collect()
        gc.freeze()  # the models stay: garbage collection need not look through them again
        self._on_loaded()

    def _work(self) -> None:
        for number in count():
            if number % RELEASE_AFTER == 0 or not self._has_work(IDLE):
                release_freed_memory()
            batch = self._next_batch()
            if not batch:
                return
            began = self._clock()
            self._set_busy(began)
            self._check_and_explain(batch)
            self._set_busy(math.inf)
            self._note_time(len(batch), self._clock() - began)

    def _work_beside(self) -> None:
        """Explain small requests that wait behind one long batch of the other thread."""
        if self._limits.threads is not None:
            torch.set_num_threads(self._limits.threads)
        while not self._stopping:
            with self._changed:
                small = sorted((item for item in self._waiting if item.job.small), key=self._turn)
                wait = self._busy_since + self._limits.beside - self._clock() if small else math.inf
                if wait > 0:
                    self._changed.wait(None if math.isinf(wait) else max(wait, 0.01))
                    continue
                batch = self._take(small[0], small, self._limits.batch)
            self._check_and_explain(batch)

    def _has_work(self, seconds: float | None = None) -> bool:
        """Whether there is work, or the worker stops, after at most so many seconds."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._waiting or self._stopping, seconds))

    def _next_batch(self) -> list[QueuedInput]:
        """The input whose turn it is and, of those that fit with it, the nearest in size; waits while they are few."""
        self._has_work()
        with self._changed:
            if not self._waiting:
                return []
            first = min(self._waiting, key=self._turn)
            most = max(1, self._limits.batch // SLOW_SHARE) if first.job.request.slow else self._limits.batch
            wait = first.job.arrived + self._limits.linger - self._clock()
            if wait > 0:
                self._changed.wait_for(lambda: len(self._fitting(first)) >= most or self._stopping, wait)
            return self._take(first, self._waiting, most)

    def _take(self, first: QueuedInput, waiting: Sequence[QueuedInput], most: int) -> list[QueuedInput]:
        """At most so many of the inputs that fit with the first, the nearest in size; they wait no longer."""
        fitting = [item for item in waiting if item.fits_with(first)]
        near = sorted(fitting[: AHEAD * most], key=lambda item: abs(item.size - first.size))[:most]
        while len(near) > 1 and len(near) * max(item.size for item in near) > UNITS_TOGETHER:
            near.pop()
        taken = set(near)
        self._waiting = [item for item in self._waiting if item not in taken]
        return near

    def _turn(self, item: QueuedInput) -> float:
        """When an input's turn is.

        Slow methods, and what is left of a large request after its first batch, let others pass that arrive soon after.
        """
        gives_way = item.job.request.slow or item.number >= self._limits.batch
        return item.job.arrived + (PATIENCE * self._limits.seconds if gives_way else 0.0)

    def _fitting(self, item: QueuedInput) -> list[QueuedInput]:
        return [one for one in self._waiting if one.fits_with(item)]

    def _set_busy(self, since: float) -> None:
        with self._changed:
            self._busy_since = since
            self._changed.notify_all()

    def _check_and_explain(self, batch: list[QueuedInput]) -> None:
        for job in {item.job: None for item in batch}:
            self._check_work(job)
        self._explain(batch)

    def _check_work(self, job: RequestJob) -> None:
        """Fail the whole job if it takes too much work."""
        if job.checked or not job.is_wanted(self._clock()):
            return
        job.checked = True
        try:
            with stop_when(lambda: not job.is_wanted(self._clock())):
                self.models[job.model].check_work(job.request, [value for value, _ in job.inputs], self._limits)
        except RefusedError as error:
            job.fail(error)
        except BaseException:  # what cannot be read fails by itself, with its number
            log.debug("a request cannot be measured", exc_info=True)

    def _explain(self, items: list[QueuedInput]) -> None:
        """All inputs together; after an error in halves, so that one bad input does not fail the others."""
        items = [item for item in items if not self._dropped(item.job)]
        if not items:
            return
        job, jobs = items[0].job, [item.job for item in items]
        inputs, targets = [item.value for item in items], [item.job.target for item in items]
        thread = threading.current_thread().name
        self._deadlines[thread] = max(one.deadline for one in jobs)
        try:
            with stop_when(lambda: not any(one.is_wanted(self._clock()) for one in jobs)):
                results = self.models[job.model].answer(job.request, inputs, targets)
        except OutOfTimeError:
            for one in jobs:
                self._dropped(one)
        except BaseException as error:
            if len(items) == 1:
                job.fail(error, items[0].number)
            else:
                half = len(items) // 2
                self._explain(items[:half])
                self._explain(items[half:])
        else:
            self._metrics.batch.observe(len(items))
            for item, result in zip(items, results, strict=True):
                self._add_result(item, result)
        finally:
            self._deadlines.pop(thread, None)

    def _dropped(self, job: RequestJob) -> bool:
        """Whether nobody waits for the job any more; it is then answered, if it was not."""
        if job.is_wanted(self._clock()):
            return False
        job.fail(out_of_time(self._limits))
        return True

    def _add_result(self, item: QueuedInput, result: Result) -> None:
        with self._changed:
            item.job.results[item.number] = result
            complete = len(item.job.results) == len(item.job.inputs)
        if complete:
            (self._drawing if item.job.draws else self._writing).submit(self._write, item.job)

    def _write(self, job: RequestJob) -> None:
        if self._dropped(job):
            return
        try:
            write, left = job.write_results, job.deadline - self._clock()
            with stop_when(lambda: not job.is_wanted(self._clock())):
                job.finish(self._drawer.call(write, left) if job.draws else write())
        except OutOfTimeError:
            self._dropped(job)
        except BaseException as error:
            if not (isinstance(error, DrawingError) and self._dropped(job)):
                job.fail(error)

    def _note_time(self, inputs: int, seconds: float) -> None:
        self._pace += 0.1 * (seconds / inputs - self._pace)
        self._metrics.seconds.observe(seconds)


def out_of_time(limits: Limits) -> RefusedError:
    return RefusedError(503, f"this was not explained within {limits.seconds:g} seconds", retry_after=5)


def release_freed_memory() -> None:
    """Give freed memory back to the system, which glibc keeps in ever more pieces; other C libraries lack the call."""
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
