"""The propagation mode: intercepts every torch call of a forward pass and applies the rules to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from relprop.deadline import check_deadline
from relprop.engine.carried_rows import copy_carried_rows
from relprop.engine.derived_constants import DerivedConstants
from relprop.engine.expanded_calls import detached, with_values_of
from relprop.engine.graph_exits import CASTS_TO_INTEGERS, GraphExits
from relprop.engine.in_place_writes import InPlaceWrites
from relprop.engine.lineage import Lineage
from relprop.engine.liveness import Liveness
from relprop.engine.observer import Observer, Run, within
from relprop.engine.own_functions import OwnFunctions, running_calls
from relprop.engine.quantised_calls import WITHOUT_RULES
from relprop.engine.refusals import NO_GRADIENT, flows_back, guard, location, refusal, with_gradient
from relprop.engine.restoring import SavedTensorHooks, default_hooks, forget_undo, leave_mode, note_undo
from relprop.engine.saved_tensors import SavedTensor, saved_values
from relprop.engine.tensor_notes import copy_note
from relprop.engine.weak_callbacks import weak_method
from relprop.errors import InputError
from relprop.ops import VALUELESS, Op, exponential, op_of, positional, take_inplace
from relprop.rulebook import elementwise
from relprop.rulebook.live_parameters import written_out
from relprop.rulebook.product import live_tensors
from relprop.rulebook.relevance_flow import NoGradientError
from relprop.rulebook.rulesets import CUTS, QUANTISED, RuleSet
from relprop.rulebook.treatments import ByWeights, Expand

_ACTIVATION = Op("activation", elementwise.activation)


class Propagation(TorchFunctionMode):
    """A reversible, thread-local context in which `rules` govern the backward flow of whatever is computed.

    A tensor is live if it depends on the explained input: it requires grad and is not a parameter. Parameters are
    detached, so that no parameter gradient is ever computed. With `leaves`, only what depends on these (and on what
    observers make live) is live; other tensors of the model that require grad are constants like parameters.

    `warnings` are to be reported with the result: values that left the graph and were used as constants.
    """

    def __init__(
        self, rules: RuleSet, observers: Iterable[Observer] = (), leaves: Iterable[Tensor] | None = None
    ) -> None:
        super().__init__()
        self.rules = rules
        self.observers = list(observers)
        self._wrapping = [one for one in self.observers if type(one).around_call is not Observer.around_call]
        self._claiming = [one for one in self.observers if type(one).claims is not Observer.claims]
        self._stand_ins: dict[int, tuple[Tensor, Tensor]] = {}
        self._has_gradient: dict[str, bool] = {}  # per operation that is not torch's own
        is_live = weak_method(self.is_live)  # a cycle would keep every tensor until a collection
        self._derived = DerivedConstants(rules, is_live)
        self._lineage = Lineage(rules, self._derived.has)
        self._exits = GraphExits(is_live)
        self._liveness = Liveness(leaves, self._exits.warn if rules.carries == "gradient" else None)
        self.writes = InPlaceWrites(self.observers, self._liveness, self._lineage, self._exits, self._stand_ins)
        self._functions = OwnFunctions(rules, is_live, self._liveness, self._exits)
        self._expanding = 0
        self._recomputing = False
        self._hooks: SavedTensorHooks | None = None

    @property
    def warnings(self) -> list[str]:
        return [*self._exits.warnings, *self._lineage.unrecognised]

    @property
    def reached_warnings(self) -> list[str]:  # after the backward pass
        return [*self._exits.reached_warnings, *self._lineage.unrecognised]

    # Entering and leaving.

    def __enter__(self) -> Propagation:
        if any(isinstance(mode, Propagation) for mode in _get_current_function_mode_stack()):
            raise InputError("a relprop.rules context is open already: leave it before another one or attribute begins")
        note_undo(self._close)
        try:
            if default_hooks() is None:
                self._hooks = SavedTensorHooks(weak_method(self.save), saved_values)
                self._hooks.__enter__()
            super().__enter__()  # type: ignore[no-untyped-call]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        leave_mode(self)
        if self._hooks is not None and default_hooks() == (self._hooks.pack_hook, self._hooks.unpack_hook):
            self._hooks.__exit__(*error)
        self._hooks = None
        self._close()
        forget_undo(self._close)

    def _close(self) -> None:
        """Release the graph."""
        self.writes.close()
        for one in (self._exits, self._liveness, self._functions):
            one.clear()

    def save(self, tensor: Tensor) -> SavedTensor:
        """The tensor as it is now, for the backward pass."""
        return self.writes.save(tensor)

    def without_observers(self) -> Propagation:
        """The same mode without observers, to run a part of the model again."""
        twin = Propagation(self.rules)
        twin._stand_ins, twin._liveness, twin._recomputing = self._stand_ins, self._liveness, True
        twin._derived.mark = self._derived.mark
        twin.writes = InPlaceWrites(twin.observers, twin._liveness, twin._lineage, twin._exits, twin._stand_ins)
        return twin

    # What is live.

    def replace(self, tensor: Tensor, stand_in: Tensor) -> None:
        """Use `stand_in` for `tensor` from now on: in its memory if this pass computed it, else in all torch calls."""
        self._liveness.add_live(stand_in)
        if not self.writes.adopt(tensor, stand_in):
            self._stand_ins[id(tensor)] = (tensor, stand_in)  # keeps `tensor`, so that its id is not reused

    def stand_in(self, tensor: Tensor) -> Tensor:
        """The tensor that calls get in place of `tensor`: itself, unless it was replaced."""
        while (entry := self._stand_ins.get(id(tensor))) is not None:
            tensor = entry[1]
        return tensor

    def is_live(self, tensor: Tensor) -> bool:
        tensor = self.stand_in(tensor)
        self._functions.take_graph(tensor, self, self.writes)
        return tensor.requires_grad and self._liveness.is_live(tensor)

    def live_copy(self, tensor: Tensor) -> Tensor:
        """A live tensor with these values; relevance that reaches it ends there."""
        with torch.enable_grad():
            live = tensor.detach().requires_grad_().clone()
        self._liveness.mark_live(live)
        return live

    # Calls.

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        op = op_of(func)
        if op.query:
            if op.name == "__set__":
                self._exits.check_assignment(func, args)
            return func(*args, **(kwargs or {}))
        check_deadline()
        if not self._recomputing and torch._C._current_graph_task_id() != -1:  # a backward pass inside the context
            return func(*args, **(kwargs or {}))
        if not torch.is_grad_enabled():
            return self._without_grad(op, func, args, kwargs or {})
        args, kwargs = positional(op, args, kwargs) if kwargs else (args, {})
        if op.reflected:
            args = (args[1], args[0])
        out = kwargs.get("out")
        if out is not None:
            kwargs = {name: value for name, value in kwargs.items() if name != "out"}
        for observer in self.observers:
            observer.before_call(self, op, args, kwargs)
        admitted, live = self._admit(args)
        if kwargs:
            values, live_too = self._admit(tuple(kwargs.values()))
            kwargs, live = dict(zip(kwargs, values, strict=True)), live or live_too
        op = exponential(op, admitted)
        below = next((one for one in self._claiming if one.claims(admitted, kwargs)), None) if live else None
        rule = QUANTISED.get(op.name) if op.custom else self.rules.get(op.name)
        if op.name in ("log", "mul") and (spelled := self._lineage.written_out(op, admitted)) is not None:
            rule, live = Expand(spelled), True
        elif live and (rule is not None or "mul" in self.rules):
            spelled = written_out(op.name, admitted, kwargs)
            rule = rule if spelled is None else Expand(spelled)
        if below is not None:
            return self._unruled(below, op, admitted, kwargs, out)
        if isinstance(rule, Expand) and rule.applies(admitted, kwargs, live):
            result = self._expand(op, rule, admitted, kwargs)
        elif live or (op.in_place and self._lineage.needed and any(self._lineage.has_note(one) for one in admitted)):
            result = self._live(op, admitted, kwargs)
        else:
            result = self._constant(op, func, args, admitted, kwargs)
        result = result if out is None else self.writes.write_out(out, result)
        self._derived.follow(op, admitted, kwargs, result)
        return result

    def _unruled(self, below: Observer, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        """A call below the place where scores are read: no rule applies."""
        op, args, kwargs = take_inplace(op, args, kwargs)
        function = WITHOUT_RULES.get(op.name, op.function)
        if op.reshapes:
            self.writes.before_write(args[0])
        target = args[0] if op.in_place and not op.reshapes else None
        given = args if target is None else (target.clone(), *args[1:])
        result = below.after_claimed(op, args, kwargs, with_gradient(op, given, kwargs, function(*given, **kwargs)))
        for tensor in live_tensors(result):
            self._liveness.add_live(tensor)
        if target is None and out is None:
            return result
        written = self.writes.write_out(out, result) if target is None else self.writes.write(target, result, given[0])
        for tensor in live_tensors(written, getattr(written, "_base", None)):
            below.after_claimed_write(result, tensor)
        return written

    def _admit(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], bool]:
        """The arguments with stand-ins, parameters detached; and whether any of them is live."""
        live = False
        admitted = []
        for value in values:
            if isinstance(value, Tensor):
                if self._stand_ins:
                    value = self.stand_in(value)
                if value.requires_grad:
                    if self._liveness.is_marked(value) or self.is_live(value):
                        live = True
                    elif value.requires_grad:  # still: a gate's result may have turned out to be a constant
                        value = self._derived.detached(value)
            elif type(value) is tuple or type(value) is list:
                inner, inner_live = self._admit(tuple(value))
                value, live = type(value)(inner), live or inner_live
            admitted.append(value)
        return tuple(admitted), live

    def _live(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call with live tensors."""
        gated = self.rules.get(op.name) is elementwise.constant_grid
        doubts = self._exits.doubts(op, args[:1] if gated else args, kwargs)  # sampling positions are constant anyway
        result = self._live_call(*take_inplace(op, args, kwargs))
        for sentence in doubts:
            self._exits.warn(sentence, result)
        return result

    def _live_call(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if op.reshapes:
            self.writes.before_write(args[0])
            result = op.function(*args, **kwargs)
            self._liveness.mark_live(result)
            return result
        if not op.in_place:
            return self._by_rules(op, args, kwargs)
        target = args[0]
        before = target.clone()  # autograd may save it
        copy_carried_rows(target, before)
        return self.writes.write(target, self._by_rules(op, args, kwargs, before), before)

    def _by_rules(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], before: Tensor | None = None) -> Any:
        """The call under its rule, or that of a function that it completes. `before`: a copy of an in-place target."""
        run = self._observed()
        target = None if before is None else args[0]
        if self._lineage.needed:
            op, args = self._lineage.recognise(op, args, kwargs)
        given = args if before is None else tuple(before if one is target else one for one in args)
        result = run(op, given, kwargs)
        if (op.name in ("detach", "data") or op.name in CASTS_TO_INTEGERS) and not self._expanding:
            self._exits.record_cast(result, op, given)
        self._exits.check_number(op, result)
        if self._lineage.needed:
            self._lineage.follow(op, args, kwargs, result)
            result = self._activation(op, result, target, before, run)
        self._liveness.mark_live(result)
        return result

    def _observed(self) -> Run:
        run: Run = self._run
        return reduce(lambda inner, observer: within(observer, inner), self._wrapping, run)

    def _activation(self, op: Op, result: Any, target: Tensor | None, before: Tensor | None, run: Run) -> Any:
        """The result by the identity rule, f(x) = x * const(f(x)/x), if it is an activation written by hand."""
        x = self._lineage.activation(op, result)
        if x is None:
            return result
        ruled = run(_ACTIVATION, (before if before is not None and x is target else x, result.detach()), {})
        copy_note(result, ruled, passes=True)
        return ruled

    def _expand(self, op: Op, rule: Expand, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the rule's function for the graph, and the operation itself for the values, equal to the bit."""
        plain = None
        if not rule.exact:
            with torch.no_grad():
                copies: dict[int, Tensor] = {}
                plain = op.function(*detached(args, copies), **detached(kwargs, copies))
        target = args[0] if op.in_place else None
        if target is not None:
            args = (target.clone(), *args[1:])
            self._liveness.mark_live(args[0])
        self._expanding += 1
        super().__enter__()  # type: ignore[no-untyped-call]  # again: torch leaves the mode while it handles a call
        try:
            result = rule.function(*args, **kwargs)
            result = result if plain is None else with_values_of(plain, result)
        finally:
            leave_mode(self)
            self._expanding -= 1
        return result if target is None else self.writes.write(target, result, args[0])

    def _constant(
        self,
        op: Op,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        admitted: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """A call without live tensors."""
        if op.in_place and admitted and isinstance(admitted[0], Tensor):
            self.writes.before_write(admitted[0])
            self._exits.check_written(op, admitted[0])
        result = (op.function if op.reflected else func)(*admitted, **kwargs)
        if op.custom and isinstance(result, Tensor):
            result = result.detach()  # packed weights may require a gradient
        self._exits.follow(op, admitted, result)
        self._liveness.add_constant(result, admitted)
        if self._lineage.needed and not op.in_place and any(self._lineage.has_note(one) for one in admitted):
            self._lineage.follow(self._lineage.recognise_constant(op, admitted, kwargs), admitted, kwargs, result)
            result = self._activation(op, result, None, None, self._observed())
            self._liveness.mark_live(result)
        for observer in self.observers:
            result = observer.after_constant(op, args, kwargs, result)
        for tensor in live_tensors(result):
            self._liveness.add_live(tensor)
        return result

    def _run(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.rules.carries == "relevance":
            self._exits.check_precision(self.rules.name, live_tensors(*args))
        rule = self.rules.get(op.name)
        if isinstance(rule, Expand):
            rule = rule.fused
        elif isinstance(rule, ByWeights):
            rule = rule.gated if self._derived.among(args) else rule.rule
        if rule is not None:
            try:
                result = rule(op.function, *args, **kwargs)
            except NoGradientError:
                raise refusal(op, NO_GRADIENT) from None
            return result if getattr(rule, "func", rule) in CUTS else with_gradient(op, args, kwargs, result)
        result = op.function(*args, **kwargs)
        if op is _ACTIVATION:
            return result
        if self.rules.carries == "relevance":
            lacking = f'for which the rule set "{self.rules.name}" has no rule: use lrp_ah_ln'
            return guard(with_gradient(op, args, kwargs, result), op, self.rules, lacking)
        if self.rules.lacks(op.name):
            return guard(result, op, self.rules, f'which "{self.rules.name}" has no rule for, only for others like it')
        if self.rules.takes_gradient_of(op.name) and op.name not in VALUELESS and live_tensors(result):
            said = f'"{op.name}"{location()} has no rule under "{self.rules.name}": its gradient was taken'
            self._exits.warn(said, live_tensors(result)[0])
        if op.custom and op.name not in self._has_gradient:
            self._has_gradient[op.name] = flows_back(result, args)
        if not self._has_gradient.get(op.name, True):
            return guard(result, op, self.rules, NO_GRADIENT)
        return with_gradient(op, args, kwargs, result)

    # Calls under no_grad.

    def _without_grad(self, op: Op, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call under `no_grad`: what it computes from live tensors is a constant for all that follows."""
        given, read = self._with_stand_ins((*args, *kwargs.values()))
        args, kwargs = given[: len(args)], dict(zip(kwargs, given[len(args) :], strict=True))
        target = args[0] if args and take_inplace(op, args, kwargs)[0].in_place else kwargs.get("out")
        if isinstance(target, Tensor):
            self.writes.before_write(target)
            if next(running_calls(), None) is None:
                self._exits.check_write(op, target)
        read = read and not self._expanding  # reads of an expansion itself are harmless
        if read:
            self._functions.run_again(self)
        result = func(*args, **kwargs)
        self._derived.follow(op, args, kwargs, result)
        if read:
            written = () if not isinstance(target, Tensor) else (target, target._base)
            self._exits.record_exit(
                (*written, *(result if isinstance(result, tuple | list) else (result,))), "under no_grad", op
            )
        return result

    def _with_stand_ins(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], bool]:
        """The values with stand-ins, and whether any of them is live or left the graph."""
        current, read = [], False
        for value in values:
            if isinstance(value, Tensor):
                value = self.stand_in(value)
                read = read or self.is_live(value) or self._exits.has_exited(value)
            elif type(value) is tuple or type(value) is list:
                inner, inner_read = self._with_stand_ins(tuple(value))
                value, read = type(value)(inner), read or inner_read
            current.append(value)
        return tuple(current), read
