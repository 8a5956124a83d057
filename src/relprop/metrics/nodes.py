"""Graphs with nodes, and the edges at them, taken out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from relprop.errors import InputError
from relprop.metrics.hidden_units import Hidden, moved_together
from relprop.metrics.score_arrays import Floats, Values, scores_per_unit


@dataclass(frozen=True, eq=False)
class Nodes:
    """Graphs as a Graph Transformer takes them: `nodes`, `adjacency` and `attention_mask`, padded to one size.

    Units are the virtual node, which is never hidden, and the nodes. The metrics on tokens take these too.
    """

    inputs: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not all(isinstance(self.inputs.get(name), Tensor) for name in ("nodes", "adjacency", "attention_mask")):
            raise InputError("to take nodes out, the inputs need nodes, adjacency and attention_mask")
        graphs, nodes = self.inputs["nodes"].shape[:2]
        if self.inputs["attention_mask"].shape != (graphs, nodes + 1):
            raise InputError(f"attention_mask is [graphs, 1 + nodes], {[graphs, nodes + 1]}")

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

    def scores(self, scores: Values) -> Floats:
        """The caller's scores [graphs, units], checked, with those of padding set to 0."""
        return scores_per_unit(scores, self.real, "unit")

    def lengths(self, questions: Sequence[Hidden]) -> list[int]:
        return [int((self.real[one.example] & ~one.units).sum()) for one in questions]

    def keys(self, questions: Sequence[Hidden]) -> Iterator[bytes]:
        """The graph and the nodes that are left; graphs without any node have one key."""
        for one in questions:
            kept = self.hideable[one.example] & ~one.units
            yield repr(one.example).encode() + kept.numpy().tobytes() if kept.any() else b""

    def hide(self, which: Tensor, hidden: Tensor) -> dict[str, Any]:
        """The graphs without their hidden nodes, the others moved together."""
        order, filled = moved_together((self.hideable[which] & ~hidden)[:, 1:])
        nodes, adjacency = (self.inputs[name][which.to(self.inputs[name].device)] for name in ("nodes", "adjacency"))
        order, filled = order.to(nodes.device), filled.to(nodes.device)
        nodes = nodes.take_along_dim(order[..., None], 1) * filled[..., None].to(nodes.dtype)
        edges = adjacency.take_along_dim(order[..., None], 1).take_along_dim(order[:, None], 2)
        edges = edges * (filled[:, :, None] & filled[:, None])
        mask = torch.cat([torch.ones_like(filled[:, :1]), filled], 1).to(self.inputs["attention_mask"].dtype)
        return {**self.inputs, "nodes": nodes, "adjacency": edges, "attention_mask": mask}
