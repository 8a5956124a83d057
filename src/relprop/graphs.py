"""Graphs for an explainer: molecules, pictures of superpixels, or any graph, batched by size."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from relprop.domains.image import opened
from relprop.errors import InputError, ModelError
from relprop.graph.graph import Graph, batch, from_networkx, from_pyg
from relprop.graph.molecules import from_smiles
from relprop.graph.superpixels import superpixels
from relprop.graph_explanation import GraphExplanation
from relprop.metrics.nodes import Nodes
from relprop.texts import class_name, likeliest, plain_ledger
from relprop.types import Attribution


def reads_graphs(model: Any) -> bool:
    """Does the model take nodes and the links between them?"""
    return {"nodes", "adjacency"} <= set(inspect.signature(model.forward).parameters)


class Graphs:
    """A Graph Transformer."""

    name = "graphs"

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def reads(self) -> str:
        """What the model's graphs are made from: "smiles", "superpixels", or nothing that it says."""
        return str(getattr(getattr(self.model, "config", None), "reads", ""))

    def encode(self, given: Sequence[Any], max_length: int | None = None) -> list[Graph]:
        if max_length is not None:
            raise InputError("max_length is for texts; a graph is read whole")
        rows = []
        for number, one in enumerate(given):
            try:
                rows.append(self._fitting(self._graph(one)))
            except InputError as error:
                raise InputError(f"graph {number} of the list: {error}" if len(given) > 1 else str(error)) from None
        return rows

    def _graph(self, given: Any) -> Graph:
        """A graph as it is, or from what it can be made of."""
        if isinstance(given, Graph):
            return given
        if isinstance(given, str) and self.reads != "superpixels":
            return from_smiles(given)
        if isinstance(given, str | os.PathLike | Image.Image):
            name = "" if isinstance(given, Image.Image) else os.path.basename(os.fsdecode(given))
            return replace(superpixels(np.asarray(opened(given).convert("L")) / 255), title=name)
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
        config = getattr(self.model, "config", None)
        expected = len(getattr(config, "categories", ())) or getattr(config, "features", 0)
        whole = bool(getattr(config, "categories", ()))
        if expected and (graph.nodes.shape[1] != expected or (whole and graph.nodes.dtype.kind not in "iub")):
            kind = "whole-number" if whole else "float"
            raise InputError(
                f"the model reads nodes of {expected} {kind} features, the graph's have {graph.nodes.shape[1]} of "
                f"{graph.nodes.dtype}"
            )
        return graph

    def prepared(
        self, given: Sequence[Any], targets: Sequence[Any], max_length: int | None = None
    ) -> tuple[list[Graph], list[Any]]:
        return self.encode(given, max_length), list(targets)

    def batches(self, rows: Sequence[Graph], size: int) -> list[list[int]]:
        """Graphs of similar size together."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        return [order[k : k + size] for k in range(0, len(order), size)]

    def inputs(self, rows: Sequence[Graph]) -> dict[str, Tensor]:
        first = next(self.model.parameters())
        return batch(rows, first.device, first.dtype)

    def options(
        self, known: Mapping[str, Any], given: dict[str, Any], rows: Sequence[Graph], inputs: dict[str, Tensor]
    ) -> dict[str, Any]:
        return given

    def tokens(self, rows: Sequence[Graph], inputs: dict[str, Tensor], replacement: Any = None) -> Nodes:
        """A batch whose nodes metrics can take out; nothing takes their place."""
        return Nodes(inputs)

    def target(self, target: Any) -> Any:
        return target

    def explanation(self, given: Any, row: Graph, found: Attribution, number: int) -> GraphExplanation:
        if found.scores.shape[1] < len(row) + 1:
            raise ModelError(
                f'"{found.method}" gives {found.scores.shape[1]} scores for {len(row)} nodes and the virtual node'
            )
        scores = found.scores[number].double().cpu()
        value = found.value[number].item()
        best, probability = likeliest(self.model, found, number)
        baseline = None if found.baseline is None else found.baseline[number].item()
        total = scores[: len(row) + 1].sum().item()
        return GraphExplanation(
            graph=row,
            scores=scores[1 : len(row) + 1].numpy(),
            method=found.method,
            target=found.target[number],
            value=value,
            rest=scores[0].item(),
            prediction="" if best is None else class_name(self.model, best),
            probability=probability,
            ledger=found.ledger[number] if found.ledger else plain_ledger(found.method, value, total, baseline),
            baseline=baseline,
            edges=None if found.pairs is None else _between(row, found.pairs[number]),
        )


def _between(graph: Graph, pairs: Tensor) -> NDArray[np.float64]:
    """What went along each edge, either way. Unit 0 is the virtual node."""
    a, b = 1 + torch.as_tensor(graph.edges).T
    carried = pairs.double().cpu()
    return np.asarray((carried[a, b] + carried[b, a]).numpy())
