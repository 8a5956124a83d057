"""Where each input enters the computation: its float tensors, and the lookups and casts of its whole numbers.

A *part* is one explained input, by the model's own argument name; its *elements* are the numbers of that tensor,
counted through. Whole numbers cannot be differentiated, so they are followed instead: beside every tensor made of them
runs a shadow that holds, for each of its numbers, the element that it came from. Where a lookup or a cast turns them
into floats a leaf begins, and its shadow says which element each of its rows is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from relprop.ops import Op

Lookup = Callable[[Tensor], Tensor]
Place = Literal["block", "features", "word_embeddings", "input"]

CONSTANT = -1  # a number that comes from no element of a part
MIXED = -2  # one that comes from several, or from one in a way that was not followed

# Arguments that tell how others are to be read: which units are there, where they stand, of which kind they are. They
# belong to the units of another part and get no scores of their own.
_DESCRIBES = (
    "mask", "masks", "position_ids", "positions", "type_ids", "bbox", "cache_position", "labels", "thw", "shape",
    "shapes", "size", "sizes", "length", "lengths", "adjacency",
)  # fmt: skip

# Where the whole numbers stand in calls that look floats up by them.
_LOOKUPS = {"embedding": 0, "getitem": 1, "index_select": 2, "gather": 2, "take_along_dim": 1, "take": 1}
# Calls that move numbers, and where those stand among their arguments: first, where nothing else is said.
_MOVES = (
    "view", "view_as", "reshape", "reshape_as", "transpose", "swapaxes", "swapdims", "permute", "movedim", "t", "T",
    "mT", "getitem", "select", "narrow", "slice", "squeeze", "unsqueeze", "flatten", "unflatten", "ravel", "expand",
    "expand_as", "broadcast_to", "chunk", "split", "split_with_sizes", "tensor_split", "unbind", "cat", "stack",
    "hstack", "vstack", "contiguous", "clone", "index_select", "gather", "take_along_dim", "masked_select", "roll",
    "flip", "diagonal", "unfold", "repeat", "repeat_interleave", "tile", "pad", "detach", "alias", "atleast_1d",
)  # fmt: skip
_MOVED: dict[str, tuple[int, ...]] = dict.fromkeys(_MOVES, (0,)) | {
    "where": (1, 2), "index_put": (0, 2), "masked_fill": (0, 2), "masked_scatter": (0, 2), "copy": (0, 1),
    "scatter": (0, 3), "index_copy": (0, 3), "fill": (0, 1),
}  # fmt: skip
_CASTS = {"to", "type", "type_as", "long", "int", "short", "byte", "cpu", "cuda"}
_ELEMENTWISE = {
    "add", "sub", "rsub", "mul", "div", "floor_divide", "floordiv", "remainder", "mod", "fmod", "clamp", "clamp_min",
    "clamp_max", "neg", "abs", "minimum", "maximum", "pow", "bitwise_and", "bitwise_or", "bitwise_xor", "and", "or",
    "xor", "lshift", "rshift",
}  # fmt: skip
_FRESH = {"new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "empty_like"}


def describes_other_inputs(name: str) -> bool:
    """Whether an argument only tells how others are to be read."""
    return name.endswith(_DESCRIBES)


def explained_parts(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The arguments that may be parts: tensors of numbers that are content."""
    return {
        name: value
        for name, value in inputs.items()
        if isinstance(value, Tensor) and value.dtype != torch.bool and value.dim() and not describes_other_inputs(name)
    }


def distinct_parts(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same; a tensor that is given for two arguments is copied for the second, as they are two parts."""
    seen: set[int] = set()
    own = {}
    for name, value in parts.items():
        own[name] = value.clone() if id(value) in seen else value
        seen.add(id(value))
    return own


@dataclass(frozen=True)
class Leaf:
    """Floats that a part enters by, and the element of the part that each leading position of them is."""

    part: str
    tensor: Tensor
    elements: Tensor  # of the tensor's leading dimensions; CONSTANT where a position is no element
    place: Place
    entry: str  # how it enters: the call and the shape of what it looks up
    lookup: Lookup | None = None  # embeds other whole numbers in the same way
    whole: Tensor | None = None  # the whole numbers that were looked up


class IntegerTracker:
    """Follows whole numbers from the arguments to where they become floats."""

    def __init__(self, parts: Mapping[str, Tensor]) -> None:
        self._elements: dict[int, tuple[Tensor, str, Tensor]] = {}
        self.mixed: set[str] = set()  # parts that also enter in a way that was not followed
        for name, value in parts.items():
            if _is_integer(value):
                self._put(value, name, torch.arange(value.numel(), device=value.device).view(value.shape))

    def _put(self, tensor: Tensor, part: str, elements: Tensor) -> None:
        self._elements[id(tensor)] = (tensor, part, elements)  # the tensor is kept: its id must not be given away

    def _tracked(self, values: Iterable[Any]) -> list[tuple[Tensor, str, Tensor]]:
        return [found for one in tensors(values) if (found := self._elements.get(id(one))) is not None]

    def tracks(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call is made with whole numbers of a part."""
        return bool(self._elements) and bool(self._tracked((*args, *kwargs.values())))

    def entry_of(self, op: Op, args: tuple[Any, ...], result: Any) -> tuple[Tensor, str, Tensor] | None:
        """Whole numbers, their part and elements, where a call turns them into floats."""
        if not isinstance(result, Tensor) or not (result.is_floating_point() or result.is_complex()):
            return None
        position = _LOOKUPS.get(op.name)
        known = self._tracked(args if position is None else args[position : position + 1])
        if not known or op.name in _FRESH:
            return None
        whole, part, elements = known[0]
        fits = len(known) == 1 and elements.shape == result.shape[: elements.dim()]
        if not fits or bool((elements == MIXED).any()):
            self.mixed.add(part)
            return None
        return whole, part, elements

    def follow(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """The shadows of what a call made of whole numbers. Yes-or-no results only steer: they are not followed."""
        made = [one for one in tensors((args[0] if op.in_place else result,)) if _is_integer(one)]
        known = self._tracked((*args, *kwargs.values()))
        if not made or op.name in _FRESH:
            return
        parts = {part for _, part, _ in known}
        shadows = list(tensors((self._shadows(op, args, kwargs, [elements for *_, elements in known]),)))
        for number, tensor in enumerate(made):
            fits = len(parts) == 1 and number < len(shadows) and shadows[number].shape == tensor.shape
            shadow = shadows[number] if fits else torch.full_like(tensor, MIXED, dtype=torch.long)
            for part in parts:
                self._put(tensor, part, shadow)

    def _shadows(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], known: list[Tensor]) -> Any:
        if op.name in _MOVED:
            return self._moved(op, args, kwargs)
        if op.name in _CASTS:
            return known[0]
        if op.name == "one_hot":
            classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
            return known[0][..., None].expand(*known[0].shape, classes) if classes > 0 else None
        if op.name in _ELEMENTWISE:
            first, *others = torch.broadcast_tensors(*known)
            same = torch.ones_like(first, dtype=torch.bool)
            for other in others:
                same &= first == other
            return torch.where(same, first, MIXED)
        return None

    def _moved(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The move, done to the shadows of the numbers; what is filled in is no element."""

        def shadow(value: Any) -> Any:
            if isinstance(value, Tensor):
                known = self._elements.get(id(value))
                return torch.full_like(value, CONSTANT, dtype=torch.long) if known is None else known[2]
            if isinstance(value, tuple | list):
                return type(value)(shadow(one) for one in value)
            return CONSTANT

        moved = [shadow(value) if number in _MOVED[op.name] else value for number, value in enumerate(args)]
        if op.name == "pad":
            moved, kwargs = moved[:2], {"value": CONSTANT}
        try:
            return op.function(*moved, **kwargs)
        except (RuntimeError, TypeError, IndexError, ValueError):  # a spelling that is not known: not followed
            return None


def _is_integer(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Tensors among values, also those inside lists."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from tensors(value)


def batch_of(inputs: Mapping[str, Any]) -> int:
    """How many examples there are, where they lie along the first axis."""
    return next((len(value) for value in inputs.values() if isinstance(value, Tensor) and value.dim()), 1)
