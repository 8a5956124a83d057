"""A list of molecules split into train, validation and test: 80, 10 and 10 %, the same every time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import torch

from relprop.errors import InputError
from relprop.graph.molecules import rdkit_chem

PARTS = ("train", "validation", "test")


def scaffold_split(smiles: Sequence[str]) -> list[list[int]]:
    """Indices of the three parts: molecules of one Murcko scaffold stay together, the most common ones in train.

    Equally common scaffolds are ordered by their SMILES: ordered by row, a file that is sorted by class, as BACE is,
    would leave only one class for the test.
    """
    chem = rdkit_chem()
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    groups = defaultdict(list)
    for number, given in enumerate(smiles):
        molecule = chem.MolFromSmiles(given)
        if molecule is None:
            raise InputError(f"molecule {number}, {given!r:.80}, is no SMILES that rdkit can read")
        groups[MurckoScaffoldSmiles(mol=molecule)].append(number)  # type: ignore[no-untyped-call]
    parts: list[list[int]] = [[], [], []]
    for _, group in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0])):
        room = [0.8 * len(smiles) - len(parts[0]), 0.1 * len(smiles) - len(parts[1]), math.inf]
        parts[next(i for i, free in enumerate(room) if len(group) <= free)] += group
    return parts


def random_split(count: int, seed: int = 0) -> list[list[int]]:
    """Indices of the three parts, at random; the same for the same seed."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return [order[: int(0.8 * count)], order[int(0.8 * count) : int(0.9 * count)], order[int(0.9 * count) :]]
