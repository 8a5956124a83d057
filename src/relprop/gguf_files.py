"""GGUF files, as llama.cpp has them: found, and their sizes read before transformers unpacks them."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path

from relprop.errors import ModelError
from relprop.stored_weights import StoredWeights


def gguf_file(where: Path) -> Path | None:
    """The GGUF file that was named, or the only one of a folder without other weights. Raises if there are several."""
    if where.suffix == ".gguf" and where.is_file():
        return where
    if not where.is_dir() or any(where.glob("*.safetensors*")):
        return None
    files = sorted(where.glob("*.gguf"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:4])
        raise ModelError(f'"{where}" holds {len(files)} GGUF files ({names}): name one of them')
    return files[0] if files else None


def gguf_weights(file: Path) -> StoredWeights:
    """The sizes of all weights in a GGUF file. Raises where the gguf package is missing, or the file is damaged."""
    if find_spec("gguf") is None:
        raise ModelError(f'"{file}" needs the gguf package: pip install "relprop[gguf]"')
    from gguf import GGUFReader

    shapes = [tuple(map(int, tensor.shape)) for tensor in GGUFReader(file).tensors]
    return StoredWeights(
        tensors=len(shapes),
        numbers=sum(map(math.prod, shapes)),
        longest=max((side for shape in shapes for side in shape), default=0),
        whole=frozenset(),
    )
