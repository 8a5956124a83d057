"""Head masks to compare with: random masks of the same size, and corrupted masks."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relprop.errors import InputError

Mask = NDArray[np.bool_]
How = Literal["add", "swap"]


def random_mask(like: Mask, seed: int = 0) -> Mask:
    """A mask of as many heads as `like` has, drawn from all heads of all blocks."""
    drawn = np.zeros(like.size, bool)
    drawn[np.random.default_rng(seed).permutation(like.size)[: int(like.sum())]] = True
    return drawn.reshape(like.shape)


def corrupted(mask: Mask, share: float, seed: int = 0, *, how: How = "add") -> Mask:
    """The mask with irrelevant heads added.

    "add", as [Song24]'s released code: a share of the heads outside the mask joins it; 1 gives a mask of ones. "swap":
    a share of the mask's heads is exchanged for heads outside it, as far as there are any; the size stays. With the
    same seed, a larger share changes all heads that a smaller one changes.
    """
    if not 0 <= share <= 1:
        raise InputError(f"the share of corrupted heads is a number from 0 to 1, got {share}")
    if how not in ("add", "swap"):
        raise InputError(f'how is "add" or "swap", got "{how}"')
    draw = np.random.default_rng(seed)
    outside = draw.permutation(np.flatnonzero(~mask))
    inside = draw.permutation(np.flatnonzero(mask))
    count = int(share * outside.size) if how == "add" else min(int(share * inside.size), outside.size)
    result = mask.copy().reshape(-1)
    result[outside[:count]] = True
    if how == "swap":
        result[inside[:count]] = False
    return result.reshape(mask.shape)
