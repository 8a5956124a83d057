"""Progress bars on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")
LONG = 8  # items from which on a bar is worth its line
_QUIET = 30.0  # seconds between lines where there is no terminal


def tracked(items: Sequence[T], description: str, shown: bool | None = None) -> Iterator[T]:
    """The items, with a progress bar if `shown`; by default only on long work at a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    if shown is None:
        shown = console.is_terminal and len(items) >= LONG
    yield from track(items, description, console=console, disable=not shown, transient=console.is_terminal)


class Pace:
    """Rate and time left. A count that falls back belongs to the next piece of work: its rate is measured anew."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._first: int | None = None
        self._last = 0

    def __call__(self, done: int, count: int) -> str:
        now = time.monotonic()
        if done < self._last:
            self._start, self._first = now, done
        self._first = done - 1 if self._first is None else self._first
        self._last = done
        rate = max(1, done - self._first) / max(1e-3, now - self._start)
        return f"{60 * rate:.1f} per minute, {timedelta(seconds=round((count - done) / rate))} left"


@contextmanager
def live_count(description: str) -> Iterator[Callable[..., None]]:
    """`show(done, count, note, urgent=False)` updates a bar with rate and time left.

    Without a terminal it prints a line every half minute, and at once if the note is urgent.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[note]}"))
    with Progress(TextColumn(description), *columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(description, total=None, note="", visible=False)
        pace, printed = Pace(), time.monotonic()

        def show(done: int, count: int, note: str, urgent: bool = False) -> None:
            nonlocal printed
            note = ", ".join(part for part in (pace(done, count), note) if part)
            progress.update(bar, completed=done, total=count, note=note, visible=True)
            if not console.is_terminal and (done == count or urgent or time.monotonic() - printed > _QUIET):
                console.out(f"{description}: {done} of {count} ({note})", highlight=False)
                printed = time.monotonic()

        yield show
