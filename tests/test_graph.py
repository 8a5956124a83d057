"""Graphs and the Graphormer: what they are built from, and what the model computes, against slow re-implementations."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from torch import Tensor

from graph_models import ASPIRIN, MOLECULES, POINTS, graphormer, points
from relprop.errors import InputError, ModelError
from relprop.graph import Graph, Graphormer, Settings, from_networkx, from_pyg, from_smiles, superpixels
from relprop.graph.graph import batch
from relprop.loading import load

RING = [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)]  # two shortest ways from 0 to 2, one tail
GRAPHS = {
    "ring": points(5, RING),
    "isolated node": points(4, [(0, 1), (1, 2)]),
    "single node": points(1, []),
    "no edges": points(3, []),
    "long path": points(12, list(pairwise(range(12)))),
}


# Graphs.


def test_arrays_are_checked_and_edges_count_once() -> None:
    graph = Graph.of([5, 6, 7], [(1, 0), (0, 1), (2, 1)], [3, 3, 0], names="abc")
    assert graph.nodes.shape == (3, 1)
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.adjacency().tolist() == [[0, 4, 0], [4, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nodes": []}, "at least one node"),
        ({"nodes": [[np.nan]]}, "not a finite number"),
        ({"nodes": [1, 2], "edges": [(0, 2)]}, "the graph has 0 to 1"),
        ({"nodes": [1, 2], "edges": [(1, 1)]}, "edge to itself"),
        ({"nodes": [1, 2], "edges": [(0, 1)], "edge_types": [0, 1]}, "each of the 1 edges"),
        ({"nodes": [1, 2], "names": ["a"]}, "as many names"),
        ({"nodes": ["a", "b"]}, "nodes are numbers"),
    ],
)
def test_what_is_no_graph_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Graph.of(**given)


def test_a_subgraph_keeps_the_edges_between() -> None:
    part = GRAPHS["ring"].subgraph([3, 0, 1])
    assert sorted(map(sorted, part.edges.tolist())) == [[0, 1], [1, 2]]
    assert np.array_equal(part.nodes, GRAPHS["ring"].nodes[[3, 0, 1]])
    assert part.names == ("3", "0", "1")
    assert from_smiles("CCO").subgraph([2, 1, 0]).source is None  # a drawing of it would colour other atoms


def test_a_molecule() -> None:
    """Atoms, bonds and their kinds: ethanol's double-bonded cousin, acetaldehyde."""
    graph = from_smiles("CC=O")
    assert graph.names == ("C0", "C1", "O2")
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.edge_types.tolist() == [0, 1]
    assert graph.nodes[:, 3].tolist() == [3, 1, 0]  # hydrogens
    assert from_smiles("c1ccccc1").edge_types.tolist() == [3] * 6
    assert len(from_smiles("[Na+].[Cl-]").edges) == 0


@pytest.mark.parametrize(("smiles", "why"), [("C(", "grammar"), ("C(C)(C)(C)(C)C", "valence"), ("", "empty")])
def test_an_invalid_smiles_is_refused(smiles: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        from_smiles(smiles)


def test_a_graph_of_networkx() -> None:
    given = nx.Graph()
    given.add_node("a", x=[1.0, 2.0], pos=(0, 0))
    given.add_node("b", x=[3.0, 4.0], pos=(1, 0))
    given.add_edge("a", "b", kind="single")
    graph = from_networkx(given, edge_type="kind")
    assert (graph.names, graph.nodes.tolist(), graph.edges.tolist()) == (("a", "b"), [[1, 2], [3, 4]], [[0, 1]])
    assert graph.places is not None
    with pytest.raises(InputError, match='no attribute "charge"'):
        from_networkx(given, features=["x", "charge"])


def test_a_graph_of_pytorch_geometric() -> None:
    """Their own type, both directions of an edge, a loop, types and places."""
    data = pytest.importorskip("torch_geometric.data")
    edges = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])
    given = data.Data(x=torch.tensor([[1], [2], [3]]), edge_index=edges, edge_attr=torch.tensor([0, 0, 2, 2, 1]))
    graph = from_pyg(given)
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.edge_types.tolist() == [0, 2]
    with pytest.raises(InputError, match="one whole number per edge"):
        from_pyg(data.Data(x=torch.ones(3, 1), edge_index=edges, edge_attr=torch.ones(5, 2)))
    with pytest.raises(InputError, match="no node features"):
        from_pyg(data.Data(edge_index=edges))


def test_superpixels_cover_the_picture() -> None:
    """A bright square: nodes say brightness and centre of their regions, neighbours are linked."""
    picture = np.zeros((28, 28))
    picture[8:20, 8:20] = 255
    graph = superpixels(picture)
    regions = graph.source
    assert len(graph) == regions.max() + 1 <= 75
    for node in range(len(graph)):
        rows, columns = np.nonzero(regions == node)
        assert graph.nodes[node] == pytest.approx(
            [picture[rows, columns].mean() / 255, 2 * columns.mean() / 27 - 1, 2 * rows.mean() / 27 - 1], abs=1e-6
        )
    touching = {tuple(sorted(p)) for a, b in ((regions[:-1], regions[1:]), (regions[:, :-1], regions[:, 1:]))
                for p in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True) if p[0] != p[1]}  # fmt: skip
    assert {tuple(edge) for edge in graph.edges.tolist()} == touching


# What the Graphormer computes.


def slow_bias(model: Graphormer, graph: Graph) -> Tensor:
    """The bias of eq. 6 and 7 pair by pair, all shortest paths listed by networkx."""
    part, settings = model.bias, model.config
    linked: Any = nx.Graph()
    linked.add_nodes_from(range(len(graph)))
    for (a, b), kind in zip(graph.edges.tolist(), graph.edge_types.tolist(), strict=True):
        linked.add_edge(a, b, kind=kind)
    bias = part.virtual.detach().repeat(len(graph) + 1, len(graph) + 1, 1)
    for i in range(len(graph)):
        for j in range(len(graph)):
            ways = list(nx.all_shortest_paths(linked, i, j)) if nx.has_path(linked, i, j) else []
            steps = len(ways[0]) - 1 if ways else settings.longest + 1
            entry = part.distance.weight[min(steps, settings.longest + 1)].detach().clone()
            if part.edges is not None and 0 < steps <= settings.hops:
                each = [
                    sum(part.edges[k, linked.edges[a, b]["kind"]] for k, (a, b) in enumerate(pairwise(way))) / steps
                    for way in ways
                ]
                entry += torch.stack(each).mean(0).detach()
            bias[1 + i, 1 + j] = entry
    return bias.permute(2, 0, 1)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_bias_is_the_papers(name: str) -> None:
    model = graphormer(POINTS)
    graph = GRAPHS[name]
    found = model.bias(torch.as_tensor(graph.adjacency())[None], torch.float64)[0]
    assert torch.allclose(found, slow_bias(model, graph), atol=1e-12)


@pytest.mark.parametrize("smiles", ["CC=O", ASPIRIN, "C1CC2CCC1C2", "[Na+].CC(=O)[O-]", "N"])
def test_the_bias_of_bonds_is_the_papers(smiles: str) -> None:
    """Edge encoding too, with rings in which several ways are shortest."""
    model = graphormer(MOLECULES)
    graph = from_smiles(smiles)
    found = model.bias(torch.as_tensor(graph.adjacency())[None], torch.float64)[0]
    assert torch.allclose(found, slow_bias(model, graph), atol=1e-12)


def slow_logits(model: Graphormer, graph: Graph) -> Tensor:
    """Head by head and node by node (eq. 3 to 5, 8 and 9)."""
    settings = model.config
    degrees = (graph.adjacency() > 0).sum(1)
    rows = [model.embedding.virtual]
    for features, degree in zip(torch.as_tensor(graph.nodes), degrees, strict=True):
        row = model.embedding.degree.weight[min(degree, settings.degrees)]
        for column, table in enumerate(model.embedding.categories):
            row = row + table.weight[features[column]]
        rows.append(row)
    x, bias = torch.stack(rows), slow_bias(model, graph)
    for block in model.blocks:
        normed = block.attention_norm(x)
        width = settings.width // settings.heads
        heads = []
        for h in range(settings.heads):
            mine = slice(h * width, (h + 1) * width)
            q, k, v = (layer(normed)[:, mine] for layer in (block.query, block.key, block.value))
            heads.append(torch.softmax(q @ k.T / width**0.5 + bias[h], -1) @ v)
        x = x + block.out(torch.cat(heads, -1))
        x = x + block.outer(torch.nn.functional.gelu(block.inner(block.feed_forward_norm(x))))
    return model.head(model.norm(x[0]))


@torch.no_grad()
@pytest.mark.parametrize("smiles", [ASPIRIN, "C1CC2CCC1C2", "C"])
def test_the_output_is_the_papers(smiles: str) -> None:
    model = graphormer(MOLECULES)
    graph = from_smiles(smiles)
    assert torch.allclose(model(**batch([graph]))[0], slow_logits(model, graph), atol=1e-10)


@torch.no_grad()
def test_padding_and_numbering_change_nothing() -> None:
    model = graphormer(POINTS)
    together = model(**batch(list(GRAPHS.values()), dtype=torch.float64))
    for row, graph in zip(together, GRAPHS.values(), strict=True):
        other = graph.subgraph(np.random.default_rng(1).permutation(len(graph)))
        for one in (graph, other):
            assert torch.allclose(model(**batch([one], dtype=torch.float64))[0], row, atol=1e-12)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(InputError, match="either `categories` or `features`"):
        Settings(("a",))
    with pytest.raises(InputError, match="does not divide"):
        Settings(("a",), features=2, width=10, heads=4)


def test_a_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model = graphormer(POINTS, dtype=torch.float32)
    model.save(tmp_path)
    found, tokenizer = load(tmp_path)
    assert isinstance(found, Graphormer)
    assert (found.config, tokenizer, found.training) == (model.config, None, False)
    inputs = batch([GRAPHS["ring"]])
    assert torch.equal(found(**inputs), model(**inputs))
    (tmp_path / "config.json").write_text('{"architectures": ["Graphormer"], "labels": ["a"], "features": 2}')
    with pytest.raises(ModelError, match="no Graphormer that can be loaded"):
        load(tmp_path)
