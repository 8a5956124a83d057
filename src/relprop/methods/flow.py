"""Attention flow ([Abnar20]): maximum flow from the read-out to each input token in the layered attention graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from relprop.deadline import check_deadline
from relprop.methods.block_maps import mean_heads, normalised_with_identity, weight_maps
from relprop.methods.unit_scores import Inputs
from relprop.registry import METHODS
from relprop.types import Attribution

_UNIT = 2**30  # scipy's flows are 32-bit integers; the largest flow, that out of the read-out, is 1


@METHODS.register(
    family="attention",
    signed=False,
    gradients=False,
    maps=True,
    passes=lambda units, options: units,  # one maximum flow per token
    citation="Abnar and Zuidema 2020",
)
def attention_flow(model: nn.Module, inputs: Inputs, target: Any) -> Attribution:
    """Maximum flow from the read-out at the top to each token at the bottom, capacities rownorm(E_h A_b + I), sum 1.

    [Abnar20] attention flow.
    """
    maps = weight_maps(model, inputs, target, "attention_flow", mean_heads)
    capacities = torch.stack([normalised_with_identity(one) for one in maps.folded], 1).double().cpu()
    flows = [
        max_flows(layers.numpy(), readout.double().cpu().numpy())
        for layers, readout in zip(capacities, maps.readout, strict=True)
    ]
    return maps.attribution("attention_flow", torch.tensor(np.stack(flows)).to(maps.readout), inputs)


def max_flows(capacities: NDArray[np.float64], readout: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per token the maximum flow to it, scaled to sum 1. `capacities`: [blocks, rows, columns]; `readout`: [rows]."""
    from scipy.sparse import csr_matrix  # here, as importing it takes 0.4 s
    from scipy.sparse.csgraph import maximum_flow

    blocks, tokens, _ = capacities.shape
    source = (blocks + 1) * tokens
    upper = np.repeat(np.arange(tokens, source), tokens)  # node of row i above block b: (b + 1) * tokens + i
    lower = np.tile(np.arange(tokens), blocks * tokens) + np.repeat(np.arange(blocks) * tokens, tokens * tokens)
    tops = np.arange(blocks * tokens, source)
    rows = np.concatenate([upper, np.full(tokens, source)])
    weights = np.concatenate([capacities.ravel(), readout])
    graph = csr_matrix(
        (np.round(weights * _UNIT).astype(np.int32), (rows, np.concatenate([lower, tops]))),
        shape=(source + 1, source + 1),
    )
    flows = np.empty(tokens)
    for token in range(tokens):
        check_deadline()
        flows[token] = maximum_flow(graph, source, token).flow_value
    shares: NDArray[np.float64] = flows / flows.sum()
    return shares
