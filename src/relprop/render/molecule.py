"""Molecules drawn by rdkit, and where their atoms lie in the drawing."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from relprop.render.image import Pixels


def molecule(smiles: str, size: tuple[int, int]) -> tuple[Pixels, NDArray[np.float64]]:
    """The drawing in black, and each atom's pixel (x, y)."""
    drawer, drawn = _drawer(smiles, size, picture=True)
    drawer.DrawMolecule(drawn)
    drawer.FinishDrawing()
    pixels = np.asarray(Image.open(BytesIO(drawer.GetDrawingText())).convert("RGB"))
    places = [drawer.GetDrawCoords(i) for i in range(drawn.GetNumAtoms())]
    return pixels, np.array([(place.x, place.y) for place in places])


def _drawer(smiles: str, size: tuple[int, int], picture: bool) -> tuple[Any, Any]:
    from rdkit import Chem
    from rdkit.Chem.Draw import rdMolDraw2D

    drawer = (rdMolDraw2D.MolDraw2DCairo if picture else rdMolDraw2D.MolDraw2DSVG)(*size)
    options: Any = drawer.drawOptions()
    options.useBWAtomPalette()
    options.padding = 0.1
    return drawer, rdMolDraw2D.PrepareMolForDrawing(Chem.MolFromSmiles(smiles), kekulize=False)
