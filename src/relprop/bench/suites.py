"""A suite: a TOML file that names models, datasets, methods, metrics, sample and seed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import relprop.methods  # noqa: F401  (fills the registry)
from relprop.bench.catalog import Catalog, catalog_of, with_shipped
from relprop.bench.settings import NOTHING_ELSE, validated
from relprop.errors import InputError, unknown_name
from relprop.metrics import METRICS
from relprop.registry import METHODS

FOLDER = Path(__file__).parent / "suites"
_OTHER_SEED = 1
SECOND = f", seed {_OTHER_SEED}"  # ends the name of a task whose model was trained with another seed


@dataclass(frozen=True)
class Method:
    """A method with its options, and what tables call it."""

    __pydantic_config__: ClassVar = NOTHING_ELSE
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    printed: str = ""  # the paper's name for it
    line: str = ""  # methods of one line are drawn as one curve over `x`
    x: float | None = None


@dataclass(frozen=True)
class SuiteTask:
    """One model on one dataset."""

    __pydantic_config__: ClassVar = NOTHING_ELSE
    name: str  # the column in tables
    model: str  # a hub id, a folder, an embedded model, or "recipe:NAME"
    data: str = ""
    kind: str = "faithfulness"
    split: str = "test"
    sample: int = 0  # 0: the suite's number
    metrics: tuple[str, ...] = ()  # empty: the suite's metrics
    without: tuple[str, ...] = ()  # labels of methods to leave out
    explain: Literal["label", "predicted"] = "predicted"  # the class that is explained and whose p is read
    replacement: str = "mask"  # what a hidden token becomes: "mask", "unk", or "" to remove it
    max_length: int | None = None
    chunk: int = 20  # examples per cell
    batch_size: int = 32
    ceiling: int = 0  # search for the best order of texts of up to this many tokens
    show: int = 0  # keep the heat maps of this many examples
    options: Mapping[str, Any] = field(default_factory=dict)  # of the kind of task


@dataclass(frozen=True)
class Table:
    """A table of the report: one metric, methods by tasks, beside the published numbers.

    `row` and `column` name the published numbers in the CSV file; {method} and {task} are the printed names.
    """

    __pydantic_config__: ClassVar = NOTHING_ELSE
    title: str
    metric: str
    published: str = ""
    row: str = "{method}"
    column: str = "{task}"
    tasks: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    scale: float = 1.0  # our numbers times this are in the paper's unit
    note: str = ""
    lead: str = ""  # a label: a second table says how far this method is ahead of each other one, paired


@dataclass(frozen=True)
class Suite:
    """What is measured, and how it is shown."""

    __pydantic_config__: ClassVar = NOTHING_ELSE
    name: str
    title: str
    methods: tuple[Method, ...]
    tasks: tuple[SuiteTask, ...]
    metrics: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    difference: tuple[str, ...] = ()  # two labels: the report also draws the difference of their heat maps
    about: str = ""
    sample: int = 100
    seed: int = 0
    second_seed: int = 0  # each recipe's model is trained once more with another seed, and measured on so many examples
    catalog: Catalog = field(default_factory=lambda: with_shipped(Catalog({}, {})))

    def methods_of(self, task: SuiteTask) -> tuple[Method, ...]:
        return tuple(one for one in self.methods if one.label not in task.without)

    def tasks_named(self, names: Iterable[str]) -> tuple[SuiteTask, ...]:
        """Tasks by name, in the order of the names; none named: all of them."""
        known = {task.name: task for task in self.tasks}
        _check_known(f"task of {self.name}", names := list(names), known)
        return tuple(known[name] for name in dict.fromkeys(names)) or self.tasks


def shipped_suites() -> dict[str, Path]:
    """The suites that come with relprop, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def read_suite(given: str | Path, sample: int | None = None, seed: int | None = None) -> Suite:
    """A shipped suite's name, or a file; with another sample or seed if given."""
    shipped = shipped_suites()
    path = shipped.get(str(given), Path(given))
    if not path.is_file():
        raise unknown_name("suite", given, shipped, "a shipped one, or a .toml file that exists")
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
    """A suite in which every name is known and every setting of the right type."""
    if not tables.get("tasks"):
        raise InputError(f"{where} has no task: a [[tasks]] table names a model and its data")
    methods = tables.get("methods", [])
    if isinstance(methods, list):  # a method without options may be its name alone
        methods = [{"method": one} if isinstance(one, str) else one for one in methods]
    rest = {key: value for key, value in tables.items() if key not in ("data", "recipe")}
    suite = validated(Suite, {"name": name, **rest, "methods": methods}, where)
    suite = replace(
        suite,
        methods=tuple(map(_labelled, suite.methods)),
        tasks=(*suite.tasks, *_second_models(suite)),
        catalog=with_shipped(catalog_of(tables, where)),
    )
    _check_names(suite, where)
    return suite


def _second_models(suite: Suite) -> tuple[SuiteTask, ...]:
    """The tasks of recipes again, with models of another seed: what is the model's, and what the method's?"""
    if not suite.second_seed:
        return ()
    return tuple(
        replace(
            task,
            name=task.name + SECOND,
            model=f"{task.model}@{_OTHER_SEED}",
            sample=suite.second_seed,
            ceiling=0,
            show=0,
        )
        for task in suite.tasks
        if task.model.startswith("recipe:")
    )


def _labelled(one: Method) -> Method:
    """The method under its registered name, with a label and a printed name."""
    record = METHODS[one.method]
    record.check(dict(one.options))
    options = ", ".join(f"{name}={value}" for name, value in one.options.items())
    label = one.label or (f"{record.name} ({options})" if options else record.name)
    return replace(one, method=record.name, label=label, printed=one.printed or label)


def _check_names(suite: Suite, where: str) -> None:
    """Every name must refer to something, and every label be unique."""
    labels = [one.label for one in suite.methods]
    names = [task.name for task in suite.tasks]
    for what, each in (("method", labels), ("task", names)):
        twice = next((one for one in each if each.count(one) > 1), None)
        if twice:
            raise InputError(f'{where} has two {what}s called "{twice}"; give one of them another name or label')
    for task in suite.tasks:
        _check_known(f'method of task "{task.name}"', task.without, labels)
        if task.data:
            suite.catalog.dataset(task.data)
        for model in (task.model, str(task.options.get("judge", ""))):
            if model.startswith("recipe:"):
                suite.catalog.recipe(model.removeprefix("recipe:"))
        for setting, value in (("chunk", task.chunk), ("batch_size", task.batch_size)):
            if value < 1:
                raise InputError(f'"{setting}" of task "{task.name}" must be at least 1, got {value}')
        _check_known(f"metric of {where}", task.metrics, METRICS)
    _check_known(f"metric of {where}", suite.metrics, METRICS)
    if len(suite.difference) not in (0, 2):
        got = ", ".join(suite.difference)
        raise InputError(f'"difference" of {where} is two methods, the first less the second; got {got}')
    _check_known(f"method of the difference in {where}", suite.difference, labels)
    for table in suite.tables:
        _check_known(f'task of table "{table.title}"', table.tasks, names)
        _check_known(f'method of table "{table.title}"', table.methods, labels)
        _check_known(f'method of table "{table.title}"', [table.lead] if table.lead else [], labels)


def _check_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise unknown_name(what, name, known)
