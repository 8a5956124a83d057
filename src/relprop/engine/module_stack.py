"""The modules that are running, read from the call stack; and the model's stacks of blocks, read from its tree.

No hook is placed: a frame of `nn.Module.__call__` holds its module and arguments, and each thread has its own stack.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

import torch
from torch import Tensor, nn

_CALL = nn.Module._call_impl.__code__
_SMALL = 0.2  # a list with less than this share of the largest list's parameters is not a stack of blocks


def module_frames(frame: FrameType | None = None) -> Iterator[FrameType]:
    """Frames of module calls on this thread's stack, innermost first; also of direct `module.forward(...)` calls."""
    frame = frame or sys._getframe(1)
    forward: FrameType | None = None  # whose caller comes next
    while frame is not None:
        if frame.f_code is _CALL:
            yield frame
            forward = None
        elif frame.f_code.co_name == "forward":
            if forward is not None and _called_directly(forward, frame):
                yield forward
            forward = frame
        frame = frame.f_back
    if forward is not None and _called_directly(forward, None):
        yield forward


def _called_directly(forward: FrameType, caller: FrameType | None) -> bool:
    """Whether a `forward` was called directly by another module (`super().forward()` is the same module's)."""
    module = forward.f_locals.get("self")
    return isinstance(module, nn.Module) and (caller is None or caller.f_locals.get("self") is not module)


def module_of(frame: FrameType) -> nn.Module:
    module: nn.Module = frame.f_locals["self"]
    return module


def path_of(module: nn.Module, model: nn.Module) -> str:
    """The module's qualified name in the model."""
    return next((name for name, one in model.named_modules() if one is module and name), type(module).__name__)


def first_tensor(frame: FrameType) -> Tensor | None:
    """The first floating-point argument of a module call: a block's hidden states."""
    return next(float_arguments(frame), None)


def float_arguments(frame: FrameType) -> Iterator[Tensor]:
    """The floating-point tensors among the arguments of a module call."""
    local = frame.f_locals
    if frame.f_code is _CALL:
        values = (*local["args"], *local["kwargs"].values())
    else:  # a direct call of `forward`: its arguments by name
        values = tuple(local[name] for name in frame.f_code.co_varnames[1 : frame.f_code.co_argcount] if name in local)
    for value in values:
        if isinstance(value, Tensor) and (torch.is_floating_point(value) or torch.is_complex(value)):
            yield value


def stacks(model: nn.Module) -> list[list[nn.Module]]:
    """The model's stacks of blocks (an encoder, a decoder): its outermost large lists of modules, flattened."""
    lists = _outermost(model, nn.ModuleList) or _outermost(model, nn.Sequential)
    sizes = [sum(p.numel() for p in stack.parameters()) for stack in lists]
    largest = max(sizes, default=0)
    return [_members(stack) for stack, size in zip(lists, sizes, strict=True) if size > _SMALL * largest]


def _outermost(module: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    lists: list[nn.Module] = []
    for child in module.children():
        lists += [child] if isinstance(child, kind) and _holds_blocks(child) else _outermost(child, kind)
    return lists


def _holds_blocks(stack: nn.Module) -> bool:
    """False for a list of embedding tables, one per feature."""
    return any(not isinstance(member, nn.Embedding) for member in stack.children())


def _members(stack: nn.Module) -> list[nn.Module]:
    """The modules of a stack that are called themselves: members of nested lists, not the lists."""
    members: list[nn.Module] = []
    for child in stack.children():
        members += _members(child) if type(child) in (nn.ModuleList, nn.ModuleDict) else [child]
    return members


class QualifiedNames:
    """Qualified names of modules and parameters, by identity."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = {id(module): name for name, module in model.named_modules()}
        self._held = dict(model.named_parameters())  # so that no id is reused when an offloaded one is loaded
        self._parameters = {id(parameter): name for name, parameter in self._held.items()}

    def current_module(self) -> str:
        """The name of the innermost module that is running on this thread."""
        for frame in module_frames(sys._getframe(1)):
            name = self._modules.get(id(module_of(frame)))
            if name is not None:
                return str(name)
        return ""

    def parameter(self, tensor: Tensor) -> str | None:
        """The name of a parameter; one that was loaded for this call only is found through the running module."""
        if isinstance(tensor, nn.Parameter) and id(tensor) not in self._parameters:
            running = next((module_of(frame)._parameters for frame in module_frames()), {})
            return next((f"{self.current_module()}.{name}" for name, one in running.items() if one is tensor), None)
        return self._parameters.get(id(tensor))
