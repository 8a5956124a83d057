"""What is written of explanations: the JSON of an answer, or a file to keep."""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MEDIA = {"html": "text/html; charset=utf-8", "png": "image/png", "json": "application/json"}


def predictions(found: Sequence[Any]) -> str:
    return json.dumps({"predictions": found}, ensure_ascii=False, allow_nan=False)


def explanations(found: Sequence[Sequence[Any]], words: bool, several: bool) -> str:
    """One explanation an input, or a list of them by method; each as it tells itself."""
    told = [{"prediction": one[0].prediction, "probability": one[0].probability} for one in found]
    each = [[one.to_json() for one in whole] for whole in _units(found, words)]
    made = ", ".join(f"[{', '.join(one)}]" if several else one[0] for one in each)
    return f'{{"predictions": {json.dumps(told, ensure_ascii=False, allow_nan=False)}, "explanations": [{made}]}}'


def drawing(found: Sequence[Sequence[Any]], words: bool, form: str) -> bytes:
    """All of them in one file, as `save` of their kind writes it."""
    every = [one for whole in _units(found, words) for one in whole]
    kind: Any = inspect.getmodule(every[0])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"relprop.{form}"
        kind.save(every, path)
        return path.read_bytes()


def _units(found: Sequence[Sequence[Any]], words: bool) -> Sequence[Sequence[Any]]:
    return [[one.words() for one in whole] for whole in found] if words else found
