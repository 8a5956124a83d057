"""What a capture sees: attention maps and block inputs, with what flowed back to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from relprop.errors import ModelError

Fold = Callable[["AttentionMap"], Tensor]


@dataclass
class AttentionMap:
    """Attention weights [batch, heads, queries, keys] and what flowed back to them: their gradient, their relevance."""

    block: int
    module: str
    weights: Tensor | None
    shape: tuple[int, ...]
    gradient: Tensor | None = None
    relevance: Tensor | None = None
    output_gradient: Tensor | None = (
        None  # the gradient at the product of weights and values, from which theirs can be made
    )
    folded: Tensor | None = None  # what a watch's `fold` made of them; they are gone then

    @property
    def arrived(self) -> Tensor | None:
        """What the pass carried."""
        return self.gradient if self.relevance is None else self.relevance

    @property
    def square(self) -> bool:
        """A map of all tokens by all tokens."""
        return len(self.shape) == 4 and self.shape[2] == self.shape[3]

    def rows(self, chunk: slice) -> list[Tensor | None]:
        """Some rows of what it holds."""
        held = (self.weights, self.gradient, self.relevance)
        return [None if one is None else one[:, :, chunk] for one in held]

    def fold_rows(self, fold: Fold, chunk: slice, *rows: Tensor | None) -> None:
        """Fold some rows of weights, gradient and relevance: all at once would take several times the map's memory."""
        weights, gradient, relevance = rows
        made = fold(replace(self, weights=weights, gradient=gradient, relevance=relevance))
        if chunk == slice(0, self.shape[2]):
            self.folded = made
            return
        if self.folded is None:
            self.folded = made.new_empty((*made.shape[:-2], self.shape[2], made.shape[-1]))
        self.folded[..., chunk, :] = made


@dataclass
class BlockInput:
    """A block's input and what flowed back to it."""

    index: int
    module: str
    input: Tensor
    gradient: Tensor | None = None
    relevance: Tensor | None = None

    @property
    def arrived(self) -> Tensor | None:
        return self.gradient if self.relevance is None else self.relevance

    def effect(self) -> Tensor:
        """[batch, rows]: input times gradient, or the relevance, of each row."""
        if self.gradient is not None:
            return (self.input.detach().double() * self.gradient.double()).sum(-1)
        return torch.zeros(self.input.shape[:-1]) if self.relevance is None else self.relevance.double().sum(-1)

    def weight(self) -> Tensor:
        """[batch, rows]: how much each row feeds the target.

        By the sizes of input and gradient: below a final norm their product vanishes but for rounding.
        """
        if self.gradient is not None:
            size: Tensor = self.input.detach().double().norm(dim=-1) * self.gradient.double().norm(dim=-1)
            return size
        return self.effect().abs()


@dataclass
class CapturedMaps:
    """What a capture saw, in the order of the forward pass."""

    maps: list[AttentionMap] = field(default_factory=list)
    blocks: list[BlockInput] = field(default_factory=list)
    last: BlockInput | None = None  # the output of the last block, in a block's clothes

    def readout(self) -> Tensor:
        """[batch, rows]: what share of the target each row of the last block's output feeds.

        One row for a model that reads [CLS] or the last token; all rows where it takes the mean.
        """
        if self.last is None or self.last.arrived is None:
            raise ModelError("no block of the model was seen to feed the target alone; use lrp_ah_ln instead")
        read = (self.last.arrived != 0).any(-1)
        fed = torch.where(read, self.last.weight(), 0)
        total = fed.sum(-1, keepdim=True)
        return torch.where(total > 0, fed / total.clamp_min(1e-300), read / read.sum(-1, keepdim=True).clamp_min(1))
