"""What a kind of experiment is: examples of a dataset in, numbers out. A kind is two functions in a module here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from relprop.bench.measured import Measured
from relprop.bench.suites import Method, Suite, Task
from relprop.errors import unknown_name

KINDS = {
    "faithfulness": "relprop.bench.kinds.faithfulness",
    "rationales": "relprop.bench.kinds.rationales",
    "answers": "relprop.bench.kinds.answers",
    "heads": "relprop.bench.kinds.heads",
    "layers": "relprop.bench.kinds.layers",
    "pictures": "relprop.bench.kinds.pictures",
}


@dataclass(frozen=True)
class Job:
    """One cell: a model, some examples, and what is asked of them."""

    task: Task
    methods: tuple[Method, ...]
    metrics: tuple[str, ...]
    seed: int
    explainer: Any  # relprop.Explainer
    examples: Sequence[Any]
    places: Sequence[int]  # of the examples in their split
    shown: int  # of the first so many, heatmaps are kept


@dataclass(frozen=True)
class Kind:
    """`examples(suite, task, folder)` gives all of a split; `measure(job)` the numbers of some.

    `check(job)` may refuse a cell before hours are spent: it gets one example.
    """

    examples: Callable[[Suite, Task, Path | None], Sequence[Any]]
    measure: Callable[[Job], Measured]
    check: Callable[[Job], None]


def kind_of(name: str) -> Kind:
    """Loaded when it is asked for: a kind may need packages that others do not."""
    if name not in KINDS:
        raise unknown_name("kind of task", name, KINDS)
    module = import_module(KINDS[name])
    return Kind(module.examples, module.measure, module.check)
