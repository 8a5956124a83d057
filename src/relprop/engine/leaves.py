"""Where each input enters the computation: float tensors directly, integers where they are looked up or cast.

A *part* is one explained input, by the model's own argument name; its *elements* are the numbers of that tensor, by
their flat index. Integers have no gradient, so they are tracked: for every tensor computed from them there is a second
one, its *origins*, with the element that each number came from. Where a lookup or a cast turns integers into floats a
*leaf* begins, and its origins say which element each of its rows is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from relprop.ops import Op

Lookup = Callable[[Tensor], Tensor]
ReadingPlace = Literal["block", "features", "word_embeddings", "input"]

CONSTANT = -1  # the number comes from no element of a part
MIXED = -2  # it comes from several elements, or through a call that is not tracked

# Arguments that describe other inputs: which units are real, their positions, their types. They belong to the units of
# another part and get no scores of their own.
_DESCRIBES = (
    "attention_mask", "attention_masks", "padding_mask", "pixel_mask", "observed_mask", "features_mask", "values_mask",
    "attn_mask", "causal_mask", "perm_mask", "input_mask", "position_ids", "type_ids", "cache_position", "labels",
)  # fmt: skip
_DESCRIBES_EXACTLY = ("mask", "masks", "src_mask", "tgt_mask", "memory_mask", "length", "lengths")
# Integers and booleans of these names describe other inputs too; floats of these names are content.
_DESCRIBES_IN_INTEGERS = (
    "mask", "masks", "masked_pos", "positions", "bbox", "thw", "shapes", "sizes", "lengths", "ids_shape", "adjacency",
)  # fmt: skip

# Calls that look floats up by integers, and the position of the integers among the arguments.
_LOOKUPS = {"embedding": 0, "getitem": 1, "index_select": 2, "gather": 2, "take_along_dim": 1, "take": 1}
# Calls that move numbers without changing them, and the positions of these: the first, unless listed below.
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
    "xor", "lshift", "rshift", "exp", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos",
    "tanh", "sigmoid", "square", "true_divide",
}  # fmt: skip
_CASTS_TO_FLOATS = {"to", "type", "type_as", "float", "double", "half", "bfloat16"}
_PLAIN_NUMBERS = {"tolist", "numpy", "item", "__array__"}
_FRESH = {"new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "empty_like"}


def describes_other_inputs(name: str, inputs: Mapping[str, Any]) -> bool:
    """Whether an argument describes other inputs (a mask, positions, lengths), by its name and kind of numbers."""
    value = inputs[name]
    if name in _DESCRIBES_EXACTLY or name.endswith(_DESCRIBES):
        return True
    if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
        return name.endswith("bbox") and _is_box_per_token(value, inputs)
    return name.endswith(_DESCRIBES_IN_INTEGERS)


def _is_box_per_token(value: Tensor, inputs: Mapping[str, Any]) -> bool:
    """Whether floats are the edges or corners of a box for every token of another input: the token's place."""
    ids = [one for one in inputs.values() if isinstance(one, Tensor) and not one.is_floating_point()]
    return value.dim() == 3 and value.shape[2] in (4, 8) and any(one.shape == value.shape[:2] for one in ids)


def explained_parts(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The inputs that are explained: tensors of numbers that do not describe other inputs."""
    return {
        name: value
        for name, value in inputs.items()
        if isinstance(value, Tensor)
        and value.dtype != torch.bool
        and value.dim()
        and not describes_other_inputs(name, inputs)
    }


@dataclass(frozen=True)
class Leaf:
    """Floats through which a part enters, and the element of the part at each of their leading positions."""

    part: str
    tensor: Tensor
    elements: Tensor  # shaped as the tensor's leading dimensions; CONSTANT where there is no element
    place: ReadingPlace
    entry: str  # the call through which it enters, and the shape of what it looks up
    lookup: Lookup | None = None  # embeds other integers in the same way
    integers: Tensor | None = None  # that were looked up


class IntegerTracker:
    """Tracks integers from the arguments to the calls that turn them into floats."""

    def __init__(self, parts: Mapping[str, Tensor]) -> None:
        self._elements: dict[int, tuple[Tensor, frozenset[str], Tensor]] = {}
        self.mixed: set[str] = set()  # parts that also enter through calls that are not tracked
        for name, value in parts.items():
            if _is_integer(value):
                elements = torch.arange(value.numel(), device=value.device).view(value.shape)
                self._put(value, frozenset((name,)), elements)

    def _put(self, tensor: Tensor, parts: frozenset[str], elements: Tensor) -> None:
        self._elements[id(tensor)] = (tensor, parts, elements)  # keeps the tensor, so that its id is not reused

    def _tracked(self, values: Iterable[Any]) -> list[tuple[Tensor, frozenset[str], Tensor]]:
        return [entry for one in tensors(values) if (entry := self._elements.get(id(one))) is not None]

    def tracks(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call has integers of a part among its arguments."""
        return bool(self._elements) and bool(self._tracked((*args, *kwargs.values())))

    def entry_of(self, op: Op, args: tuple[Any, ...], result: Any) -> tuple[Tensor, str, Tensor] | None:
        """Integers, their part and elements, if this call turns them into floats; else None."""
        if not isinstance(result, Tensor) or not (result.is_floating_point() or result.is_complex()):
            return None
        position = _LOOKUPS.get(op.name)
        tracked = self._tracked(args if position is None else args[position : position + 1])
        if not tracked or op.name in _FRESH:
            return None
        integers, parts, elements = tracked[0]
        known = op.name in _LOOKUPS or op.name in _CASTS_TO_FLOATS or op.name in _ELEMENTWISE
        fits = known and len(tracked) == 1 and elements.shape == result.shape[: elements.dim()]
        if not fits or bool((elements == MIXED).any()):
            self.mixed.update(*(names for _, names, _ in tracked))
            return None
        (part,) = parts
        return integers, part, elements

    def leave(self, op: Op, args: tuple[Any, ...], result: Any) -> None:
        """Note integers of a part that become plain numbers, which cannot be tracked."""
        if not isinstance(result, Tensor) and op.name in _PLAIN_NUMBERS:
            self.mixed.update(*(names for _, names, _ in self._tracked(args)))

    def follow(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Track what a call computes from integers. Boolean results are not tracked: they only steer."""
        results = [one for one in tensors((args[0] if op.in_place else result,)) if _is_integer(one)]
        tracked = self._tracked((*args, *kwargs.values()))
        if not results or op.name in _FRESH:
            return
        parts = frozenset[str]().union(*(names for _, names, _ in tracked))
        origins = list(tensors((self._origins(op, args, kwargs, [elements for *_, elements in tracked]),)))
        for number, tensor in enumerate(results):
            fits = len(parts) == 1 and number < len(origins) and origins[number].shape == tensor.shape
            elements = origins[number] if fits else torch.full_like(tensor, MIXED, dtype=torch.long)
            self._put(tensor, parts, elements)

    def _origins(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], tracked: list[Tensor]) -> Any:
        if op.name in _MOVED:
            return self._moved(op, args, kwargs)
        if op.name in _CASTS:
            return tracked[0]
        if op.name == "one_hot":
            classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
            return tracked[0][..., None].expand(*tracked[0].shape, classes) if classes > 0 else None
        if op.name in _ELEMENTWISE:
            first, *others = torch.broadcast_tensors(*tracked)
            same = torch.ones_like(first, dtype=torch.bool)
            for other in others:
                same &= first == other
            return torch.where(same, first, MIXED)
        return None

    def _moved(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call itself, applied to the elements."""

        def elements(tensor: Tensor) -> Tensor | None:
            tracked = self._elements.get(id(tensor))
            return None if tracked is None else tracked[2]

        return moved_numbers(op, args, kwargs, elements)


def moves(op: Op) -> bool:
    """Whether a call moves numbers without changing them."""
    return op.name in _MOVED


def moved_numbers(
    op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], numbers: Callable[[Tensor], Tensor | None]
) -> Any:
    """A call that moves numbers, applied to the `numbers` of its tensors; filled-in values become CONSTANT."""

    moved = [_origin(value, numbers) if n in _MOVED[op.name] else value for n, value in enumerate(args)]
    if op.name == "pad":
        moved, kwargs = moved[:2], {"value": CONSTANT}
    try:
        return op.function(*moved, **kwargs)
    except (RuntimeError, TypeError, IndexError, ValueError):  # a form of the call that is not known: not tracked
        return None


def _origin(value: Any, numbers: Callable[[Tensor], Tensor | None]) -> Any:
    if isinstance(value, Tensor):
        own = numbers(value)
        return torch.full_like(value, CONSTANT, dtype=torch.long) if own is None else own
    if isinstance(value, tuple | list):
        return type(value)(_origin(one, numbers) for one in value)
    return CONSTANT


def _is_integer(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among values, also inside lists."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from tensors(value)


def batch_of(inputs: Mapping[str, Any]) -> int:
    """The length of the first part: the number of examples, where these lie along the first axis."""
    return next((len(value) for value in explained_parts(inputs).values()), 1)
