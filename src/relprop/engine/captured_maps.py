"""What a capture keeps: attention maps and block inputs, with the gradient or relevance that flowed back to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from relprop.errors import ModelError

Fold = Callable[["AttentionMap"], Tensor]


@dataclass
class AttentionMap:
    """Attention weights A_b [batch, heads, queries, keys], their gradient G_b and their relevance R_b."""

    block: int
    module: str
    weights: Tensor | None
    shape: tuple[int, ...]
    gradient: Tensor | None = None
    relevance: Tensor | None = None
    output_gradient: Tensor | None = None  # of the product A V, from which G_b can be computed
    folded: Tensor | None = None  # the result of `CaptureOptions.fold`; the map itself is then dropped

    @property
    def arrived(self) -> Tensor | None:
        """What flowed back: the relevance, or the gradient in a pass without relevance."""
        return self.gradient if self.relevance is None else self.relevance

    @property
    def square(self) -> bool:
        """Whether it is a map of all tokens by all tokens."""
        return len(self.shape) == 4 and self.shape[2] == self.shape[3]

    def rows(self, chunk: slice) -> list[Tensor | None]:
        """Some query rows of weights, gradient and relevance."""
        held = (self.weights, self.gradient, self.relevance)
        return [None if one is None else one[:, :, chunk] for one in held]

    def fold_rows(self, fold: Fold, chunk: slice, *rows: Tensor | None) -> None:
        """Fold some query rows; all rows at once would take several times the memory of the map."""
        weights, gradient, relevance = rows
        result = fold(replace(self, weights=weights, gradient=gradient, relevance=relevance))
        if chunk == slice(0, self.shape[2]):
            self.folded = result
            return
        if self.folded is None:
            self.folded = result.new_empty((*result.shape[:-2], self.shape[2], result.shape[-1]))
        self.folded[..., chunk, :] = result


@dataclass
class BlockInput:
    """The hidden states that enter a block, and what flowed back to them."""

    index: int
    module: str
    input: Tensor
    gradient: Tensor | None = None
    relevance: Tensor | None = None

    @property
    def arrived(self) -> Tensor | None:
        return self.gradient if self.relevance is None else self.relevance

    def effect(self) -> Tensor:
        """[batch, rows]: input x gradient, or the relevance, summed over each row."""
        if self.gradient is not None:
            return (self.input.detach().double() * self.gradient.double()).sum(-1)
        return torch.zeros(self.input.shape[:-1]) if self.relevance is None else self.relevance.double().sum(-1)

    def weight(self) -> Tensor:
        """[batch, rows]: how much each row feeds the target.

        This is |input| * |gradient|: below a final norm, input x gradient itself sums to nothing but rounding errors.
        """
        if self.gradient is not None:
            size: Tensor = self.input.detach().double().norm(dim=-1) * self.gradient.double().norm(dim=-1)
            return size
        return self.effect().abs()


@dataclass
class CapturedMaps:
    """The maps and block inputs of a pass, in the order of the forward pass."""

    maps: list[AttentionMap] = field(default_factory=list)
    blocks: list[BlockInput] = field(default_factory=list)
    last: BlockInput | None = None  # the output of the last block, as the input of what follows it
    changed: bool = False  # weights were scaled or masked after their softmax: rows do not sum to 1

    def readout(self) -> Tensor:
        """[batch, rows], rows sum to 1: how much of the target each row of the last block's output feeds.

        This is one row for a model that reads [CLS] or the last token, and all rows for mean pooling.
        """
        if self.last is None or self.last.arrived is None:
            raise ModelError("no block of the model feeds the target by itself; use lrp_ah_ln instead")
        read = (self.last.arrived != 0).any(-1)
        fed = torch.where(read, self.last.weight(), 0)
        total = fed.sum(-1, keepdim=True)
        return torch.where(total > 0, fed / total.clamp_min(1e-300), read / read.sum(-1, keepdim=True).clamp_min(1))
