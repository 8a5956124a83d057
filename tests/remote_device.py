"""A device that is not there: tensors that say they lie on it, keep their numbers on the CPU, and meet no others.

As on an accelerator, an operation refuses tensors of two devices, except where torch's own kernels take both.
Registering the device changes the process for good (`torch.accelerator` finds one): for a process of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as register

register("remote")
DEVICE = torch.device("remote:0")


class WrongDeviceError(RuntimeError):
    """An operation got tensors of two devices."""


class RemoteTensor(Tensor):
    """Numbers on the CPU, under another device's name."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor) -> "RemoteTensor":
        made: RemoteTensor = Tensor._make_wrapper_subclass(
            cls, numbers.shape, strides=numbers.stride(), storage_offset=numbers.storage_offset(), dtype=numbers.dtype,
            device=DEVICE,
        )  # fmt: skip
        made.numbers = numbers
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.numbers.tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise WrongDeviceError(f"numpy cannot read tensors of {DEVICE}: use Tensor.cpu() first")


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation on the numbers; its result is remote where `device` says so, else where an argument is."""
    remote = [one for one in tree_leaves((args, kwargs)) if isinstance(one, RemoteTensor)]
    device = kwargs.get("device")
    stays = bool(remote) if device is None else torch.device(device).type == DEVICE.type
    if func.overloadpacket is torch.ops.aten.copy_:
        stays = isinstance(args[0], RemoteTensor)
    check(func, args, kwargs, stays)
    if device is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    result = func(*tree_map(_numbers, args), **tree_map(_numbers, kwargs))
    if not stays:
        return result
    written = {id(one.numbers): one for one in remote} if func._schema.is_mutable else {}  # returned as they came

    def named(one: Any) -> Any:
        if not isinstance(one, Tensor):
            return one
        return written[id(one)] if id(one) in written else RemoteTensor(one)

    return tree_map(named, result)


def check(func: Any, args: Any, kwargs: dict[str, Any], stays: bool) -> None:
    """Raise where an accelerator would."""
    aten = torch.ops.aten
    given = tree_leaves((args, kwargs))
    if stays and any(isinstance(one, torch.Generator) for one in given):
        raise WrongDeviceError(f"{func} on {DEVICE} got a generator of the CPU")
    if func.overloadpacket in (aten._to_copy, aten.copy_):  # these move numbers from device to device
        return
    if func.overloadpacket in (aten.index, aten.index_put, aten.index_put_) and isinstance(args[0], RemoteTensor):
        given = [args[0], *args[2:]]  # indices may lie on the CPU
    tensors = [one for one in given if isinstance(one, Tensor)]
    local = [one for one in tensors if not isinstance(one, RemoteTensor)]
    takes_numbers = torch.Tag.pointwise in func.tags or func.overloadpacket in _TAKE_NUMBERS
    if takes_numbers:  # a tensor without dimensions stands for a number
        local = [one for one in local if one.dim()]
    if local and any(isinstance(one, RemoteTensor) for one in tensors):
        shapes = [(tuple(one.shape), one.device.type) for one in tensors]
        raise WrongDeviceError(f"{func} got tensors of two devices: {shapes}")


_TAKE_NUMBERS = [
    getattr(torch.ops.aten, name)
    for name in (
        "where",
        "masked_fill",
        "masked_fill_",
        "fill_",
        "index_put",
        "index_put_",
        "index_fill",
        "index_fill_",
    )
]


def _numbers(value: Any) -> Any:
    return value.numbers if isinstance(value, RemoteTensor) else value


class _Factories(TorchDispatchMode):
    """Also calls without a tensor of that device: `torch.arange(n, device=...)`."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


@contextmanager
def remote_device() -> Iterator[None]:
    """Within it tensors can be made on the device and moved to it."""
    torch._C._set_only_lift_cpu_tensors(True)  # lists as indices become tensors by an operation, as all others
    try:
        with _Factories(), _from_lists("tensor"), _from_lists("as_tensor"):
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(False)


def _from_lists(name: str) -> Any:
    """`torch.tensor(..., device=...)` writes to the device's memory without calling an operation."""
    make: Callable[..., Tensor] = getattr(torch, name)

    def call(data: Any, *, device: Any = None, **kwargs: Any) -> Tensor:
        if device is None or torch.device(device).type != DEVICE.type:
            return make(data, device=device, **kwargs)
        return make(data, **kwargs).to(device)

    return mock.patch.object(torch, name, call)


def to_remote(model: nn.Module) -> nn.Module:
    """The model with its parameters and buffers on the device."""
    for module in model.modules():
        for name, one in module._parameters.items():
            if one is not None:
                module._parameters[name] = nn.Parameter(RemoteTensor(one.detach()), one.requires_grad)
        for name, one in module._buffers.items():
            module._buffers[name] = None if one is None else RemoteTensor(one.detach())
    return model


def to_cpu(tensor: Tensor) -> Tensor:
    assert isinstance(tensor, RemoteTensor), "a result left the device"
    return tensor.numbers
