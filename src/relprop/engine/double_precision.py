"""A pass in double precision over a model in single precision, which stays as it is.

Relevance that is divided by sums near 0 ([Chefer21] Eq. 6 at residual connections) magnifies the last bits of a forward
pass: in float32 by enough to see. So every torch call of the model gets float64 in place of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode, handle_torch_function

from relprop.engine.leaves import tensors
from relprop.engine.propagation import Propagation
from relprop.engine.restoring import leave_mode
from relprop.engine.saved_tensors import address
from relprop.ops import op_of

_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_NARROWER = {wide: narrow for narrow, wide in _WIDER.items()}
_SELECTS = {"embedding", "index_select", "getitem"}  # some rows of a table: widened after they are taken


def why_not_double(model: nn.Module) -> str | None:
    """Why a model in single precision cannot be run in double precision; None if it may."""
    if any(one.is_meta for one in model.parameters()):  # offloaded
        return "its weights are loaded by accelerate while it runs"
    devices = {one.device for one in model.parameters()}
    without = next((one.type for one in devices if not _has_double(one)), None)
    return None if without is None else f'the device "{without}" has no float64'


def in_single_precision(model: nn.Module) -> bool:
    """Whether the model computes in float32 alone. Half precision is a choice that is kept, autocast too."""
    tensors = (*model.parameters(), *model.buffers())
    dtypes = {one.dtype for one in tensors if one.is_floating_point()}
    kinds = {one.device.type for one in tensors}
    autocast = any(torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind) for kind in kinds)
    return torch.float32 in dtypes and not autocast and all(one.itemsize >= 4 for one in dtypes)


@cache
def _has_double(device: torch.device) -> bool:
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError):
        return False
    return True


def widened_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs with float32 tensors in float64."""
    return {name: one.double() if _is_single(one) else one for name, one in inputs.items()}


def _is_single(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype is torch.float32


@contextmanager
def in_double_precision(propagation: Propagation) -> Iterator[None]:
    """A context in which the calls that reach this propagation are in float64."""
    with DoublePrecision() as mode:
        propagation.writes.compact = mode.saved
        yield


class DoublePrecision(TorchFunctionMode):
    """Torch calls in float64, on their way to the propagation mode.

    Parameters are cast for one call at a time, and again for the backward pass: a copy of all of them is never held.
    Other tensors are cast once, so that writes to them are seen later. The model is told the dtypes that it knows.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cast: dict[int, tuple[Tensor, Tensor]] = {}  # tensors that are no parameters, kept: ids are reused
        self._parameters: dict[int, tuple[ref[Tensor], Tensor]] = {}  # by address: a cast one, and what was cast

    def __exit__(self, *error: Any) -> None:
        leave_mode(self)
        self._cast.clear()
        self._parameters.clear()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        op, kwargs = op_of(func), kwargs or {}
        if op.query:
            result = func(*args, **kwargs)
            return _NARROWER.get(result, result) if isinstance(result, torch.dtype) else result
        if torch._C._current_graph_task_id() != -1:  # a backward pass inside of the forward pass
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            given = (*args, *kwargs.values())
            floats = any(one.is_floating_point() for one in tensors(given))
            table = op.name in _SELECTS and any(isinstance(one, Parameter) for one in tensors(given))
            if op.custom:
                given = _each(given, _narrow)
            elif not table:
                given = _each(given, self._wide)
        args, kwargs = given[: len(args)], dict(zip(kwargs, given[len(args) :], strict=True))
        if op.name == "float" or (not (op.in_place or op.custom) and (table or not floats)):
            # Under the same name: the propagation mode knows operations by it.
            return handle_torch_function(_to_double if op.name == "float" else _widened(func), (), *args, **kwargs)
        return func(*args, **kwargs)

    def _wide(self, value: Any) -> Any:
        """A float32 tensor in float64, and so the name of the type; anything else as it is."""
        if isinstance(value, torch.dtype):
            return _WIDER.get(value, value)
        if not _is_single(value):
            return value
        if isinstance(value, Parameter):
            cast = value.detach().double()
            self._parameters[address(cast)] = (ref(cast), value)
            return cast
        if id(value) not in self._cast:
            self._cast[id(value)] = (value, value.double())
        return self._cast[id(value)][1]

    def saved(self, tensor: Tensor) -> SavedCast | None:
        """For the backward pass: a cast parameter, or a view of one, as what it was cast from; None for others."""
        with torch._C.DisableTorchFunction():
            cast, parameter = self._parameters.get(address(tensor), (None, None))
            if cast is None or parameter is None or cast() is None:
                return None
            return SavedCast(parameter, (tensor.size(), tensor.stride(), tensor.storage_offset()))


class SavedCast:
    """A view of a cast parameter, saved for the backward pass without its memory."""

    def __init__(self, parameter: Tensor, view: tuple[Any, ...]) -> None:
        self._parameter, self._view = parameter, view

    @property
    def tensor(self) -> Tensor:
        return self._parameter.detach().double().as_strided(*self._view)


def _each(values: Any, change: Callable[[Any], Any]) -> Any:
    """`change` of every value, in lists and tuples too."""
    if type(values) is tuple or type(values) is list:
        return type(values)(_each(one, change) for one in values)
    return change(values)


def _narrow(value: Any) -> Any:
    """For kernels that are not torch's own: back to the type that they know."""
    return value.float() if isinstance(value, Tensor) and value.dtype is torch.float64 else value


@cache
def _widened(func: Callable[..., Any]) -> Callable[..., Any]:
    """The function with results in float64: what it makes (zeros), takes from a table, or computes in float32 alone."""

    def widened(*args: Any, **kwargs: Any) -> Any:
        return _each(func(*args, **kwargs), lambda one: one.double() if _is_single(one) else one)

    widened.__name__ = getattr(func, "__name__", op_of(func).name)
    return widened


def _to_double(x: Tensor, **kwargs: Any) -> Tensor:
    return x.double(**kwargs)


_to_double.__name__ = "float"
