"""Graphormer (Ying et al. 2021): a Transformer with attention biases for the distance and the edges between nodes.

As in the paper, a node's first hidden state is its features' embedding plus one of its degree (centrality, Eq. 5);
attention gets a bias by shortest-path distance (spatial encoding, Eq. 6) and one by the edges on the shortest path
(edge encoding, Eq. 7); blocks are pre-norm (Eq. 8 and 9); the head reads a virtual node, which has a distance of its
own to all others. Two differences, so that another numbering of the nodes changes only the order of the scores and no
graph is too large: where several paths are shortest their edges are averaged; edges are encoded between nodes at most
`hops` apart, and all distances beyond `longest` share one bias, also between nodes without a path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from relprop.errors import InputError, ModelError
from relprop.graph.paths import edge_shares_on_paths, shortest_paths

KIND = "Graphormer"  # what a folder's config.json calls the model


@dataclass(frozen=True)
class Settings:
    """The shape of a Graphormer. Nodes have whole-number features (`categories` of each) or `features` floats."""

    labels: tuple[str, ...]
    categories: tuple[int, ...] = ()
    features: int = 0
    waves: int = 0  # floats are also given as sine and cosine of so many frequencies
    edge_types: int = 0
    width: int = 128
    heads: int = 8
    layers: int = 2
    feed_forward: int = 128
    degrees: int = 16  # all larger degrees share one embedding
    longest: int = 20  # all larger distances share one bias
    hops: int = 5  # the longest path whose edges are encoded
    dropout: float = 0.1
    reads: str = ""  # "smiles" or "superpixels": what the graphs come from

    def __post_init__(self) -> None:
        if bool(self.categories) == bool(self.features):
            raise InputError("a Graphormer's nodes have either `categories` or `features`")
        if self.width % self.heads:
            raise InputError(f"width {self.width} does not divide into {self.heads} heads")

    @property
    def id2label(self) -> dict[int, str]:
        return dict(enumerate(self.labels))


class Graphormer(nn.Module):
    """`model(nodes, adjacency, attention_mask)` returns logits [batch, classes].

    `nodes` [batch, n, features]; `adjacency` [batch, n, n], 0 without an edge, else 1 + its type; `attention_mask`
    [batch, 1 + n], 0 for padding, its first column for the virtual node.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.config = settings
        self.embedding = NodeEmbedding(settings)
        self.bias = StructureBias(settings)
        self.blocks = nn.ModuleList(GraphormerBlock(settings) for _ in range(settings.layers))
        self.norm = nn.LayerNorm(settings.width)
        self.head = nn.Linear(settings.width, len(settings.labels))

    def forward(self, nodes: Tensor, adjacency: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.embedding(nodes, adjacency)
        bias = self.bias(adjacency, x.dtype)
        if attention_mask is not None:
            bias = bias.masked_fill((attention_mask == 0)[:, None, None, :], -torch.inf)
        for block in self.blocks:
            x = block(x, bias)
        logits: Tensor = self.head(self.norm(x[:, 0]))
        return logits

    def save(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors, which `Graphormer.load` and `Explainer(folder)` read."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        save_file({name: value.contiguous() for name, value in self.state_dict().items()}, path / "model.safetensors")
        config = {"architectures": [KIND], **asdict(self.config)}
        (path / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Graphormer:
        """A saved model, in eval mode and single precision."""
        path = Path(folder)
        try:
            config: Mapping[str, Any] = json.loads((path / "config.json").read_text(encoding="utf-8"))
            given: dict[str, Any] = {
                name: tuple(v) if isinstance(v, list) else v for name, v in config.items() if name != "architectures"
            }
            with torch.device("meta"):
                model = cls(Settings(**given))
            stored = {name: value.float() for name, value in load_file(path / "model.safetensors").items()}
            model.load_state_dict(stored, assign=True)
        except (
            OSError,
            ValueError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RuntimeError,
            SafetensorError,
            InputError,
        ) as error:
            lines = [line.strip() for line in str(error).splitlines()] or [type(error).__name__]
            reason = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
            raise ModelError(f'"{folder}" is no Graphormer that can be loaded: {reason:.300}') from error
        return model.eval()


class NodeEmbedding(nn.Module):
    """Embeddings of every node's features and degree, after that of the virtual node: [batch, 1 + n, width]."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.categories = nn.ModuleList(nn.Embedding(count, settings.width) for count in settings.categories)
        self.waves = settings.waves
        self.features = (
            nn.Linear(settings.features * (1 + 2 * settings.waves), settings.width) if settings.features else None
        )
        self.degree = nn.Embedding(settings.degrees + 1, settings.width)
        self.counts = settings.categories
        self.virtual = nn.Parameter(torch.zeros(settings.width))
        for table in (*self.categories, self.degree):
            nn.init.normal_(table.weight, std=0.02)
        nn.init.normal_(self.virtual, std=0.02)

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        degree = (adjacency > 0).sum(-1).clamp_max(self.degree.num_embeddings - 1)
        x = self.degree(degree)
        if self.features is not None:
            x = x + self.features(self._with_waves(nodes.to(x.dtype)))
        for column, (table, count) in enumerate(zip(self.categories, self.counts, strict=True)):
            x = x + table(nodes[..., column].clamp(0, count - 1))
        return torch.cat([self.virtual.expand(len(x), 1, -1), x], 1)

    def _with_waves(self, values: Tensor) -> Tensor:
        """The features, and sine and cosine of their multiples."""
        turns = [values * (torch.pi * 2**k) for k in range(self.waves)]
        return torch.cat([values, *(wave(turn) for turn in turns for wave in (torch.sin, torch.cos))], -1)


class StructureBias(nn.Module):
    """The bias of attention before its softmax, by distance and edges between nodes: [batch, heads, 1 + n, 1 + n]."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.longest, self.hops, self.edge_types = settings.longest, settings.hops, settings.edge_types
        self.distance = nn.Embedding(settings.longest + 2, settings.heads)
        self.virtual = nn.Parameter(torch.zeros(settings.heads))  # for all pairs with the virtual node
        nn.init.normal_(self.distance.weight, std=0.02)
        shape = settings.hops, settings.edge_types, settings.heads
        self.edges = nn.Parameter(torch.randn(shape) * 0.02) if settings.edge_types else None

    def forward(self, adjacency: Tensor, dtype: torch.dtype) -> Tensor:
        distance, count = shortest_paths((adjacency > 0).to(dtype), self.longest)
        bias = self.distance(distance)
        if self.edges is not None:
            kinds = torch.stack([adjacency == 1 + kind for kind in range(self.edge_types)], 1).to(dtype)
            shares = edge_shares_on_paths(kinds, distance, count, self.hops)
            steps = distance.clamp(1, self.hops)[..., None]
            bias = bias + torch.einsum("bijkt,kth->bijh", shares, self.edges) / steps
        whole = self.virtual.expand(len(bias), bias.shape[1] + 1, bias.shape[2] + 1, -1).clone()
        whole[:, 1:, 1:] = bias
        return whole.permute(0, 3, 1, 2)


class GraphormerBlock(nn.Module):
    """Pre-norm attention and feed-forward, Eq. 8 and 9."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.heads, self.dropout = settings.heads, settings.dropout
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.inner, self.outer = nn.Linear(width, settings.feed_forward), nn.Linear(settings.feed_forward, width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        normed = self.attention_norm(x)
        query, key, value = (
            part(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        x = x + self._drop(self.out(mixed.transpose(1, 2).flatten(2)))
        return x + self._drop(self.outer(F.gelu(self.inner(self.feed_forward_norm(x)))))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)
