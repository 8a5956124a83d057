"""Where a model's rows lie on the image: which are patches, and in what grid. Found by looking, not by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.calling import call, evaluating
from relprop.engine.propagation import Observer, Propagation
from relprop.engine.sources import Lookup, Sources
from relprop.errors import ModelError, RelpropError
from relprop.ops import Op
from relprop.rulebook import rulesets


@dataclass(frozen=True)
class Grid:
    """Rows of a model's first block as patches of the image."""

    rows: int
    columns: int
    places: Tensor  # which of the block's rows are patches, from the top left; the others are class tokens and the like
    count: int  # all rows of the block


class _Reached(RelpropError):  # noqa: N818  (no error: it ends the pass early)
    """The first block: the rest of the model need not run."""


class _Looker(Observer):
    """Keeps the first block's input and the grids that convolutions made before it."""

    def __init__(self) -> None:
        self.grids: list[tuple[int, int]] = []
        self.states: Tensor | None = None

    def constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        if op.name == "conv2d":
            self.grids.append((result.shape[-2], result.shape[-1]))
        return result

    def look(self, x: Tensor, ids: Tensor | None, lookup: Lookup | None) -> Tensor:
        self.states = x.detach()
        raise _Reached


def patch_grid(model: nn.Module, pixels: Tensor) -> Grid:
    """The grid of the model's first block for an image [1, colours, height, width].

    Rows that change with the image are patches, the patch convolution says how many lie side by side, and each lies
    where a change of the image changes it most.
    """
    noise = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(0)).to(pixels)
    before, grids = _look(model, pixels)
    if before.dim() == 4:  # [batch, features, height, width]
        height, width = before.shape[2:]
        return Grid(height, width, torch.arange(height * width), height * width)
    if before.dim() != 3 or len(before) != 1:
        raise _no_grid(f"its first block reads {list(before.shape)}")
    after, _ = _look(model, pixels + noise)
    places = torch.nonzero((before != after).any(-1)[0]).flatten().cpu()
    rows, columns = _shape(len(places), grids, pixels.shape[-2:])

    def changed(part: Tensor) -> Tensor:
        """Which patches change with a part of the image: those that come nearer to how the whole changes them."""
        state, _ = _look(model, pixels + noise * part)
        nearer: Tensor = (state - before).norm(dim=-1) > (state - after).norm(dim=-1)
        return nearer[0].cpu()[places]

    down, across = (_stripe(pixels, axis, count, len(places), changed) for axis, count in ((2, rows), (3, columns)))
    return Grid(rows, columns, places[_order(down, across, columns)], before.shape[1])


def _look(model: nn.Module, pixels: Tensor) -> tuple[Tensor, list[tuple[int, int]]]:
    """What the first block reads, and the grids of the convolutions before it."""
    inputs = {"pixel_values": pixels}
    looker = _Looker()
    sources = Sources(model, inputs, "block", looker.look, live=False)
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
        try:
            with Propagation(rulesets.gradient, [sources, looker]):
                call(model, inputs)
        except _Reached:
            pass
    if looker.states is None:
        raise _no_grid("no block was seen")
    return looker.states, looker.grids


def _stripe(pixels: Tensor, axis: int, count: int, patches: int, changed: Callable[[Tensor], Tensor]) -> Tensor:
    """In which of `count` stripes along an axis each patch lies. Their numbers are read bit by bit, in Gray code.

    (Neighbours differ in one bit, so a patch that reaches into the next stripe is at most one off.)
    """
    size = pixels.shape[axis]
    codes = torch.arange(count) ^ (torch.arange(count) >> 1)
    stripes = codes[torch.arange(size) * count // size].view([size if i == axis else 1 for i in range(4)])
    found = torch.zeros(patches, dtype=torch.long)
    for bit in range((count - 1).bit_length()):
        found += changed((stripes >> bit & 1).to(pixels)).long() << bit
    return (found[:, None] == codes).long().argmax(1)


def _shape(count: int, grids: list[tuple[int, int]], size: torch.Size) -> tuple[int, int]:
    """The last convolution's grid with as many patches; without one, the grid whose patches are nearest to square."""
    made = [grid for grid in grids if grid[0] * grid[1] == count]
    if made:
        return made[-1]
    pairs = [(rows, count // rows) for rows in range(1, count + 1) if count % rows == 0]
    if not pairs:
        raise _no_grid("none of its rows changes with the image")
    return min(pairs, key=lambda pair: abs(math.log(pair[0] / pair[1] * size[1] / size[0])))


def _order(down: Tensor, across: Tensor, columns: int) -> Tensor:
    """The patches from the top left on, given the stripes where each was found.

    Those that overlap may be found in a neighbour's: they keep the model's order if that is from the top left.
    """
    own = torch.arange(len(down))
    order = (down * columns + across).argsort()
    if torch.equal((down * columns + across)[order], own):
        return order
    off = torch.maximum((down - own // columns).abs(), (across - own % columns).abs())
    if off.max() > 1:
        raise _no_grid("its rows look at the whole image, or in an order that could not be told")
    return own


def _no_grid(reason: str) -> ModelError:
    return ModelError(
        f"the model's blocks do not read patches of the image ({reason}): there is no grid to put their scores on; "
        'use a method that scores pixels (integrated_gradients, smoothgrad, or at="input" where it is an option)'
    )
