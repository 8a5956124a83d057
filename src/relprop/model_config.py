"""What a model's config says, for models with and without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def config_value(model: object, name: str, default: object = None) -> Any:
    """A setting of `model.config`; the default if the model has no config or the config no such setting."""
    return getattr(getattr(model, "config", None), name, default)


def model_name(model: object, source: str | Path | None = None) -> str:
    """The hub id, the folder's name or the class; a full path would reveal somebody's machine in a shared file.

    `source`: what the model was loaded from, where that is known.
    """
    source = str(source or config_value(model, "name_or_path") or type(model).__name__)
    path = Path(source).expanduser()
    return path.name if path.is_absolute() or path.is_dir() else source
