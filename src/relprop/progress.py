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
_PERIOD = 3600.0  # seconds over which a rate is measured: a single item may take minutes


def tracked(items: Sequence[T], description: str, shown: bool | None = None) -> Iterator[T]:
    """The items, with a progress bar if `shown`; by default only on long work at a terminal."""
    if shown is False or (shown is None and len(items) < LONG):
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    if shown is None:
        shown = console.is_terminal and len(items) >= LONG
    yield from track(items, description, console=console, disable=not shown, transient=console.is_terminal)


@contextmanager
def live_count(description: str) -> Iterator[Callable[..., None]]:
    """`show(done, count, note, urgent=False)` updates a bar with rate and time left.

    Without a terminal it prints a line every half minute, and at once if the note is urgent. A count that falls back
    belongs to the next piece of work: its rate is measured anew.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[note]}"))
    with Progress(
        TextColumn(description), *columns, console=console, disable=not console.is_terminal, get_time=time.monotonic,
        speed_estimate_period=_PERIOD,
    ) as progress:  # fmt: skip
        bar = progress.add_task(description, total=None, note="", visible=False)
        task, printed = progress.tasks[0], time.monotonic()

        def show(done: int, count: int, note: str, urgent: bool = False) -> None:
            nonlocal printed
            if done < task.completed or task.total is None:
                progress.reset(bar, total=count, completed=done - 1, visible=True)
            progress.update(bar, completed=done, total=count)
            rate = task.finished_speed or task.speed
            left = timedelta(seconds=round((count - done) / rate)) if rate else None
            pace = f"{60 * rate:.1f} per minute, {left} left" if rate else ""
            note = ", ".join(part for part in (pace, note) if part)
            progress.update(bar, note=note)
            if not console.is_terminal and (done == count or urgent or time.monotonic() - printed > _QUIET):
                line = f"{description}: {done} of {count}" + (f" ({note})" if note else "")
                console.print(line, highlight=False, markup=False, soft_wrap=True)
                printed = time.monotonic()

        yield show
