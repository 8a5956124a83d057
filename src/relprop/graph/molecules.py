"""Molecules as graphs, from SMILES, by rdkit."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relprop.errors import InputError, RelpropError
from relprop.graph.graph import Graph

if TYPE_CHECKING:
    from rdkit.Chem import Atom, Bond

# Categories of an atom: element, neighbours, charge, hydrogens, hybridisation, aromatic, in a ring, chirality.
ELEMENTS = (5, 6, 7, 8, 9, 14, 15, 16, 17, 34, 35, 53)  # by atomic number; 0 stands for any other
CATEGORIES = (len(ELEMENTS) + 1, 7, 5, 6, 6, 2, 2, 4)
MOST_ATOMS = 2_000  # drawing and distances take their square
BONDS = 4  # single, double, triple, aromatic


def from_smiles(smiles: str) -> Graph:
    """The graph of a molecule's heavy atoms and bonds. Salts and mixtures are one graph in several parts."""
    chem = rdkit_chem()
    if not isinstance(smiles, str) or not smiles.strip():
        raise InputError("the SMILES is empty: there is no molecule to explain")
    if len(smiles) > 10 * MOST_ATOMS:
        raise InputError(f"{smiles!r:.80} is too long for a molecule of at most {MOST_ATOMS:,} atoms")
    try:
        with quiet_rdkit():
            molecule = chem.MolFromSmiles(smiles.strip())
        reason = "" if molecule is not None and molecule.GetNumAtoms() else _reason(smiles)
    except (RuntimeError, ValueError) as error:  # rdkit's own, and characters that are no text
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
    if reason:
        raise InputError(f"{smiles!r:.80} is no SMILES that rdkit can read: {reason:.200}")
    if molecule.GetNumAtoms() > MOST_ATOMS:
        raise InputError(f"the molecule has {molecule.GetNumAtoms():,} atoms; at most {MOST_ATOMS:,} can be explained")
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


def _categories(atom: Atom) -> tuple[int, ...]:
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


def _bond_type(bond: Bond) -> int:
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


def quiet_rdkit() -> AbstractContextManager[object]:
    """A context without rdkit's messages."""
    from rdkit.rdBase import BlockLogs

    return BlockLogs()


def rdkit_chem() -> ModuleType:
    """rdkit's `Chem`; raises with the command that installs it."""
    try:
        return import_module("rdkit.Chem")
    except ImportError:
        raise RelpropError('molecules need rdkit: pip install "relprop[graph]"') from None
