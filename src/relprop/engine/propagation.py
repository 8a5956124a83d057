"""The mode: sees every torch call of a forward pass and lets the rules decide how its result flows back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from relprop.engine.structure import calls, module_of, path_of
from relprop.errors import UnruledOpError
from relprop.ops import Op, op_of, positional, take_inplace
from relprop.rulebook.product import live_tensors
from relprop.rulebook.rulesets import QUANTISED, Expand, RuleSet

Run = Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]


class Observer:
    """Watches the calls go by; the methods here do nothing."""

    def before(self, mode: Propagation, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Ahead of every call, with its arguments as the model gave them; may give a tensor a stand-in."""

    def constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """After a call without live tensors; returns its result."""
        return result

    def around(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        """In place of a call with live tensors; `run` makes the call."""
        return run(op, args, kwargs)

    def writing(self, tensor: Tensor) -> None:
        """Ahead of a write to a tensor's memory."""


class Propagation(TorchFunctionMode):
    """A reversible, thread-local context in which `rules` govern the backward flow of whatever is computed.

    Live tensors are those that depend on the explained input: they require grad and are no parameters. Parameters are
    detached on the way in, so that no parameter gradient is ever computed.
    """

    def __init__(self, rules: RuleSet, observers: Iterable[Observer] = ()) -> None:
        super().__init__()
        self.rules = rules
        self.observers = list(observers)
        self._wrapping = [one for one in self.observers if type(one).around is not Observer.around]
        self._stand_ins: dict[int, tuple[Tensor, Tensor]] = {}
        self._flows: dict[str, bool] = {}  # of operations that are not torch's own: whether they have a gradient

    def replace(self, tensor: Tensor, stand_in: Tensor) -> None:
        """From here on every call that gets `tensor` gets `stand_in`."""
        self._stand_ins[id(tensor)] = (tensor, stand_in)  # keeps `tensor` alive: its id must not be given away

    def stand_in(self, tensor: Tensor) -> Tensor:
        """What calls get in place of `tensor`: itself, unless it was replaced."""
        while (entry := self._stand_ins.get(id(tensor))) is not None:
            tensor = entry[1]
        return tensor

    def again(self) -> Propagation:
        """The same rules and stand-ins without observers, to run a part of the model once more."""
        twin = Propagation(self.rules)
        twin._stand_ins = self._stand_ins
        return twin

    def is_live(self, tensor: Tensor) -> bool:
        return id(tensor) in self._stand_ins or (tensor.requires_grad and not isinstance(tensor, Parameter))

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        op = op_of(func)
        if op.query or not torch.is_grad_enabled():
            return func(*args, **(kwargs or {}))
        args, kwargs = positional(args, kwargs) if kwargs else (args, {})
        for observer in self.observers:
            observer.before(self, op, args, kwargs)
        admitted, live = self._admit(args)
        if kwargs:
            values, live_too = self._admit(tuple(kwargs.values()))
            kwargs, live = dict(zip(kwargs, values, strict=True)), live or live_too
        rule = QUANTISED.get(op.name) if op.custom else self.rules.get(op.name)
        if isinstance(rule, Expand) and rule.applies(admitted, kwargs, live):
            with self:
                result = rule.function(*admitted, **kwargs)
            return self._write(admitted[0], result) if op.in_place else result
        if not live:
            result = func(*admitted, **kwargs)
            if op.custom and isinstance(result, Tensor):
                result = result.detach()  # packed weights may require a gradient
            for observer in self.observers:
                result = observer.constant(op, args, kwargs, result)
            return result
        run: Run = self._run
        for observer in self._wrapping:
            run = _within(observer, run)
        op, admitted, kwargs = take_inplace(op, admitted, kwargs)
        if not op.in_place:
            return run(op, admitted, kwargs)
        target, *rest = admitted
        return self._write(target, run(op, (target.clone(), *rest), kwargs))  # a copy: autograd may keep it

    def _write(self, target: Tensor, result: Tensor) -> Tensor:
        """Let `target` hold `result`: in its memory, or, where that may not be written to, by a stand-in."""
        own_function = hasattr(target.grad_fn, "_forward_cls")  # autograd forbids writing to its views
        saved = self.rules.carries == "relevance"  # those rules keep what they read
        if own_function or (not target._is_view() and (saved or not result.requires_grad)):
            self.replace(target, result)
            return result
        for observer in self._wrapping:
            observer.writing(target)
        return target.copy_(result)

    def _admit(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], bool]:
        """Stand-ins for what has one, parameters without gradient; and whether anything is live."""
        live = False
        admitted = []
        for value in values:
            if isinstance(value, Tensor):
                if self._stand_ins:
                    value = self.stand_in(value)
                if value.requires_grad:
                    if isinstance(value, Parameter):
                        value = value.detach()
                    else:
                        live = True
            elif type(value) is tuple or type(value) is list:
                inner, inner_live = self._admit(tuple(value))
                value, live = type(value)(inner), live or inner_live
            admitted.append(value)
        return tuple(admitted), live

    def _run(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = self.rules.get(op.name)
        if isinstance(rule, Expand):
            rule = rule.fused
        if rule is not None:
            return rule(op.function, *args, **kwargs)
        result = op.function(*args, **kwargs)
        if self.rules.carries == "relevance":
            lacking = f'for which the rule set "{self.rules.name}" has no rule: use lrp_ah_ln'
            return _guard(result, op, self.rules, lacking)
        if op.custom and op.name not in self._flows:
            self._flows[op.name] = _flows_back(result, args)
        return result if self._flows.get(op.name, True) else _guard(result, op, self.rules, _NO_GRADIENT)


def _within(observer: Observer, run: Run) -> Run:
    return lambda op, args, kwargs: observer.around(op, args, kwargs, run)


_NO_GRADIENT = "an operation without a gradient: use a method that needs none, such as occlusion or attention_last"


def _flows_back(result: Any, args: tuple[Any, ...]) -> bool:
    """Whether a gradient would: torch itself only warns of operations that have none, or fails far from them."""
    results = live_tensors(result)
    if not results:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            zeros = [torch.zeros_like(one) for one in results]
            found = torch.autograd.grad(results, live_tensors(*args), zeros, retain_graph=True, allow_unused=True)
        except (RuntimeError, NotImplementedError):
            return False
    return any(one is not None for one in found)


def _guard(result: Any, op: Op, rules: RuleSet, reason: str) -> Any:
    """Relevance that reaches such an operation is an error; on a branch that it never reaches, no harm."""
    running = [module_of(frame) for frame in calls()]

    def refusal() -> UnruledOpError:
        where = f' in "{path_of(running[0], running[-1])}"' if running else ""
        return UnruledOpError(f'relevance reached "{op.name}"{where}, {reason}')

    def refuse(relevance: Tensor) -> None:
        if not _gradient_flows(rules) and torch.count_nonzero(relevance):
            raise refusal()

    results = [one for one in (result if isinstance(result, tuple | list) else (result,)) if isinstance(one, Tensor)]
    if op.custom and any(one.is_floating_point() for one in results) and not live_tensors(results):
        raise refusal()  # it would be taken for a constant
    for tensor in live_tensors(results):
        tensor.register_hook(refuse)
    return result


def _gradient_flows(rules: RuleSet) -> bool:
    """Whether the way back is the gradient's, of rules that carry relevance after it."""
    return rules.way.phase is not None and rules.way.phase.gradient


def opaque_functions(value: Tensor) -> Iterator[Any]:
    """Functions with a backward pass of their own, in the graph of `value`: they are no torch calls."""
    nodes, seen = [value.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
        cls = getattr(node, "_forward_cls", None)
        if cls is not None and not cls.__module__.startswith("relprop."):
            yield node


def guard_opaque(value: Tensor, rules: RuleSet) -> None:
    """They would take relevance for a gradient: relevance that reaches one is an error."""
    for node in opaque_functions(value) if rules.carries == "relevance" else ():
        name = node._forward_cls.__name__

        def refuse(flowing: tuple[Tensor | None, ...], name: str = name) -> None:
            if not _gradient_flows(rules) and any(one is not None and one.any() for one in flowing):
                raise UnruledOpError(
                    f'relevance reached "{name}", a function with a backward pass of its own: use lrp_ah_ln'
                )

        node.register_prehook(refuse)
