"""Shortest paths of padded graphs, by matrix products: their length, their number, and the kinds of their edges.

Where several paths are shortest all of them count equally, so that the numbering of the nodes changes nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor


def shortest_paths(linked: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Distances and numbers of shortest paths [batch, n, n] from links of 0 and 1.

    A distance of `longest` + 1 stands for all larger ones, and for nodes without a path between them.
    """
    count = torch.eye(linked.shape[-1], dtype=linked.dtype, device=linked.device).expand_as(linked).contiguous()
    distance = torch.where(count > 0, 0, longest + 1)
    front = count
    for step in range(1, longest + 1):
        front = torch.where(distance > longest, front @ linked, 0)
        reached = front > 0
        if not reached.any():
            break
        distance = torch.where(reached, step, distance)
        count = count + front
    return distance, count


def edge_shares_on_paths(kinds: Tensor, distance: Tensor, count: Tensor, hops: int) -> Tensor:
    """[batch, n, n, hops, kinds]: the share of shortest paths whose first, second, ... edge is of a kind.

    `kinds` [batch, kinds, n, n] are links of 0 and 1. Shares are 0 for pairs that are more than `hops` apart, and for
    steps after the end of a path.
    """
    at = [torch.where(distance == step, count, 0) for step in range(hops)]
    shares = kinds.new_zeros(*distance.shape, hops, kinds.shape[1])
    for hop in range(hops):
        here = at[hop][:, None] @ kinds  # paths of `hop` edges, and then one of each kind
        for rest in range(hops - hop):
            ends = distance == hop + 1 + rest
            if ends.any():
                through = here @ (at[rest][:, None])
                shares[..., hop, :] += torch.where(ends[:, None], through, 0).movedim(1, -1)
    return shares / count.clamp_min(1)[..., None, None]
