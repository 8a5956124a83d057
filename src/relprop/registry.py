"""Name -> function tables with metadata: the one list behind the command line, the docs and the common tests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from numbers import Integral, Real
from typing import Any, Generic, TypeVar

import numpy as np

from relprop.errors import InputError, did_you_mean, unknown_name

F = TypeVar("F", bound=Callable[..., Any])


def _one_pass(units: int, options: Mapping[str, Any]) -> int:
    return 1


@dataclass(frozen=True, repr=False)
class Record(Generic[F]):
    """A registered function and what a user or a test must know of it."""

    name: str
    function: F
    family: str
    signed: bool
    gradients: bool  # needs a backward pass
    citation: str
    complete: bool = False  # the scores sum to value - baseline
    additive: bool = False  # the scores of a sum of targets are the sum of their scores
    maps: bool = False  # needs one attention map of all tokens by all tokens per block
    several: bool = False  # takes `targets.Several`: many targets of one example from a single forward pass
    two_way: bool = False  # its pass carries the gradient and relevance, so that it serves most other methods too
    passes: Callable[[int, Mapping[str, Any]], int] = _one_pass  # or steps like them, by an example's units and options

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={default!r}" for name, default in self.options.items())
        return f"{self.name}({options}): {self.summary}"

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").split("\n", 1)[0]

    @property
    def options(self) -> dict[str, object]:
        """Keyword-only options with their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def check(self, options: Mapping[str, object], call: Callable[..., Any] | None = None) -> None:
        """Raise for an option that the method does not have, or whose value is of a wrong kind.

        `call`: whose arguments may have been meant.
        """
        parameters = inspect.signature(self.function).parameters
        for option, value in options.items():
            if option not in self.options:
                known = ", ".join(self.options) or "none"
                arguments = [] if call is None else list(inspect.signature(call).parameters)
                guess = did_you_mean(option, [*self.options, *arguments])
                raise InputError(f'method "{self.name}" has no option "{option}"{guess} (its options: {known})')
            check_kind(f'option "{option}" of "{self.name}"', value, parameters[option].annotation)


KINDS: dict[str, tuple[Any, str]] = {
    "bool": (bool | np.bool_, "True or False"),
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
}


def check_kind(name: str, value: object, annotation: Any) -> None:
    """Raise for a value that does not fit `bool`, `int` or `float`, or one of these with `| None`.

    A word such as "no" counts as true in Python, so that it would do the opposite of what it says. Options with other
    annotations are checked by the methods.
    """
    written = str(getattr(annotation, "__name__", annotation))
    kind, words = KINDS.get(written.removesuffix(" | None"), (object, ""))
    if value is None and written.endswith(" | None"):
        return
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (Integral, Real)):
        raise InputError(f"{name} must be {words}, got {value!r:.80}")


def check_switches(**switches: object) -> None:
    """Raise for an argument that is neither True nor False, nor left at None."""
    for name, value in switches.items():
        check_kind(name, value, "bool | None")


class Registry(Generic[F]):
    """An ordered table of records; names are snake_case and hyphens are taken for underscores.

    A module that registers names is imported when one of them is asked for, if the registry was told its `homes`.
    """

    def __init__(self, kind: str, hint: str) -> None:
        self.kind = kind
        self.hint = hint
        self.homes: dict[str, str] = {}  # name -> the module that registers it
        self.special_homes: dict[str, str] = {}  # the same of names that are found, but not for every input: not listed
        self._records: dict[str, Record[F]] = {}

    def register(self, **metadata: Any) -> Callable[[F], F]:
        """Decorator: the function's own name is the registered name."""

        def add(function: F) -> F:
            name = function.__name__
            if name in self._records or self._home(name, function.__module__) != function.__module__:
                raise ValueError(f'{self.kind} "{name}" is registered twice')
            self._records[name] = Record(name=name, function=function, **metadata)
            return function

        return add

    def __getitem__(self, name: str) -> Record[F]:
        key = name.replace("-", "_") if isinstance(name, str) else ""
        if key not in self._records and self._home(key):
            import_module(self._home(key))
        if key not in self._records:
            raise unknown_name(self.kind, name, self.names(), self.hint.format(count=len(self)))
        return self._records[key]

    def __iter__(self) -> Iterator[Record[F]]:
        return (self[name] for name in self.names())

    def __len__(self) -> int:
        return len(self.names())

    def _home(self, name: str, default: str = "") -> str:
        return self.homes.get(name) or self.special_homes.get(name, default)

    def names(self) -> list[str]:
        """Those that fit every input, in one order, whatever was imported first."""
        return [name for name in self.homes | dict.fromkeys(self._records, "") if name not in self.special_homes]

    def every(self) -> list[Record[F]]:
        """All records, those that are not for every input at the end."""
        return [self[name] for name in (*self.names(), *self.special_homes)]


class RecordList(list[Record[Any]]):
    """Records, printed one per line."""

    def __repr__(self) -> str:
        width = max((len(one.name) for one in self), default=0)
        return "\n".join(f"{one.name:<{width}}  {one.summary}" for one in self)


METHODS: Registry[Callable[..., Any]] = Registry("method", "relprop methods lists all {count}")
