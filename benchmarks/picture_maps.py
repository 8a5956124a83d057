"""Maps of pictures by any method, named with its options: `grad_cam:weigh_by=row`."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.progress import track

import relprop

CHUNK = 25  # pictures at a time
Maps = NDArray[np.float64]
T = TypeVar("T")


def parsed(spec: str) -> tuple[str, dict[str, Any]]:
    """`method:option=value,option=value`; a value that is no Python literal is a word."""
    method, _, rest = spec.partition(":")
    options = {}
    for one in filter(None, rest.split(",")):
        name, _, value = one.partition("=")
        try:
            options[name] = literal_eval(value)
        except (SyntaxError, ValueError):
            options[name] = value
    return method, options


def explained(explainer: relprop.Explainer, images: list[Image.Image], target: Any, spec: str) -> Maps:
    """Maps [pictures, height, width] at the pictures' size."""
    method, options = parsed(spec)
    found = explainer(images, target=target, method=method, batch_size=CHUNK, progress=False, **options)
    return np.stack([one.part.map() for one in found])


def logits(explainer: relprop.Explainer, images: list[Image.Image]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = explainer.model(**explainer.inputs(images)).logits
    return found


def chunks(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + CHUNK] for start in range(0, len(items), CHUNK)]


def bar(steps: Sequence[T], description: str) -> Iterable[T]:
    console = Console(stderr=True)
    return track(steps, description=description, console=console, transient=True, disable=not console.is_terminal)


def digest(model: torch.nn.Module) -> str:
    """Tells one set of weights from another."""
    seen = blake2b(digest_size=4)
    for value in model.state_dict().values():
        seen.update(value.numpy().tobytes())
    return seen.hexdigest()
