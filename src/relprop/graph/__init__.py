"""Graphs, and Graphormer (Ying et al. 2021), a Graph Transformer, as a plain PyTorch module."""

from relprop.graph.graph import Graph, from_networkx, from_pyg
from relprop.graph.graphormer import Graphormer, Settings
from relprop.graph.molecules import from_smiles
from relprop.graph.superpixels import superpixels

__all__ = ["Graph", "Graphormer", "Settings", "from_networkx", "from_pyg", "from_smiles", "superpixels"]
