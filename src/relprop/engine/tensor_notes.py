"""What is known of one tensor of a pass, written on the tensor itself and gone with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

NOTE = "_relprop_note"


@dataclass(eq=False)
class Root:
    """A tensor as it is now. If it is written to, a copy of its old values takes its place."""

    tensor: Tensor
    version: int

    @property
    def intact(self) -> bool:
        return self.tensor._version == self.version


@dataclass(frozen=True)
class Origin:
    """A function f of one root, element by element."""

    root: Root
    at_zero: float = 0.0  # f(0)
    curved: bool = False  # f is not affine
    passes: bool = True  # it flows back as root * const(f(root) / root)
    saturates: bool = False  # a multiple of tanh or erf


@dataclass(frozen=True)
class Reduction:
    """A sum (or mean), a maximum, or log(sum(exp)) over some of a root's dimensions, up to scale and shape."""

    kind: str
    root: Root
    dims: Any = None


@dataclass(frozen=True)
class Centred:
    """z = x - mean(x) times constants."""

    z: Root | None  # None: the tensor itself
    dims: Any  # of the mean
    normed: bool  # whether 1/std is among the constants


@dataclass(frozen=True)
class Note:
    """What is known of one tensor."""

    version: int
    origin: Origin | None = None
    reduction: Reduction | None = None
    exponential: bool = False  # exp(...), perhaps masked
    exponent: Root | None = None  # of exp(...) as it is
    weights: Root | None = None  # of a product with exp(...): attention before its normalisation
    log_softmax: bool = False
    centred: Centred | None = None


def set_note(tensor: Tensor, note: Note | None) -> None:
    if note is not None:
        setattr(tensor, NOTE, note)
    elif hasattr(tensor, NOTE):
        delattr(tensor, NOTE)


def copy_note(source: Tensor, target: Tensor, passes: bool) -> None:
    """`target` has the values of `source`."""
    note: Note = getattr(source, NOTE)
    assert note.origin is not None
    set_note(target, replace(note, version=target._version, origin=replace(note.origin, passes=passes)))
