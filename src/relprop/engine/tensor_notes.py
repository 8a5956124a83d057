"""Notes about how a tensor was computed, stored as an attribute of the tensor and deleted with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor

NOTE = "_relprop_note"


@dataclass(eq=False)
class Root:
    """A tensor at its present version; a copy of its old values replaces it before it is overwritten."""

    tensor: Tensor
    version: int
    number: int = field(default_factory=count().__next__)  # unlike its id, never reused

    @property
    def intact(self) -> bool:
        return self.tensor._version == self.version


@dataclass(frozen=True)
class Origin:
    """An elementwise function f of one root."""

    root: Root
    at_zero: float = 0.0  # f(0)
    curved: bool = False  # f is not affine
    passes: bool = True  # the identity rule is already applied: it flows back as root * const(f(root) / root)
    saturates: bool = False  # a multiple of tanh or erf


@dataclass(frozen=True)
class Reduction:
    """A sum (or mean), a maximum, or log(sum(exp)) over some of a root's dimensions, up to scale and shape."""

    kind: str
    root: Root
    dims: Any = None


@dataclass(frozen=True)
class Logarithm:
    """What the logarithm of a tensor is: its root x itself ("identity"), or a function of it."""

    name: str  # "identity", "log_softmax" or "logsumexp"
    root: Root
    dims: Any = None
    number: int = -1  # of the root exp(x), where its sum was taken

    @property
    def is_known(self) -> bool:
        return self.name != "identity" and self.root.intact and self.root.tensor.requires_grad

    def function(self, shape: torch.Size) -> Callable[..., Tensor]:
        """The function of x, called with whatever the logarithm was called with."""
        x, dims = self.root.tensor, self.dims
        if self.name == "log_softmax":
            return lambda *_: torch.log_softmax(x, dims)
        every = tuple(range(x.dim())) if dims is None else dims
        return lambda *_: torch.logsumexp(x, every).reshape(shape)


@dataclass(frozen=True)
class Centred:
    """z = x - mean(x) times constants."""

    z: Root | None  # None: z is the tensor itself
    dims: Any  # over which the mean is taken
    normed: bool  # 1/std is among the constants


@dataclass(frozen=True)
class Factors:
    """A product of two live tensors and a number."""

    first: Root
    second: Root
    scale: float = 1.0


@dataclass(frozen=True)
class Note:
    """How one tensor was computed."""

    version: int
    origin: Origin | None = None
    reduction: Reduction | None = None
    exponential: bool = False  # exp(...), possibly masked
    exponent: Root | None = None  # x of exp(x) without a mask
    weights: Root | None = None  # exp(x) of a product exp(x) v: attention before its normalisation
    log_softmax: bool = False
    log_scale: float | None = None  # c of c log(x)
    centred: Centred | None = None
    product: str | None = None  # what its sum is: "sum_of_products" of two live tensors, or "weighted_sum"
    logarithm: Logarithm | None = None
    softmax: bool = False  # of a softmax, possibly masked
    factors: Factors | None = None


def set_note(tensor: Tensor, note: Note | None) -> None:
    if note is not None:
        setattr(tensor, NOTE, note)
    elif hasattr(tensor, NOTE):
        delattr(tensor, NOTE)


def copy_note(source: Tensor, target: Tensor, passes: bool) -> None:
    """Copy the note of `source` to `target`, which has the same values."""
    note: Note = getattr(source, NOTE)
    assert note.origin is not None
    set_note(target, replace(note, version=target._version, origin=replace(note.origin, passes=passes)))
