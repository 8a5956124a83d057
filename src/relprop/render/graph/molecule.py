"""Molecules drawn by rdkit, as vectors, and where their atoms lie in the drawing."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from relprop.errors import RelpropError
from relprop.graph.molecules import _quiet, from_smiles, rdkit_chem
from relprop.render.graph.drawing import Shape
from relprop.render.graph.node_positions import Places

NUMBER = re.compile(r"-?[\d.]+")
PATH = "{http://www.w3.org/2000/svg}path"


def molecule(smiles: str, edges: NDArray[np.int64], count: int) -> tuple[list[Shape], Places, Places] | None:
    """The drawing in black, each atom's place, and two corners; None where these are not the SMILES's bonds."""
    try:
        known = from_smiles(smiles)
    except RelpropError:
        return None
    if len(known) != count or not np.array_equal(known.edges, edges):
        return None
    from rdkit.Chem.Draw import rdMolDraw2D
    from rdkit.Chem.rdDepictor import Compute2DCoords

    drawer = rdMolDraw2D.MolDraw2DSVG(-1, -1)  # as large as the molecule needs
    options: Any = drawer.drawOptions()
    options.useBWAtomPalette()
    options.clearBackground = False
    options.flagCloseContactsDist = -1  # no red rings where atoms lie close
    with _quiet():
        plain = rdkit_chem().MolFromSmiles(smiles)
    # Bonds are turned until few atoms lie close, and rings in bridges drawn as is usual.
    Compute2DCoords(plain, nSample=100, nFlipsPerSample=3, sampleSeed=1, useRingTemplates=True)
    drawer.DrawMolecule(rdMolDraw2D.PrepareMolForDrawing(plain))
    drawer.FinishDrawing()
    ink = _ink(drawer.GetDrawingText())
    spots = [drawer.GetDrawCoords(i) for i in range(count)]  # hydrogens that show a shape in space come after
    points = np.array([float(word) for one in ink for word in NUMBER.findall(one.path)]).reshape(-1, 2)
    return ink, np.array([(spot.x, spot.y) for spot in spots]), np.stack([points.min(0), points.max(0)])


def _ink(svg: str) -> list[Shape]:
    """One shape for all paths that are painted alike."""
    alike: dict[tuple[str, str, float], list[str]] = defaultdict(list)
    for one in ElementTree.fromstring(svg).iter(PATH):
        style = dict(part.split(":", 1) for part in one.get("style", "").split(";") if part)
        width = float(style.get("stroke-width", "0").removesuffix("px"))
        stroke = style.get("stroke", "none") if width else "none"
        alike[style.get("fill", one.get("fill", "none")), stroke, width].append(one.get("d", "").replace(",", " "))
    return [Shape(" ".join(" ".join(paths).split()), *style) for style, paths in alike.items()]
