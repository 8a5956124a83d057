"""Finds the gates behind which an explained number lies, and opens them for another pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from relprop.engine.observer import Observer, Run
from relprop.ops import OPENED, Op
from relprop.rulebook.elementwise import constant_ratio
from relprop.rulebook.output_gates import opened
from relprop.rulebook.product import live_tensors
from relprop.rulebook.rulesets import CUTS, RuleSet

_GATES = "_relprop_gates"  # on a constant: the gates that it was computed from, by their number


class OutputGates(Observer):
    """Numbers the gates of a pass in their order and follows what is computed from them; some are `open`."""

    def __init__(self, rules: RuleSet, opened: frozenset[int] = frozenset()) -> None:
        self._rules = rules
        self._ratios = rules.get("relu") is constant_ratio
        self._open = opened
        self._count = 0

    def around_call(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        if self._rules.get(op.name) not in CUTS:
            return run(op, args, kwargs)
        self._count += 1
        number = self._count
        function = opened(op.name, args, kwargs, self._ratios) if number in self._open else None
        if function is not None:
            return run(replace(op, name=OPENED, function=partial(function, op.function)), args, kwargs)
        result = run(op, args, kwargs)
        if isinstance(result, Tensor) and not live_tensors(result):
            setattr(result, _GATES, frozenset((number,)))
        return result

    def after_constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        behind = frozenset[int]().union(*map(gates_behind, _tensors((*args, *kwargs.values()))))
        for tensor in _tensors((result,)) if behind else ():
            setattr(tensor, _GATES, behind | gates_behind(tensor))
        return result


def gates_behind(tensor: Tensor) -> frozenset[int]:
    """The numbers of the gates that a constant was computed from."""
    found: frozenset[int] = getattr(tensor, _GATES, frozenset())
    return found


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
