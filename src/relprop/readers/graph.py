"""Graphs: molecules, pictures of superpixels, or any graph, batched by size."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from relprop.errors import InputError, ModelError
from relprop.graph.graph import Graph, batch, from_networkx, from_pyg
from relprop.graph.molecules import from_smiles
from relprop.graph.superpixels import superpixels
from relprop.metrics.nodes import Nodes
from relprop.model_config import config_value
from relprop.readers.picture import opened_picture
from relprop.render.graph.part import GraphPart
from relprop.types import Attribution


class GraphReader:
    """What a Graph Transformer says of its graphs."""

    name = "graphs"
    explains = ("nodes",)

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @property
    def reads(self) -> str:
        """What the model's graphs are made from: "smiles", "superpixels", or nothing that it says."""
        return str(config_value(self.model, "reads", ""))

    def read(self, given: object, max_length: int | None = None) -> Graph:
        if max_length is not None:
            raise InputError("max_length is for texts; a graph is read whole")
        return self._fitting(self._graph(given))

    def _graph(self, given: Any) -> Graph:
        """A graph as it is, or from what it can be made of."""
        if isinstance(given, Graph):
            return given
        if isinstance(given, str) and self.reads != "superpixels":
            return from_smiles(given)
        if isinstance(given, str | os.PathLike | Image.Image):
            name = "" if isinstance(given, Image.Image) else os.path.basename(os.fsdecode(given))
            return replace(superpixels(np.asarray(opened_picture(given).convert("L")) / 255), title=name)
        if hasattr(given, "edge_index"):
            return from_pyg(given)
        if hasattr(given, "nodes") and hasattr(given, "edges"):
            return from_networkx(given)
        if hasattr(given, "shape") and len(given.shape) == 2:
            return superpixels(given)
        raise InputError(
            "a graph is a relprop.graph.Graph, a SMILES, a networkx graph, PyTorch Geometric data or a picture, "
            f"got {type(given).__name__}"
        )

    def _fitting(self, graph: Graph) -> Graph:
        categories = config_value(self.model, "categories", ())
        expected, whole = len(categories) or config_value(self.model, "features", 0), bool(categories)
        if expected and (graph.nodes.shape[1] != expected or (whole and graph.nodes.dtype.kind not in "iub")):
            kind = "whole-number" if whole else "float"
            raise InputError(
                f"the model reads nodes of {expected} {kind} features, the graph's have {graph.nodes.shape[1]} of "
                f"{graph.nodes.dtype}"
            )
        counts = np.array(categories)
        if whole and ((graph.nodes < 0) | (graph.nodes >= counts)).any():
            node, feature = np.argwhere((graph.nodes < 0) | (graph.nodes >= counts))[0]
            raise InputError(
                f"feature {feature} of node {node} is {graph.nodes[node, feature]}, the model knows 0 to "
                f"{counts[feature] - 1}"
            )
        kinds = config_value(self.model, "edge_types", 0)
        if kinds and len(graph.edge_types) and graph.edge_types.max() >= kinds:
            raise InputError(f"an edge is of type {graph.edge_types.max()}, the model knows 0 to {kinds - 1}")
        return graph

    def batches(self, rows: Sequence[Graph], size: int) -> list[list[int]]:
        """Graphs of similar size together."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        return [order[k : k + size] for k in range(0, len(order), size)]

    def inputs(self, rows: Sequence[Graph]) -> dict[str, Tensor]:
        first = next(self.model.parameters())
        return batch(rows, first.device, first.dtype)

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[Graph], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        return given

    def hidden(self, rows: Sequence[Graph], inputs: dict[str, Tensor], replacement: str | int | None = None) -> Nodes:
        """A batch whose nodes metrics can take out; nothing takes their place."""
        return Nodes(inputs)

    def parts(self, row: Graph, found: Attribution, number: int) -> tuple[GraphPart, ...]:
        ((name, every),) = found.parts.items()
        if every.shape[1] < len(row) + 1:
            raise ModelError(
                f'"{found.method}" gives {every.shape[1]} scores for {len(row)} nodes and the virtual node'
            )
        scores = every[number].double().cpu()
        edges = None if found.pairs is None else _between(row, found.pairs[number])
        return (GraphPart(name, row, scores[1 : len(row) + 1].numpy(), scores[0].item(), edges),)


def _between(graph: Graph, pairs: Tensor) -> NDArray[np.float64]:
    """What went along each edge, either way. Unit 0 is the virtual node."""
    a, b = 1 + torch.as_tensor(graph.edges).T
    carried = pairs.double().cpu()
    return np.asarray((carried[a, b] + carried[b, a]).numpy())
