"""The bodies of answers: predictions and explanations as JSON, or explanations as a file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relprop.deadline import check_deadline
from relprop.errors import InputError
from relprop.explanation import Explanation, save
from relprop.render.text.part import joined_units

MEDIA_TYPES = {"html": "text/html; charset=utf-8", "png": "image/png", "json": "application/json"}
ExplanationsByInput = Sequence[Sequence[Explanation]]  # per input one explanation per method
_COMMON = ("method", "target", "value", "prediction", "probability", "baseline")


def predictions_json(predictions: Sequence[dict[str, Any]]) -> str:
    return _json({"predictions": predictions})


def explanations_json(by_input: ExplanationsByInput, words: bool, several: bool) -> str:
    """One explanation per input, or with `several` one list per input."""
    predictions = [{"prediction": one[0].prediction, "probability": one[0].probability} for one in by_input]
    written = [[flat_explanation(one) for one in methods] for methods in _merged_to_words(by_input, words)]
    return _json({"predictions": predictions, "explanations": written if several else [one[0] for one in written]})


def flat_explanation(one: Explanation) -> dict[str, Any]:
    """The explanation as clients of this protocol know it: version 1 of the saved form, which has no parts.

    `Explanation.from_json` reads it. An explanation with inputs of several kinds, or with steps (one for each entity
    or mask), keeps its parts, as version 2.
    """
    check_deadline()
    account = {"account": [list(share) for share in one.account]}
    if one.steps or one.ledgers:
        return {**json.loads(one.to_json()), **account}
    common = {"schema_version": 1, **{name: getattr(one, name) for name in _COMMON}}
    common["ledger"] = None if one.ledger is None else asdict(one.ledger)
    common |= {"quantity": one.quantity, **account}
    common |= {"warnings": one.warnings} if one.warnings else {}
    if all(part.kind == "text" for part in one.parts):
        units, scores = joined_units(one.texts)
        own = {name: getattr(one.texts[0], name) for name in ("truncated", "merged", "answer")}
        return {**common, "text": one.text, "units": [asdict(unit) for unit in units], "scores": scores, **own}
    part = one.parts[0].to_dict()
    if len(one.parts) == 1 and part["kind"] == "image":
        return {**common, **part, "name": part["file"], **({} if one.box is None else {"box": one.box})}
    if len(one.parts) == 1 and part["kind"] == "graph":
        return {**common, **part, "edge_scores": part["edges"]}
    return {**json.loads(one.to_json()), **account}


def _json(answer: dict[str, Any]) -> str:
    try:
        return json.dumps(answer, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise InputError("the answer holds a number that is not finite, which JSON cannot tell") from None


def explanations_file(by_input: ExplanationsByInput, words: bool, form: str) -> bytes:
    """All explanations in one file, as the library saves it."""
    explanations = [one for methods in _merged_to_words(by_input, words) for one in methods]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"relprop.{form}"
        save(explanations, path)
        return path.read_bytes()


def _merged_to_words(by_input: ExplanationsByInput, words: bool) -> ExplanationsByInput:
    return [[one.words() for one in methods] for methods in by_input] if words else by_input
