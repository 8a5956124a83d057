"""Autograd functions of the model's own: what they compute is run a second time, under the rules.

The torch calls inside such a function have no graph, and its backward pass is the model's, which no rule can change. So
while it runs, its forward pass is run once more on the same arguments with a graph, where each call meets its rule; the
function's result keeps its values and gets that graph. Relevance explains what was computed: a backward pass that
is something else than the gradient (an estimate, a sign turned round) has no part in it.

First it is shown, once per function and shapes, that torch calls are all there is to it: the gradient of the second
run must be the slope of its values. Where it is not (numpy, a kernel, random numbers), the function stays closed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._pytree import tree_leaves, tree_map_only

from relprop.engine.expanded_calls import with_values_of
from relprop.engine.graph_exits import GraphExits
from relprop.engine.in_place_writes import InPlaceWrites
from relprop.engine.liveness import Liveness
from relprop.engine.restoring import leave_mode
from relprop.errors import UnruledOpError
from relprop.rulebook.rulesets import RuleSet, gradient

_STEP, _TOLERANCE = 1e-5, 1e-4  # of the slope, in float64
_KEPT = 1000  # proofs per function
_proved: WeakKeyDictionary[type, dict[Any, bool]] = WeakKeyDictionary()


@dataclass(frozen=True)
class FunctionCall:
    """A running autograd function and its arguments."""

    node: Any  # of its results, in the graph
    function: Any
    args: tuple[Any, ...]

    def again(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results of the forward pass, which gets a context of its own."""
        context: Any = FunctionCtx()
        context.needs_input_grad = tuple(isinstance(one, Tensor) and one.requires_grad for one in args)
        results = self.function.forward(context, *args)
        return results if isinstance(results, tuple) else (results,)


class OwnFunctions:
    """The autograd functions of the model that ran in one pass, and what their forward passes gave under the rules."""

    def __init__(
        self, rules: RuleSet, is_live: Callable[[Tensor], bool], liveness: Liveness, exits: GraphExits
    ) -> None:
        self._closed = rules.name == gradient.name  # a gradient is what the model's own backward pass says
        self._is_live, self._liveness, self._exits = is_live, liveness, exits
        self._results: dict[Any, tuple[Any, ...]] = {}  # by the node of their results in the graph

    def clear(self) -> None:
        self._results.clear()

    def run_again(self, mode: TorchFunctionMode) -> None:
        """At a torch call of a function that has begun: run its forward pass under the rules too."""
        for call in () if self._closed else list(running_calls()):
            if call.node not in self._results:
                self._results[call.node] = ()  # also while it runs again
                if shows_all(call, self._is_live):
                    with _entered(mode), torch.enable_grad(), suppress(UnruledOpError):
                        self._results[call.node] = call.again(call.args)

    def take_graph(self, tensor: Tensor, mode: TorchFunctionMode, writes: InPlaceWrites) -> None:
        """Give the result of a function the graph of the rules, in its own memory and with its own values."""
        if not self._results or tensor.grad_fn not in self._results:
            return
        results = [one for one in self._results[tensor.grad_fn] if isinstance(one, Tensor)]
        result = results[tensor.output_nr] if tensor.output_nr < len(results) else None
        with torch._C.DisableTorchFunction():
            values = tensor.detach().clone()
            if result is None or tensor._is_view() or not same_values(result, values):
                return
        with _entered(mode), torch.enable_grad():
            live = with_values_of(values, result)
        with torch._C.DisableTorchFunction(), torch.enable_grad():
            tensor.detach_()
            self._liveness.add_constant(tensor, ())  # of this pass
            self._exits.forget(tensor)  # to the function's own calls it was a constant
            writes.write(tensor, live, tensor)


@contextmanager
def _entered(mode: TorchFunctionMode) -> Iterator[None]:
    """Torch leaves a mode while it handles a call: enter it again."""
    if _get_current_function_mode_stack()[-1:] == [mode]:
        yield
        return
    TorchFunctionMode.__enter__(mode)
    try:
        yield
    finally:
        leave_mode(mode)


def running_calls() -> Iterator[FunctionCall]:
    """The autograd functions whose forward pass is running on this thread, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        context = context_of(frame)
        function = getattr(type(context), "_forward_cls", None)
        if function is not None and not function.__module__.startswith("relprop."):
            yield FunctionCall(context, function, _arguments(frame))
        frame = frame.f_back


def context_of(frame: FrameType) -> FunctionCtx | None:
    """The first argument of a frame that runs the forward pass of an autograd function."""
    if frame.f_code.co_name != "forward" or not frame.f_code.co_argcount:
        return None
    first = frame.f_locals.get(frame.f_code.co_varnames[0])
    return first if isinstance(first, FunctionCtx) else None


def _arguments(frame: FrameType) -> tuple[Any, ...]:
    """All arguments but the context, as their names are bound now."""
    code, local = frame.f_code, frame.f_locals
    named = tuple(local.get(name) for name in code.co_varnames[1 : code.co_argcount])
    several = code.co_flags & inspect.CO_VARARGS
    return (*named, *local.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())) if several else named


def shows_all(call: FunctionCall, is_live: Callable[[Tensor], bool]) -> bool:
    """Whether the gradient of the forward pass, run with a graph, is the slope of its values, for every live argument.

    A function of anything but data (a module, another function) is not run again: what it does is not known.
    """
    leaves = tree_leaves(call.args)
    if not all(isinstance(one, Tensor | int | float | str | None) for one in leaves):
        return False
    proved = _proved.setdefault(call.function, {})
    key = tuple(_kind(one, is_live) if isinstance(one, Tensor) else one for one in leaves)
    if key not in proved:
        if len(proved) >= _KEPT:
            proved.clear()
        devices = {one.get_device() for one in leaves if isinstance(one, Tensor) and one.is_cuda}
        with torch.random.fork_rng(devices), torch._C.DisableTorchFunction(), torch.enable_grad():
            try:
                proved[key] = _gradient_is_slope(call, is_live)
            except Exception:  # whatever its code does not bear
                proved[key] = False
    return proved[key]


def _kind(tensor: Tensor, is_live: Callable[[Tensor], bool]) -> Any:
    return tensor.shape, tensor.dtype, tensor.device, is_live(tensor)


def _gradient_is_slope(call: FunctionCall, is_live: Callable[[Tensor], bool]) -> bool:
    """In float64, in one random direction, for a random sum of the results."""
    live = {id(one): one.detach() for one in tree_leaves(call.args) if isinstance(one, Tensor) and is_live(one)}
    directions = [_noise(one) * one.abs().max() for one in live.values()]
    weights: list[Tensor] = []

    def run(step: float) -> tuple[Tensor, list[Tensor]]:
        moved = [
            (one.double() + step * way).requires_grad_() for one, way in zip(live.values(), directions, strict=True)
        ]
        given = dict(zip(live, moved, strict=True))
        args = tree_map_only(Tensor, lambda one: given[id(one)] if id(one) in given else _copy(one), call.args)
        results = [one for one in call.again(args) if isinstance(one, Tensor) and one.is_floating_point()]
        if any(one._version for one in tree_leaves(args) if isinstance(one, Tensor)):
            raise ValueError("it writes to its arguments")
        weights.extend(_noise(one) for one in results[len(weights) :])
        return torch.stack([(w * one).sum() for w, one in zip(weights, results, strict=True)]).sum(), moved

    value, at = run(0.0)
    gradients = torch.autograd.grad(value, at)
    slope = (run(_STEP)[0] - run(-_STEP)[0]).detach() / (2 * _STEP)
    expected = torch.stack([(g * way).sum() for g, way in zip(gradients, directions, strict=True)]).sum()
    return all(bool(one.any()) for one in gradients) and bool((slope - expected).abs() <= _TOLERANCE * slope.abs())


def _noise(like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(like.numel())
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.device)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)


def same_values(ours: Any, theirs: Tensor) -> bool:
    """Whether the second run gave the function's own numbers, up to the rounding of its dtype."""
    if not isinstance(ours, Tensor) or ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    apart = torch.where(ours == theirs, 0, ours - theirs).detach().abs().max()
    finite = torch.where(theirs.isfinite(), theirs, 0).detach()
    return bool(apart <= torch.finfo(theirs.dtype).eps ** 0.5 * finite.abs().max())
