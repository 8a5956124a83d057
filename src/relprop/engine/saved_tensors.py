"""Tensors that are saved for the backward pass, and the memory that they lie in."""

from __future__ import annotations

from torch import Tensor

from relprop.deadline import check_deadline


def address(tensor: Tensor) -> int:
    """The address of a tensor's storage; 0 for tensors without one (meta tensors, quantised weights)."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


class SavedTensor:
    """A tensor that autograd saved for the backward pass; replaced by a copy before its memory is overwritten."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def saved_values(saved: SavedTensor) -> Tensor:
    """The values that autograd gets back. Called for every step of a backward pass, which nothing else can stop."""
    check_deadline()
    return saved.tensor
