"""Graphs explained: the same engine, unmodified. Books that close, batches, numbering, odd graphs, edges, metrics."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from graph_models import ASPIRIN, MOLECULES, POINTS, graphormer, points
from models import named
from relprop import Explainer, attribute
from relprop.errors import InputError
from relprop.graph import Graph, Graphormer, from_smiles
from relprop.graph.graph import batch
from relprop.metrics import Nodes
from relprop.registry import METHODS

SALT = "CC(=O)[O-].[Na+]"
ODD = {"a single node": points(1, []), "an isolated node": points(4, [(0, 1), (1, 2)]), "no edges": points(3, [])}
SOME = [points(6, [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5)], seed=1), *ODD.values()]
EVERY = [one.name for one in METHODS]
SAMPLED = ("random", "smoothgrad", "shapley")  # numbers drawn for the nodes in their order
CONSERVATIVE = ("lrp_conservative", "lrp_carried")
PAIRS = [one.name for one in METHODS if "pairs" in one.options]


@pytest.fixture(scope="module")
def molecules() -> Explainer:
    return Explainer(graphormer(MOLECULES))


@pytest.fixture(scope="module")
def shapes() -> Explainer:
    return Explainer(graphormer(POINTS))


def scored(explainer: Explainer, given: Any, method: str) -> Any:
    few = {"max_evals": 31} if method == "shapley" else {}  # one order of aspirin's atoms, and more of smaller graphs
    return explainer(given, method=method, target=1, ledger=False, **few)


# Conservation.


@pytest.mark.parametrize("method", CONSERVATIVE)
@pytest.mark.parametrize(("settings", "given"), [(MOLECULES, ASPIRIN), (MOLECULES, SALT), (POINTS, SOME[0])], ids=named)
def test_without_biases_the_scores_sum_to_the_output(settings: Any, given: Any, method: str) -> None:
    found = Explainer(graphormer(settings, zero_biases=True))(given, method=method, target=1)
    assert found.accounted == pytest.approx(found.value, abs=1e-6)
    assert abs(found.value) > 1e-3


def test_ali22_loses_relevance_at_the_activation_alone() -> None:
    """AH+LN treats attention and norms; what GELU takes the ledger names, and nothing else is missing."""
    found = Explainer(graphormer(MOLECULES, zero_biases=True))(ASPIRIN, method="lrp_ah_ln", target=1)
    lost = {entry.op for entry in found.ledger.entries if entry.kind == "unexplained" and abs(entry.value) > 1e-9}
    assert lost == {"gelu"}
    total = found.ledger.inputs + found.ledger.biases + found.ledger.constants + found.ledger.unexplained
    assert total == pytest.approx(found.value, abs=1e-10)


@pytest.mark.parametrize("given", [ASPIRIN, SALT, "C"])
def test_the_ledger_closes(molecules: Explainer, given: str) -> None:
    found = molecules(given, target=1)
    assert found.ledger.gap < 1e-10
    assert found.ledger.inputs == pytest.approx(found.accounted, abs=1e-10)
    assert abs(found.ledger.biases) > 1e-3


# The same numbers whatever else is in the batch, and however nodes are numbered.


@pytest.mark.parametrize("method", EVERY)
def test_a_batch_gives_what_each_graph_gives_alone(molecules: Explainer, shapes: Explainer, method: str) -> None:
    for explainer, given in ((molecules, [ASPIRIN, "CCO", SALT, "C"]), (shapes, SOME)):
        together = scored(explainer, given, method)
        for one, graph in zip(together, given, strict=True):
            alone = scored(explainer, graph, method)
            assert np.allclose(one.scores, alone.scores, atol=1e-10)
            assert one.part.rest == pytest.approx(alone.part.rest, abs=1e-10)


@pytest.mark.parametrize("method", [name for name in EVERY if name not in SAMPLED])
def test_numbering_nodes_otherwise_moves_their_scores(molecules: Explainer, shapes: Explainer, method: str) -> None:
    for explainer, graph in ((molecules, from_smiles(ASPIRIN)), (shapes, SOME[0])):
        order = np.random.default_rng(3).permutation(len(graph))
        first, other = scored(explainer, graph, method), scored(explainer, graph.subgraph(order), method)
        assert np.abs(first.scores[order] - other.scores).max() < 1e-10
        assert first.part.rest == pytest.approx(other.part.rest, abs=1e-10)


@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize("name", ODD)
def test_odd_graphs_have_a_finite_score_a_node(shapes: Explainer, name: str, method: str) -> None:
    found = scored(shapes, ODD[name], method)
    assert found.scores.shape == (len(ODD[name]),)
    assert np.isfinite(found.scores).all()


def test_an_isolated_node_counts_as_the_model_uses_it(shapes: Explainer) -> None:
    """Attention reaches a node without any edge: its score is not 0, and its distance is "no way"."""
    found = scored(shapes, ODD["an isolated node"], "lrp_conservative")
    assert abs(found.scores[3]) > 1e-6


def test_a_large_molecule() -> None:
    """200 atoms, in single precision: distances beyond the longest share one bias, and the books close."""
    found = Explainer(graphormer(MOLECULES, dtype=torch.float32))("C" * 198 + "N=O")
    assert len(found.scores) == 200
    assert found.ledger.closes()


def test_complete_methods_are_complete(molecules: Explainer) -> None:
    for name in (one.name for one in METHODS if one.complete):
        found = scored(molecules, ASPIRIN, name)
        assert found.accounted == pytest.approx(found.value - found.baseline, abs=2e-3)


# What can be given, and what cannot.


def test_graphs_of_others_are_taken(shapes: Explainer) -> None:
    networkx = pytest.importorskip("networkx")
    given = networkx.Graph([(0, 1), (1, 2)])
    for node in given:
        given.nodes[node]["x"] = SOME[0].nodes[node]
    own = Graph.of(SOME[0].nodes[:3], [(0, 1), (1, 2)])
    assert np.array_equal(shapes(given).scores, shapes(own).scores)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("C(", "no SMILES that rdkit can read"),
        (["CCO", "C("], "graph 1 of the list"),
        (SOME[0], "8 whole-number features"),
        (3.5, "got float"),
    ],
)
def test_what_is_no_molecule_is_told(molecules: Explainer, given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        molecules(given)


def test_other_models_questions_are_declined(molecules: Explainer) -> None:
    with pytest.raises(InputError, match="max_length is for texts"):
        molecules("CCO", max_length=8)
    with pytest.raises(InputError, match="not for models of graphs"):
        molecules("CCO", generate=3)
    with pytest.raises(InputError, match="a model of graphs has none"):
        _ = molecules.heads


def test_any_module_of_nodes_and_adjacency_is_a_graph_model() -> None:
    """A Transformer of one's own over graphs: no class of relprop's is needed."""

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.virtual = torch.nn.Parameter(torch.ones(8))
            self.read = torch.nn.Linear(3, 8)
            layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, activation="relu")
            self.layers = torch.nn.ModuleList([layer])
            self.head = torch.nn.Linear(8, 2)

        def forward(self, nodes: Any, adjacency: Any, attention_mask: Any) -> Any:
            x = torch.cat([self.virtual.expand(len(nodes), 1, -1), self.read(nodes)], 1)
            for layer in self.layers:
                x = layer(x, src_key_padding_mask=attention_mask == 0)
            return self.head(x[:, 0])

    torch.manual_seed(0)
    explainer = Explainer(Own().double().eval())
    found = explainer(SOME[0])
    assert found.ledger.gap < 1e-10
    assert len(found.scores) == 6


# Edges.


@pytest.mark.parametrize("method", PAIRS)
def test_what_goes_along_edges(molecules: Explainer, method: str) -> None:
    """Against the definition: over the blocks, what the read-out's row has above, times the block's own matrix."""
    graph = from_smiles(ASPIRIN)
    found = molecules(graph, method=method, target=1, pairs=True, ledger=False)
    plain = molecules(graph, method=method, target=1, ledger=False)
    assert plain.part.edges is None
    assert np.array_equal(found.scores, plain.scores)
    assert found.part.edges.shape == (len(graph.edges),)
    assert (found.part.edges >= 0).all()
    assert found.part.edges.max() > 0
    carried = attribute(molecules.model, batch([graph]), 1, method, pairs=True).pairs[0]
    for (a, b), score in zip(graph.edges, found.part.edges, strict=True):
        assert score == pytest.approx(float(carried[1 + a, 1 + b] + carried[1 + b, 1 + a]), abs=1e-14)


def test_rollouts_pairs_are_steps_of_its_way(molecules: Explainer) -> None:
    """Row by row from the top: each block hands on what it got, so the last step's columns are the scores."""
    inputs = batch([from_smiles("CCO")])
    first = attribute(molecules.model, inputs, 1, "rollout", pairs=True)
    top = attribute(molecules.model, inputs, 1, "rollout", pairs=True, start_block=1)
    below = first.pairs[0] - top.pairs[0]
    assert torch.allclose(top.pairs[0].sum(0), top.scores[0], atol=1e-12)
    assert torch.allclose(below.sum(1), top.scores[0], atol=1e-12)  # what reached each node above is what it hands on
    assert torch.allclose(below.sum(0), first.scores[0], atol=1e-12)


def test_methods_without_pairs_say_so(molecules: Explainer) -> None:
    with pytest.raises(InputError, match="pairs"):
        molecules("CCO", method="lrp_ah_ln", pairs=True)


# Metrics take nodes out.


@torch.no_grad()
def test_a_hidden_node_is_gone_with_its_edges() -> None:
    """Hiding is the same as building the graph without the node, the others' distances included."""
    model = graphormer(POINTS)
    nodes = Nodes(batch(SOME, dtype=torch.float64))
    hidden = torch.zeros(2, 7, dtype=torch.bool)
    hidden[0, 1 + 1] = hidden[0, 1 + 4] = True  # a ring's corner and one end of a pair
    hidden[1, 1 + 0] = True
    found = model(**nodes.hide(torch.tensor([0, 2]), hidden))
    for row, graph, kept in zip(found, (SOME[0], SOME[2]), ([0, 2, 3, 5], [1, 2, 3]), strict=True):
        assert torch.allclose(row, model(**batch([graph.subgraph(kept)], dtype=torch.float64))[0], atol=1e-12)


@torch.no_grad()
def test_all_nodes_hidden_leave_the_virtual_one() -> None:
    model = graphormer(POINTS)
    nodes = Nodes(batch(SOME[:2], dtype=torch.float64))
    rows = model(**nodes.hide(torch.tensor([0, 1]), torch.ones(2, 7, dtype=torch.bool)))
    assert torch.allclose(rows[0], rows[1], atol=1e-12)
    assert rows.isfinite().all()


def test_methods_are_compared_on_graphs(molecules: Explainer) -> None:
    """AUAC against a loop: nodes return one by one in the order of their scores."""
    found = molecules.evaluate([ASPIRIN, "CCO"], [1, 1], methods=["lrp_ah_ln", "random"], metrics=["auac"])
    assert "lrp_ah_ln" in str(found)
    graph = from_smiles("CCO")
    order = np.argsort(-molecules(graph, method="lrp_ah_ln", target=1, ledger=False).scores, kind="stable")
    model: Graphormer = molecules.model
    with torch.no_grad():
        nothing = model(**Nodes(batch([graph])).hide(torch.tensor([0]), torch.ones(1, 4, dtype=torch.bool)))
        steps = [nothing, *(model(**batch([graph.subgraph(np.sort(order[:k]))])) for k in range(1, 4))]
    probabilities = [row.softmax(-1)[0, 1].item() for row in steps]
    curve = found.curves["lrp_ah_ln"]["auac"]
    kept = [math.ceil(fraction * 3 - 1e-9) for fraction in curve.fractions]
    assert curve.values[1] == pytest.approx([probabilities[count] for count in kept], abs=1e-10)
