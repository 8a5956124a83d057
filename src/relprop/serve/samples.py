"""Pictures to try a model with, by a click on the page: those that come with the embedded models, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relprop.embedded import EMBEDDED, MODELS

DEFAULT = "pets"  # photographs, for a model that brings none
PICTURES = {model.name: model.folder / "samples" for model in MODELS if model.pictures == model.name}


def picture_samples(source: object) -> list[dict[str, str]]:
    """Name and address of each picture that fits a model; `source`: the name or folder it was loaded from, if any."""
    own = [model.pictures for model in MODELS if str(source) in (model.name, str(EMBEDDED[model.name]))]
    folder = own[0] if own and own[0] else DEFAULT
    return [{"name": _name(one), "url": f"/samples/{folder}/{one['file']}"} for one in _listed(PICTURES[folder])]


def _listed(folder: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads((folder / "samples.json").read_text(encoding="utf-8"))
    return listed


def _name(sample: dict[str, Any]) -> str:
    return str(sample.get("label") or " and ".join(map(str, sample["labels"])))
