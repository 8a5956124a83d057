"""Graphs with nodes taken out, and their edges with them; and where on a picture a graph's relevance lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relprop.errors import InputError
from relprop.metrics.hiding import Hidden
from relprop.metrics.maps import examples, plain
from relprop.metrics.results import Floats


@dataclass(frozen=True, eq=False)
class Nodes:
    """Graphs as a Graph Transformer takes them: `nodes`, `adjacency` and `attention_mask`, padded to one size.

    Units are the virtual node, which stays, and the nodes. What metrics do with tokens they do with these.
    """

    inputs: Mapping[str, Any]

    def __post_init__(self) -> None:
        nodes, adjacency, mask = (self.inputs.get(name) for name in ("nodes", "adjacency", "attention_mask"))
        if not all(isinstance(one, Tensor) for one in (nodes, adjacency, mask)):
            raise InputError("to take nodes out, the inputs need nodes, adjacency and attention_mask")
        assert isinstance(nodes, Tensor)
        assert isinstance(mask, Tensor)
        if mask.shape != (len(nodes), nodes.shape[1] + 1):
            raise InputError(f"attention_mask is [graphs, 1 + nodes], {[len(nodes), nodes.shape[1] + 1]}")

    def __len__(self) -> int:
        return len(self.real)

    @cached_property
    def real(self) -> Tensor:
        """[graphs, units]: all but padding."""
        mask: Tensor = self.inputs["attention_mask"]
        return (mask != 0).cpu()

    @cached_property
    def hideable(self) -> Tensor:
        """[graphs, units]: all but padding and the virtual node."""
        return self.real & (torch.arange(self.real.shape[1]) > 0)

    pads_right = True

    def scores(self, scores: Any) -> Floats:
        """Anybody's scores [graphs, units], checked; what padding scores is of no interest and set to 0."""
        values = plain(scores)
        if values.shape != tuple(self.real.shape):
            raise InputError(f"scores are one a unit, {list(self.real.shape)}, got {list(values.shape)}")
        return examples(np.where(self.real.numpy(), values, 0))

    def lengths(self, questions: Sequence[Hidden]) -> list[int]:
        return [int((self.real[one.example] & ~one.units).sum()) for one in questions]

    def keys(self, questions: Sequence[Hidden]) -> Iterator[bytes]:
        """A graph and what is left of it; nothing is the same for all."""
        for one in questions:
            kept = self.hideable[one.example] & ~one.units
            yield repr(one.example).encode() + kept.numpy().tobytes() if kept.any() else b""

    def hide(self, which: Tensor, hidden: Tensor) -> dict[str, Any]:
        """The graphs without their hidden nodes, those left moved together."""
        kept = (self.hideable[which] & ~hidden)[:, 1:]
        width = max(1, int(kept.sum(1).max()))
        order = (~kept).to(torch.uint8).argsort(dim=1, stable=True)[:, :width]
        there = kept.gather(1, order)
        nodes, adjacency = (self.inputs[name][which.to(self.inputs[name].device)] for name in ("nodes", "adjacency"))
        order, there = order.to(nodes.device), there.to(nodes.device)
        nodes = nodes.gather(1, order[..., None].expand(-1, -1, nodes.shape[-1])) * there[..., None].to(nodes.dtype)
        rows = adjacency.gather(1, order[..., None].expand(-1, -1, adjacency.shape[-1]))
        linked = rows.gather(2, order[:, None].expand(-1, width, -1)) * (there[:, :, None] & there[:, None])
        mask = torch.cat([torch.ones_like(there[:, :1]), there], 1).to(self.inputs["attention_mask"].dtype)
        return {**self.inputs, "nodes": nodes, "adjacency": linked, "attention_mask": mask}


def relevance_mass(scores: Any, regions: Any, marked: Any) -> float:
    """The share of positive scores [nodes] on the pixels that are marked, each spread evenly over its node's region.

    `regions` [height, width] says which node every pixel is of. NaN where no score is positive.
    """
    positive = np.maximum(examples(scores), 0)
    where, inside = np.asarray(regions), np.asarray(marked, dtype=np.float64)
    if where.shape != inside.shape or positive.ndim != 1 or not 0 <= where.min() <= where.max() < len(positive):
        raise InputError(
            f"regions and marked are of one size and name nodes 0 to {len(positive) - 1}, got {list(where.shape)} with "
            f"{where.min()} to {where.max()}, and {list(inside.shape)}"
        )
    size = np.bincount(where.ravel(), minlength=len(positive))
    share = np.bincount(where.ravel(), inside.ravel(), len(positive)) / np.maximum(size, 1)
    total = positive.sum()
    return float(positive @ share / total) if total else float("nan")
