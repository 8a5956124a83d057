"""A suite: a TOML file that names models, datasets, methods, metrics, sample and seed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import relprop.methods  # noqa: F401  (fills the registry)
from relprop.bench.catalog import Catalog, catalog_of, with_own
from relprop.bench.tables import built
from relprop.errors import InputError, unknown_name
from relprop.metrics import METRICS
from relprop.registry import METHODS

FOLDER = Path(__file__).parent / "suites"


@dataclass(frozen=True)
class Method:
    """A method with its options, and what tables call it."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    printed: str = ""  # the paper's name for it
    line: str = ""  # methods of one line are also drawn as one, over `x`
    x: float | None = None


@dataclass(frozen=True)
class Task:
    """One model on one dataset."""

    name: str  # the column in tables
    model: str  # a hub id, a folder, an embedded model, or "recipe:NAME"
    data: str = ""
    kind: str = "faithfulness"
    split: str = "test"
    sample: int = 0  # 0: the suite's
    metrics: tuple[str, ...] = ()  # none: the suite's
    without: tuple[str, ...] = ()  # labels of methods that are left out
    explain: Literal["label", "predicted"] = "predicted"  # the class that is explained and whose p is read
    replacement: str = "mask"  # what a hidden token becomes: "mask", "unk", or "" to leave it out
    max_length: int | None = None
    chunk: int = 20  # examples a cell
    batch_size: int = 32
    ceiling: int = 0  # search the best order for texts of up to so many tokens
    show: int = 0  # keep the heatmaps of so many examples
    options: Mapping[str, Any] = field(default_factory=dict)  # of the kind


@dataclass(frozen=True)
class Table:
    """A table of the report: one metric, methods by tasks, beside the published numbers.

    `row` and `column` say where those stand in the CSV file; {method} and {task} are the printed names.
    """

    title: str
    metric: str
    published: str = ""
    row: str = "{method}"
    column: str = "{task}"
    tasks: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    scale: float = 1.0  # ours times this is in the paper's unit
    note: str = ""
    lead: str = ""  # a label: a second table says how far this method is ahead of each other, paired


@dataclass(frozen=True)
class Suite:
    """What is measured, and how it is shown."""

    name: str
    title: str
    methods: tuple[Method, ...]
    tasks: tuple[Task, ...]
    metrics: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    difference: tuple[str, ...] = ()  # two labels: the report also draws the first method's heat maps less the second's
    about: str = ""
    sample: int = 100
    seed: int = 0
    catalog: Catalog = field(default_factory=lambda: with_own(Catalog({}, {})))

    def methods_of(self, task: Task) -> tuple[Method, ...]:
        return tuple(one for one in self.methods if one.label not in task.without)


def shipped() -> dict[str, Path]:
    """The suites that come with relprop, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def read_suite(given: str | Path, sample: int | None = None, seed: int | None = None) -> Suite:
    """A shipped suite's name, or a file; with another sample or seed if wanted."""
    own = shipped()
    path = own.get(str(given), Path(given))
    if not path.is_file():
        raise unknown_name("suite", given, own, "a shipped one, or a .toml file that exists")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f'the suite "{path}" cannot be read: {error}') from error
    suite = suite_from(tables, path.stem, f'"{path.name}"')
    if sample is not None:
        if sample < 1:
            raise InputError(f"the sample must be at least 1, got {sample}")
        suite = replace(suite, sample=sample, tasks=tuple(replace(task, sample=sample) for task in suite.tasks))
    return suite if seed is None else replace(suite, seed=seed)


def suite_from(tables: Mapping[str, Any], name: str, where: str) -> Suite:
    """Checked: every name known, every setting of the right kind."""
    rest = {key: value for key, value in tables.items() if key not in ("data", "recipe", "methods", "tasks", "tables")}
    for key in ("methods", "tasks", "tables"):
        if not isinstance(tables.get(key, []), list):
            raise InputError(f'"{key}" of {where} should be a list')
    if not tables.get("tasks"):
        raise InputError(f"{where} has no task: a [[tasks]] table names a model and its data")
    methods = tuple(
        _method(one, f"method {number} of {where}") for number, one in enumerate(tables.get("methods", []), 1)
    )
    tasks = tuple(built(Task, one, f"task {number} of {where}") for number, one in enumerate(tables["tasks"], 1))
    shown = tuple(
        built(Table, one, f"table {number} of {where}") for number, one in enumerate(tables.get("tables", []), 1)
    )
    catalog = with_own(catalog_of(tables, where))
    suite = built(Suite, {"name": name, **rest}, where, methods=methods, tasks=tasks, tables=shown, catalog=catalog)
    _check(suite, where)
    return suite


def _method(given: Any, where: str) -> Method:
    table = {"method": given} if isinstance(given, str) else given
    one = built(Method, table, where)
    record = METHODS[one.method]
    record.check(dict(one.options))
    extra = ", ".join(f"{name}={value}" for name, value in one.options.items())
    label = one.label or (f"{record.name} ({extra})" if extra else record.name)
    return replace(one, method=record.name, label=label, printed=one.printed or label)


def _check(suite: Suite, where: str) -> None:
    """Names that stand for each other must be there, and once."""
    labels = [one.label for one in suite.methods]
    names = [task.name for task in suite.tasks]
    for what, each in (("method", labels), ("task", names)):
        twice = next((one for one in each if each.count(one) > 1), None)
        if twice:
            raise InputError(f'{where} has two {what}s called "{twice}"; give one of them another name or label')
    for one in suite.tasks:
        for label in one.without:
            if label not in labels:
                raise unknown_name(f'method of task "{one.name}"', label, labels)
        if one.data:
            suite.catalog.dataset(one.data)
        if one.model.startswith("recipe:"):
            suite.catalog.recipe(one.model.removeprefix("recipe:"))
        for number in ("chunk", "batch_size"):
            if getattr(one, number) < 1:
                raise InputError(f'"{number}" of task "{one.name}" must be at least 1, got {getattr(one, number)}')
    for metric in (*suite.metrics, *(metric for task in suite.tasks for metric in task.metrics)):
        if metric not in METRICS:
            raise unknown_name(f"metric of {where}", metric, METRICS)
    if len(suite.difference) not in (0, 2):
        got = ", ".join(suite.difference)
        raise InputError(f'"difference" of {where} is two methods, the first less the second; got {got}')
    for label in suite.difference:
        if label not in labels:
            raise unknown_name(f"method of the difference in {where}", label, labels)
    for table in suite.tables:
        for name in table.tasks:
            if name not in names:
                raise unknown_name(f'task of table "{table.title}"', name, names)
        for label in (*table.methods, *([table.lead] if table.lead else [])):
            if label not in labels:
                raise unknown_name(f'method of table "{table.title}"', label, labels)
