"""The bodies of answers: predictions and explanations as JSON, or explanations as a file. (Reads `Explanation`.)"""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MEDIA_TYPES = {"html": "text/html; charset=utf-8", "png": "image/png", "json": "application/json"}


def predictions_json(predictions: Sequence[Any]) -> str:
    return json.dumps({"predictions": predictions}, ensure_ascii=False, allow_nan=False)


def explanations_json(by_input: Sequence[Sequence[Any]], words: bool, several: bool) -> str:
    """One explanation per input, or with `several` one list per input, each as its `to_json` writes it."""
    predictions = [{"prediction": one[0].prediction, "probability": one[0].probability} for one in by_input]
    written = [[one.to_json() for one in methods] for methods in _merged_to_words(by_input, words)]
    explanations = ", ".join(f"[{', '.join(methods)}]" if several else methods[0] for methods in written)
    return f'{predictions_json(predictions)[:-1]}, "explanations": [{explanations}]}}'


def explanations_file(by_input: Sequence[Sequence[Any]], words: bool, form: str) -> bytes:
    """All explanations in one file, as the `save` of their module writes it."""
    explanations = [one for methods in _merged_to_words(by_input, words) for one in methods]
    module: Any = inspect.getmodule(explanations[0])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"relprop.{form}"
        module.save(explanations, path)
        return path.read_bytes()


def _merged_to_words(by_input: Sequence[Sequence[Any]], words: bool) -> Sequence[Sequence[Any]]:
    return [[one.words() for one in methods] for methods in by_input] if words else by_input
