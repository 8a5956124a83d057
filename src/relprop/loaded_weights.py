"""What came of loading a model: weights that are missing, unused, not finite, or whole numbers are refused."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

from relprop.errors import ModelError, RelpropWarning

_SIDE = 4096  # pixels: more than models of pictures read


def check_missing(where: str, name: str, info: Mapping[str, Any], filled: Collection[str] = ()) -> None:
    """Raise if weights of the model are in none of its files. `filled`: names of those that an adapter brings."""
    keys = {*info["missing_keys"], *(str(key) for key, *_ in info["mismatched_keys"])}
    missing = sorted(keys - set(filled))
    if missing:
        raise ModelError(
            f'"{where}" has no fitting weights for {_first_of(missing)} of {name}: transformers would make them '
            "random, and so would be the explanation; fine-tune the model or load one with its head"
        )


def check_unused(where: str, model: nn.Module, keys: list[str], *, told: bool = True) -> None:
    """Raise if the files hold weights for what the model computes; other unused ones may be told in a warning.

    transformers itself leaves out of `keys` what it knows to be superfluous, such as the numbers of positions.
    """
    name = type(model).__name__
    ours = [key for key in keys if _belongs(model, key)]
    if ours:
        raise ModelError(
            f'"{where}" holds weights that the {name} of its config does not use, such as {_first_of(ours)}: the '
            "config is of another model, and so would be the explanation"
        )
    if keys and told:
        warnings.warn(
            f'"{where}" holds weights of modules that {name} does not have: {_first_of(keys)}',
            RelpropWarning,
            stacklevel=4,
        )


def _belongs(model: nn.Module, key: str) -> bool:
    """Whether a weight that the model lacks would be of one of its blocks or modules, not of a whole one it lacks."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    spellings = [key, prefix + key, key.removeprefix(prefix)]
    known = dict(model.named_modules())
    path, count = max((_known_parents(known, one) for one in spellings), key=lambda found: found[1])
    numbered = any(step.isdigit() for step in path[: count + 1])
    return numbered or count == len(path) - 1


def _known_parents(known: Mapping[str, Any], key: str) -> tuple[list[str], int]:
    """The steps of a weight's name, and how many of them lead to modules that the model has."""
    path = key.split(".")
    return path, sum(".".join(path[: k + 1]) in known for k in range(len(path)))


def _first_of(names: list[str]) -> str:
    return f'"{names[0]}"' + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def check_numbers(where: str, model: nn.Module, whole: Collection[str]) -> None:
    """Raise for weights that are not finite, or were whole numbers in the file; `whole`: the names of such."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            continue
        if name in whole or name.removeprefix(prefix) in whole:
            raise ModelError(
                f'"{where}" has whole numbers for "{name}", as if it were quantised, and its config does not say how'
            )
        if not torch.isfinite(parameter).all():
            raise ModelError(f'"{where}" has weights that are not finite numbers: its parameter "{name}"')


def table_rows(model: nn.Module) -> int | None:
    """How many tokens the model's table has; None where it does not say which of its tables that is."""
    try:
        table = getattr(model, "get_input_embeddings", lambda: None)()
    except (NotImplementedError, AttributeError):
        return None
    return getattr(table, "num_embeddings", None)


def check_picture_size(where: str, processor: Any) -> None:
    """Raise if pictures would be made larger than any model reads them."""
    for size in (getattr(processor, name, None) for name in ("size", "crop_size", "pad_size")):
        get = getattr(size, "get", None)
        for side in [get(one) for one in ("height", "width", "shortest_edge")] if get else [size]:
            if isinstance(side, int | float) and side > _SIDE:
                raise ModelError(
                    f'the image processor of "{where}" makes pictures with sides of {side:,} pixels; at most '
                    f"{_SIDE:,} can be explained"
                )
