"""Molecules as graphs, from SMILES, by rdkit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relprop.errors import InputError, RelpropError
from relprop.graph.graph import Graph

# Categories of an atom: element, neighbours, charge, hydrogens, hybridisation, aromatic, in a ring, chirality.
ELEMENTS = (5, 6, 7, 8, 9, 14, 15, 16, 17, 34, 35, 53)  # by atomic number; 0 stands for any other
CATEGORIES = (len(ELEMENTS) + 1, 7, 5, 6, 6, 2, 2, 4)
BONDS = 4  # single, double, triple, aromatic


def from_smiles(smiles: str) -> Graph:
    """The graph of a molecule's heavy atoms and bonds. Salts and mixtures are one graph in several parts."""
    chem = rdkit_chem()
    if not isinstance(smiles, str) or not smiles.strip():
        raise InputError("the SMILES is empty: there is no molecule to explain")
    with quiet_rdkit():
        molecule = chem.MolFromSmiles(smiles.strip())
    if molecule is None or not molecule.GetNumAtoms():
        raise InputError(f"{smiles!r:.80} is no SMILES that rdkit can read: {_reason(smiles)}")
    atoms = list(molecule.GetAtoms())
    bonds = list(molecule.GetBonds())
    return Graph.of(
        np.array([_categories(atom) for atom in atoms]),
        [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds],
        [_bond_type(bond) for bond in bonds],
        names=[f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in atoms],
        places=partial(_drawn_positions, smiles.strip()),
        title=smiles.strip(),
        source=smiles.strip(),
    )


def _categories(atom: Any) -> tuple[int, ...]:
    number = atom.GetAtomicNum()
    return (
        ELEMENTS.index(number) + 1 if number in ELEMENTS else 0,
        min(atom.GetDegree(), CATEGORIES[1] - 1),
        min(max(atom.GetFormalCharge() + 2, 0), CATEGORIES[2] - 1),
        min(atom.GetTotalNumHs(), CATEGORIES[3] - 1),
        min(int(atom.GetHybridization()), CATEGORIES[4] - 1),
        int(atom.GetIsAromatic()),
        int(atom.IsInRing()),
        min(int(atom.GetChiralTag()), CATEGORIES[7] - 1),
    )


def _bond_type(bond: Any) -> int:
    return BONDS - 1 if bond.GetIsAromatic() else min(max(int(bond.GetBondTypeAsDouble()), 1), 3) - 1


def _drawn_positions(smiles: str) -> NDArray[np.float64]:
    """The atoms' positions in rdkit's drawing [atoms, 2], y down."""
    from rdkit.Chem.rdDepictor import Compute2DCoords

    with quiet_rdkit():
        molecule = rdkit_chem().MolFromSmiles(smiles)
    Compute2DCoords(molecule)
    return np.asarray(molecule.GetConformer().GetPositions()[:, :2] * np.array([1.0, -1.0]))


def _reason(smiles: str) -> str:
    chem = rdkit_chem()
    with quiet_rdkit():
        raw = chem.MolFromSmiles(smiles.strip(), sanitize=False)
        problems = chem.DetectChemistryProblems(raw) if raw is not None else []
    return problems[0].Message().strip() if problems else "its grammar is wrong"


def quiet_rdkit() -> Any:
    """A context without rdkit's messages."""
    from rdkit.rdBase import BlockLogs

    return BlockLogs()


def rdkit_chem() -> Any:
    """rdkit's `Chem`; raises with the command that installs it."""
    try:
        from rdkit import Chem
    except ImportError:
        raise RelpropError('molecules need rdkit: pip install "relprop[graph]"') from None
    return Chem
