"""Where a model's rows lie on the image: which are patches, and in what grid. Found by looking, not by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.calling import call, evaluating
from relprop.engine.propagation import Observer, Propagation
from relprop.engine.sources import Lookup, Sources
from relprop.errors import ModelError
from relprop.ops import Op
from relprop.rulebook import rulesets


@dataclass(frozen=True)
class Grid:
    """Rows of a model's first block as patches of the image."""

    rows: int
    columns: int
    places: Tensor  # which of the block's rows are patches, from the top left; the others are class tokens and the like
    count: int  # all rows of the block


class _Looker(Observer):
    """Keeps the first block's input and the grids that convolutions made before it."""

    def __init__(self) -> None:
        self.grids: list[tuple[int, int]] = []
        self.states: Tensor | None = None

    def constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        if op.name == "conv2d" and self.states is None:
            self.grids.append((result.shape[-2], result.shape[-1]))
        return result

    def look(self, x: Tensor, ids: Tensor | None, lookup: Lookup | None) -> Tensor:
        self.states = x if self.states is None else self.states
        return x


def patch_grid(model: nn.Module, pixels: Tensor) -> Grid:
    """Rows that change with the image are patches; the patch convolution says how many lie side by side."""
    noise = torch.randn(pixels[:1].shape, generator=torch.Generator().manual_seed(0)).to(pixels)
    inputs = {"pixel_values": torch.cat([pixels[:1], pixels[:1] + noise])}
    looker = _Looker()
    sources = Sources(model, inputs, "block", looker.look, live=False)
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
        with Propagation(rulesets.gradient, [sources, looker]):
            call(model, inputs)
    states = looker.states
    if states is None or states.dim() not in (3, 4):
        raise ModelError(
            'the model\'s blocks do not read patches of the image that could be told apart; use at="input"'
        )
    if states.dim() == 4:  # [batch, height, width, features] or features first: as wide as the convolution made it
        height, width = next((g for g in reversed(looker.grids) if g in _sides(states)), (0, 0))
        return _checked(Grid(height, width, torch.arange(height * width), height * width))
    places = torch.nonzero((states[0] != states[1]).any(-1)).flatten().cpu()
    height, width = _shape(len(places), looker.grids, pixels.shape[-2:])
    return _checked(Grid(height, width, places, states.shape[1]))


def _sides(states: Tensor) -> list[tuple[int, int]]:
    return [(states.shape[1], states.shape[2]), (states.shape[2], states.shape[3])]


def _shape(count: int, grids: list[tuple[int, int]], size: torch.Size) -> tuple[int, int]:
    """The last convolution's grid with as many patches; without one, the grid whose patches are nearest to square."""
    made = [grid for grid in grids if grid[0] * grid[1] == count]
    if made:
        return made[-1]
    pairs = [(rows, count // rows) for rows in range(1, count + 1) if count % rows == 0]
    ratio = size[0] / size[1]
    return min(pairs, key=lambda pair: abs(torch.log(torch.tensor(pair[0] / pair[1] / ratio)).item()), default=(0, 0))


def _checked(grid: Grid) -> Grid:
    if not len(grid.places) == grid.rows * grid.columns > 0:
        raise ModelError(
            f"the model's rows are no grid of patches ({len(grid.places)} of {grid.count} change with the image)"
        )
    return grid
