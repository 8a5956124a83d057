"""Tiny random Graphormers and graphs for tests."""

import numpy as np
import torch

from relprop.graph import Graph, Graphormer, Settings
from relprop.graph.molecules import BONDS, CATEGORIES

SMALL = {"width": 16, "heads": 2, "feed_forward": 24, "dropout": 0.0}
MOLECULES = Settings(("no", "yes"), categories=CATEGORIES, edge_types=BONDS, reads="smiles", **SMALL)
POINTS = Settings(tuple("abc"), features=3, waves=2, longest=6, reads="superpixels", **SMALL)
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"


def graphormer(settings: Settings, *, zero_biases: bool = False, dtype: torch.dtype = torch.float64) -> Graphormer:
    """Weights large enough that a wrong rule shows."""
    torch.manual_seed(7)
    model = Graphormer(settings).to(dtype).eval()
    for name, parameter in model.named_parameters():
        bias = parameter.dim() == 1 and name.endswith("bias")
        scale = "norm" in name and not bias
        torch.nn.init.normal_(parameter, mean=float(scale), std=0.3)
        if bias and zero_biases:
            torch.nn.init.zeros_(parameter)
    return model


def points(count: int, links: list[tuple[int, int]], seed: int = 0) -> Graph:
    """A graph of float features with the given links."""
    return Graph.of(np.random.default_rng(seed).normal(size=(count, 3)), links)
