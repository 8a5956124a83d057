"""Scores of windows of an image put on a grid: the windows were proved, so where each row lies is known."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relprop.errors import ModelError


@dataclass(frozen=True)
class PatchGrid:
    """Windows of an image side by side, from the top left."""

    rows: int
    columns: int
    places: Tensor  # which of the units are patches; the others are class tokens and the like


def patch_grid(windows: Tensor) -> PatchGrid:
    """The grid of windows [units, (colours, down, across), (first, last)]. Empty ones are no part of it."""
    patches = torch.nonzero((windows[..., 0] <= windows[..., 1]).all(1)).flatten()
    middle = windows[patches, -2:].sum(-1)  # twice the middle, down and across: windows at an edge may be cut
    (_, down), (_, across) = (torch.unique(middle[:, axis], return_inverse=True) for axis in (0, 1))
    rows, columns = int(down.max()) + 1, int(across.max()) + 1
    order = (down * columns + across).argsort()
    if not torch.equal((down * columns + across)[order], torch.arange(rows * columns, device=order.device)):
        raise ModelError(
            "the model's rows read windows of the image that lie on no grid: use a method that scores pixels "
            '(integrated_gradients, smoothgrad, or at="input" where it is an option)'
        )
    return PatchGrid(rows, columns, patches[order].cpu())
