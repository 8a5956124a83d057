"""What one pass gives: the explained number, the sources, and what flowed back to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from relprop.engine.block_states import RowRelevance
from relprop.engine.captured_maps import CapturedMaps
from relprop.engine.ledger import LedgerKeeper
from relprop.engine.sources import Source
from relprop.ops import at_least_float32
from relprop.rulebook.rulesets import Carries
from relprop.targets import ChosenTarget


@dataclass(frozen=True)
class Flow:
    """The result of one pass."""

    chosen: ChosenTarget
    sources: tuple[Source, ...]
    arrived: tuple[Tensor, ...]  # per source: its gradient, or its relevance
    carries: Carries
    captured: CapturedMaps | None = None
    keeper: LedgerKeeper | None = None
    gradient: Flow | None = None  # the gradient's own flow, where one forward pass served gradient and relevance
    several: bool = False  # `arrived` is stacked: one entry per target (`targets.Several`) of a single example
    row_owners: Mapping[str, Tensor] = field(default_factory=dict)  # per part without a batch axis: each row's example
    axes: Mapping[str, int] = field(default_factory=dict)  # per part: its batch axis, -1 for none
    one_stream: bool = True  # all attention is among the rows of one residual stream
    block_rows: RowRelevance | None = None  # relevance of the rows at every block, where asked for
    warnings: tuple[str, ...] = ()
    hidden: list[str] = field(default_factory=list)  # parts with relevance at units that their mask calls padding
    double: bool = False  # computed in float64 over a model in float32, to which scores are rounded in the end

    def relevance(self) -> list[Tensor]:
        """Per source the relevance of each element (input x gradient, or R itself), in float32 or better."""
        return [
            at_least_float32(arrived)
            if self.carries == "relevance"
            else at_least_float32(source.leaf.detach()) * at_least_float32(arrived)
            for source, arrived in zip(self.sources, self.arrived, strict=True)
        ]

    def rows(self) -> list[Tensor]:
        """Per source the relevance of each row, features summed: [rows], or [targets, rows]."""
        return [
            torch.stack([source.rows.of(one).sum(-1) for one in each]) if self.several else source.rows.of(each).sum(-1)
            for source, each in zip(self.sources, self.relevance(), strict=True)
        ]
