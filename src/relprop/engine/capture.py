"""Attention maps, what flows back to them, and block inputs: seen as the model runs, fused attention or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.propagation import Observer, Propagation, Run
from relprop.engine.structure import Paths, calls, first_tensor, module_of, stacks
from relprop.errors import ModelError
from relprop.ops import Op

# Calls that hand an attention map on as it is.
_CARRIES = {"dropout", "to", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "view", "reshape",
            "clone", "masked_fill", "nan_to_num", "mul"}  # fmt: skip


@dataclass
class Map:
    """Attention weights [batch, heads, queries, keys] and, after the backward pass, the gradient or relevance there."""

    block: int
    module: str
    weights: Tensor
    arrived: Tensor | None = None


@dataclass
class Block:
    """A block's input and, after the backward pass, what flows back to it."""

    index: int
    module: str
    input: Tensor
    arrived: Tensor | None = None


@dataclass
class Seen:
    """What a capture saw, in the order of the forward pass."""

    maps: list[Map] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    last: Block | None = None  # the output of the last block, in a block's clothes

    def readout(self) -> Tensor:
        """[batch, rows]: what share of the target each row of the last block's output feeds.

        One row for a model that reads [CLS] or the last token; all rows where it takes the mean.
        """
        if self.last is None or self.last.arrived is None:
            raise ModelError("no block of the model was seen to feed the target")
        states, arrived = (tensor.detach().to(torch.float64) for tensor in (self.last.input, self.last.arrived))
        read = (arrived != 0).any(-1)
        fed = torch.where(read, (states * arrived).sum(-1).abs(), 0)
        total = fed.sum(-1, keepdim=True)
        return torch.where(total > 0, fed / total.clamp_min(1e-300), read / read.sum(-1, keepdim=True).clamp_min(1))


@dataclass(frozen=True)
class HeadMask:
    """Relevance flows through some heads only: what enters a block's heads is masked and scaled to its old sum.

    `late`: the released code's way, which masks what leaves the heads, after the maps' relevance is kept, unscaled.
    """

    mask: Tensor  # [blocks, heads]
    late: bool = False

    def entering(self, block: int) -> Callable[[Tensor], Tensor]:
        def masked(relevance: Tensor) -> Tensor:
            kept = self._through(block, relevance)
            before, after = (one.flatten(1).sum(1).view(-1, 1, 1, 1) for one in (relevance, kept))
            return kept * torch.where(after == 0, 0, before / torch.where(after == 0, 1, after))

        return masked

    def leaving(self, block: int) -> Callable[[Tensor], Tensor]:
        return lambda relevance: self._through(block, relevance)

    def _through(self, block: int, relevance: Tensor) -> Tensor:
        return relevance * self.mask[block].to(relevance)[None, :, None, None]


class Capture(Observer):
    """Keeps attention maps, block inputs and what flows back to them; may let relevance through some heads only."""

    def __init__(self, model: nn.Module, batch: int, heads: HeadMask | None = None) -> None:
        self.seen = Seen()
        self._batch = batch
        self._heads = heads
        self._paths = Paths(model)
        self._blocks = {id(block) for stack in stacks(model) for block in stack}
        self._inside: Any = None  # the frame of the block that is running
        self._weights: dict[int, Tensor] = {}  # results of softmax, and what handed them on

    def before(self, mode: Propagation, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        frame = next((f for f in calls() if id(module_of(f)) in self._blocks), None)
        entered = frame is not None and frame is not self._inside
        self._inside = frame
        if entered and frame is not None:
            x = first_tensor(frame)
            if x is not None and mode.is_live(x):
                x = mode.stand_in(x)
                block = Block(len(self.seen.blocks), self._paths.here(), x)
                self.seen.blocks.append(block)
                x.register_hook(_keep(block))

    def around(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        if op.name == "matmul" and id(args[0]) in self._weights:
            result = self._values(args[0], args[1], lambda values: run(op, (args[0], values), kwargs))
        elif op.name == "einsum" and len(args) == 3 and id(args[1]) in self._weights:
            result = self._values(args[1], args[2], lambda values: run(op, (args[0], args[1], values), kwargs))
        else:
            result = run(op, args, kwargs)
        self._follow(op, args, result)
        if self._inside is not None and isinstance(result, Tensor) and result.requires_grad:
            self.seen.last = Block(len(self.seen.blocks), self._paths.here(), result)
        return result

    def finish(self) -> None:
        """After the forward pass: watch what flows back to the last block's output."""
        self._inside = None
        if self.seen.last is not None:
            self.seen.last.input.register_hook(_keep(self.seen.last))

    def constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        self._follow(op, args, result)
        return result

    def _follow(self, op: Op, args: tuple[Any, ...], result: Any) -> None:
        """A softmax makes a map; dropout, casts and reshapes hand it on."""
        if not isinstance(result, Tensor):
            return
        handed_on = op.name in _CARRIES and args and id(args[0]) in self._weights
        if (op.name == "softmax" and result.dim() >= 3) or handed_on:
            self._weights[id(result)] = result

    def _values(self, weights: Tensor, values: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        """The product of a map with the values: the map is kept, the relevance of heads is masked."""
        self._tap(weights)
        block = len(self.seen.blocks) - 1
        if self._heads is None:
            return product(values)
        if not self._heads.late:
            result = product(values)
            result.register_hook(self._by_head(self._heads.entering(block)))
            return result
        values = values.view_as(values)
        for tensor in (weights, values):
            tensor.register_hook(self._by_head(self._heads.leaving(block)))
        return product(values)

    def _by_head(self, edit: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """`edit` on [batch, heads, ...], also where the model has batch and heads in one dimension."""
        return lambda x: edit(x.unflatten(0, (self._batch, -1))).flatten(0, 1) if x.dim() == 3 else edit(x)

    def _tap(self, weights: Tensor) -> None:
        """Keep the map that a product with the values uses."""
        shaped = weights.unflatten(0, (self._batch, -1)) if weights.dim() == 3 else weights
        entry = Map(len(self.seen.blocks) - 1, self._paths.here(), shaped.detach())
        self.seen.maps.append(entry)
        self._weights.clear()
        if weights.requires_grad:
            weights.register_hook(_keep(entry, shaped.shape))


def _keep(entry: Map | Block, shape: Any = None) -> Callable[[Tensor | None], None]:
    def keep(arrived: Tensor | None) -> None:
        if arrived is not None:
            entry.arrived = arrived.detach() if shape is None else arrived.detach().reshape(shape)

    return keep
