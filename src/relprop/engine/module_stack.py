"""Where in the model a torch call happens, and which modules are its blocks: read from the call stack and the tree.

No hook is placed: a frame of `nn.Module.__call__` knows its module and its arguments, and each thread has a stack of
its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

import torch
from torch import Tensor, nn

_CALL = nn.Module._call_impl.__code__
_SMALL = 0.2  # a list of modules with less than this share of the largest one's parameters is no stack of blocks


def module_frames(frame: FrameType | None = None) -> Iterator[FrameType]:
    """Frames of module calls on this thread's stack, innermost first; also of `module.forward(...)` called by hand."""
    frame = frame or sys._getframe(1)
    forward: FrameType | None = None  # whose caller is still to be seen
    while frame is not None:
        if frame.f_code is _CALL:
            yield frame
            forward = None
        elif frame.f_code.co_name == "forward":
            if forward is not None and _by_hand(forward, frame):
                yield forward
            forward = frame
        frame = frame.f_back
    if forward is not None and _by_hand(forward, None):
        yield forward


def _by_hand(forward: FrameType, caller: FrameType | None) -> bool:
    """Whether a `forward` is a module's, called by another's (and not by the same one's: `super().forward()`)."""
    module = forward.f_locals.get("self")
    return isinstance(module, nn.Module) and (caller is None or caller.f_locals.get("self") is not module)


def module_of(frame: FrameType) -> nn.Module:
    module: nn.Module = frame.f_locals["self"]
    return module


def path_of(module: nn.Module, model: nn.Module) -> str:
    """The module's qualified name in the model."""
    return next((name for name, one in model.named_modules() if one is module and name), type(module).__name__)


def first_tensor(frame: FrameType) -> Tensor | None:
    """The first floating-point tensor that a module was called with: a block's hidden states."""
    local = frame.f_locals
    if frame.f_code is _CALL:
        values = (*local["args"], *local["kwargs"].values())
    else:  # a `forward` called by hand: its arguments by name
        values = tuple(local[name] for name in frame.f_code.co_varnames[1 : frame.f_code.co_argcount] if name in local)
    for value in values:
        if isinstance(value, Tensor) and (torch.is_floating_point(value) or torch.is_complex(value)):
            return value
    return None


def stacks(model: nn.Module) -> list[list[nn.Module]]:
    """The model's stacks of blocks (an encoder, a decoder): its outermost large lists of modules, flattened."""
    lists = _outermost(model, nn.ModuleList) or _outermost(model, nn.Sequential)
    sizes = [sum(p.numel() for p in stack.parameters()) for stack in lists]
    largest = max(sizes, default=0)
    return [_members(stack) for stack, size in zip(lists, sizes, strict=True) if size > _SMALL * largest]


def _outermost(module: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    found: list[nn.Module] = []
    for child in module.children():
        found += [child] if isinstance(child, kind) and _holds_blocks(child) else _outermost(child, kind)
    return found


def _holds_blocks(stack: nn.Module) -> bool:
    """Tables of embeddings, one a feature, are looked up side by side."""
    return any(not isinstance(member, nn.Embedding) for member in stack.children())


def _members(stack: nn.Module) -> list[nn.Module]:
    """Modules that are called: a list is not, its members are."""
    members: list[nn.Module] = []
    for child in stack.children():
        members += _members(child) if type(child) in (nn.ModuleList, nn.ModuleDict) else [child]
    return members


class QualifiedNames:
    """Qualified names of modules and parameters, by identity."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = {id(module): name for name, module in model.named_modules()}
        self._held = dict(model.named_parameters())  # so that no id is given away when an offloaded one is loaded
        self._parameters = {id(parameter): name for name, parameter in self._held.items()}

    def current_module(self) -> str:
        """The innermost module that is running on this thread."""
        for frame in module_frames(sys._getframe(1)):
            name = self._modules.get(id(module_of(frame)))
            if name is not None:
                return str(name)
        return ""

    def parameter(self, tensor: Tensor) -> str | None:
        """Its name; one that was loaded for this call alone is known by the module that runs."""
        if isinstance(tensor, nn.Parameter) and id(tensor) not in self._parameters:
            running = next((module_of(frame)._parameters for frame in module_frames()), {})
            return next((f"{self.current_module()}.{name}" for name, one in running.items() if one is tensor), None)
        return self._parameters.get(id(tensor))
