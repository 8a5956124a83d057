"""What the graph models and their data are like, where the numbers of the suite ali22-graphs need a reason.

    python benchmarks/graph_facts.py molecules --data ../shared/data [--model FOLDER]
    python benchmarks/graph_facts.py superpixels --data ../shared/data [--model FOLDER]

Of molecules: are inhibitors larger, which of the test's have a stereoisomer that was learned from, what does the model
say of half a molecule, which class do the atoms speak for, and how do methods do on each? Of digits: how do orders do
that know nothing of the model, or that come from its gradient by the three raw features, and what does the sign of
LRP(AH+LN) cost?
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rdkit import Chem
from torch import Tensor
from torch.nn import functional as F

from relprop import Explainer, attribute
from relprop.bench.catalog import shipped_catalog
from relprop.bench.suite_plan import sample_indices
from relprop.metrics import Nodes, au_mse, auac, relevance_mass

METHODS = ("random", "attention_last", "rollout", "gae", "gradient_x_input", "lrp_ln", "lrp_ah_ln", "alti", "occlusion")
SMALL = 20  # atoms: a molecule of fewer is small
INK = 127  # pixels above this are of the digit, as in the suite
DARK = 0.1  # brightness of an empty region, at most


def molecules(explainer: Explainer, data: Path) -> Iterator[str]:
    train, test = (shipped_catalog().dataset("bace").examples(part, data) for part in ("train", "test"))
    others, inhibitors = (np.array([_atoms(one.text) for one in train if one.label == label]) for label in (0, 1))
    yield f"atoms of an inhibitor that was learned from: {inhibitors.mean():.1f}; of another: {others.mean():.1f}"
    few = [int((sizes < SMALL).sum()) for sizes in (others, inhibitors)]
    yield f"molecules of fewer than {SMALL} atoms that were learned from: {sum(few)}; no inhibitors: {few[0]}"
    learned = {_flat(one.text) for one in train}
    yield f"test molecules with a stereoisomer that was learned from: {sum(_flat(one.text) in learned for one in test)}"
    by_class = {name: [one.text for one in test if one.label == label] for label, name in explainer.labels.items()}
    nodes = Nodes(explainer.inputs(by_class["inhibitor"]))
    torch.manual_seed(0)
    half = nodes.hideable & (torch.rand(nodes.hideable.shape) < 0.5)
    for left, hidden in (("all", ~nodes.real), ("half, by chance,", half), ("none", nodes.hideable)):
        yield f"p of the test's inhibitors with {left} of their atoms: {_certainty(explainer.model, nodes, hidden):.3f}"
    for name, some in by_class.items():
        explained = explainer(some, target=name, method="lrp_ah_ln")
        atoms = np.concatenate([one.scores for one in explained])
        against = -atoms[atoms < 0].sum() / np.abs(atoms).sum()
        yield f"{name}: {100 * against:.0f} % of what LRP(AH+LN) gives to atoms, in absolute terms, is against it"
        sums = [np.mean([one.scores.sum() for one in explained]), np.mean([one.part.rest for one in explained])]
        yield f"{name}: LRP(AH+LN) has {sums[0]:+.2f} on the atoms and {sums[1]:+.2f} on the virtual node"
        metrics = ["auac", "au_mse"]
        found = explainer.evaluate(some, [name] * len(some), methods=METHODS, metrics=metrics, replacement=None)
        yield f"{name}, {len(some)} molecules:\n{found}"


def superpixels(explainer: Explainer, data: Path, digits: int) -> Iterator[str]:
    every = shipped_catalog().dataset("mnist").examples("test", data)
    some = [every[i] for i in sample_indices(len(every), digits, 0)]
    graphs: list[Any] = [explainer.reader.read(one.text) for one in some]
    inputs = explainer.inputs(graphs)
    labels = [one.label for one in some]
    ink = [np.asarray(one.text) > INK for one in some]
    by_feature = inputs["nodes"] * _gradient(explainer.model, inputs, labels)
    bright = inputs["nodes"][..., 0]
    lrp = attribute(explainer.model, inputs, torch.tensor(labels), "lrp_ah_ln").scores[:, 1:].detach()
    ink_first = lrp + 2 * lrp.abs().amax(1, keepdim=True) * (bright > DARK)
    regions = bright[inputs["attention_mask"][:, 1:] > 0] > DARK
    against = (lrp < 0) & (bright > DARK)
    yield f"regions of a digit: {len(regions) / len(some):.1f}, with ink {regions.sum() / len(some):.1f}"
    yield f"LRP(AH+LN) is negative on {100 * against.sum() / regions.sum():.0f} % of those with ink"
    orders = {
        "brightness, whatever the model says": bright,
        "gradient x the three features": by_feature.sum(-1),
        "gradient x brightness": by_feature[..., 0],
        "LRP(AH+LN)": lrp,
    }
    rearranged = {
        "LRP(AH+LN), without its sign": lrp.abs(),
        "LRP(AH+LN), regions with ink before all others": ink_first,
    }
    yield f"| {len(some)} test digits | AUAC | AU-MSE | on the digit |\n|---|---|---|---|"
    for name, scores in (orders | rearranged).items():
        padded = F.pad(scores, (1, 0))  # the virtual node has none
        shown, pruned = (each(explainer.model, Nodes(inputs), padded, labels).scores() for each in (auac, au_mse))
        share = f"{_on_ink(scores, graphs, ink):.1f} %" if name in orders else ""
        yield f"| {name} | {shown.mean():.3f} | {pruned.mean():.1f} | {share} |"


def _atoms(smiles: Any) -> int:
    return int(Chem.MolFromSmiles(smiles).GetNumAtoms())


def _flat(smiles: Any) -> str:
    """A molecule's name without its stereochemistry."""
    return str(Chem.MolToSmiles(Chem.MolFromSmiles(smiles), isomericSmiles=False))


@torch.no_grad()
def _certainty(model: torch.nn.Module, nodes: Nodes, hidden: Tensor) -> float:
    """The mean probability of class 1."""
    return float(model(**nodes.hide(torch.arange(len(nodes)), hidden)).softmax(-1)[:, 1].mean())


def _on_ink(scores: Tensor, graphs: list[Any], ink: list[Any]) -> float:
    """In percent, as the suite has it."""
    pairs = zip(scores, graphs, ink, strict=True)
    return 100 * float(
        np.nanmean([relevance_mass(one[: len(graph.nodes)], graph.source, at) for one, graph, at in pairs])
    )


def _gradient(model: torch.nn.Module, inputs: dict[str, Tensor], labels: list[int]) -> Tensor:
    nodes = inputs["nodes"].clone().requires_grad_()
    logits = model(**{**inputs, "nodes": nodes})
    return torch.autograd.grad(logits[range(len(labels)), labels].sum(), nodes)[0]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["molecules", "superpixels"])
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds molecules/ and mnist/")
    parser.add_argument("--model", help="a folder; default: the embedded model")
    parser.add_argument("--digits", type=int, default=500, help="of the test's, drawn as the suite does")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    explainer = Explainer(given.model or given.which)
    facts = (
        molecules(explainer, given.data)
        if given.which == "molecules"
        else superpixels(explainer, given.data, given.digits)
    )
    for line in facts:
        print(line, flush=True)


if __name__ == "__main__":
    main()
