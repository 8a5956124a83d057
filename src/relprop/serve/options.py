"""The methods' options as the registry has them: checked by their annotations, and told to OpenAPI."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor

import relprop.methods  # noqa: F401  (fills the registry)
from relprop.errors import InputError
from relprop.registry import METHODS

APART = {"ledger"}  # parameters of their own
# Whole numbers multiply the work, or the memory, unless they only draw or point at a token.
MOST = 1_000
OTHERWISE = {"seed": 2**31 - 1, "baseline": 2**31 - 1, "replacement": 2**31 - 1, "max_evals": 10_000}
OTHERWISE["internal_batch_size"] = 64


def checked(methods: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """The options in the library's own types. One that no method has is an error, and so is one of a wrong type."""
    records = [METHODS[name] for name in methods]
    for name, value in options.items():
        owners = [record for record in records if name in record.options and name not in APART]
        if name in APART:
            raise InputError(f'"{name}" stands among the parameters, not among the options')
        if not owners:
            records[0].check({name: value})
            raise InputError(f'none of the methods has the option "{name}"')
        for record in owners:
            _check(record.name, name, value)
    return {name: _array(name, value) if isinstance(value, list) else value for name, value in options.items()}


def _check(method: str, option: str, value: Any) -> None:
    try:
        types(method)[option].validate_python(value, strict=True)
    except ValidationError as error:
        wrong = "; ".join(dict.fromkeys(one["msg"] for one in error.errors()))
        raise InputError(f'the option "{option}" of {method} does not fit: {wrong}; got {value!r:.80}') from None


def _array(name: str, value: list[list[bool]]) -> Any:
    if len({len(row) for row in value}) != 1:
        raise InputError(f'the option "{name}" should be a table of equal rows')
    return np.array(value)


@cache
def types(method: str) -> dict[str, TypeAdapter[Any]]:
    """What each option may be, over JSON."""
    function = METHODS[method].function
    hints = typing.get_type_hints(function)
    names = [name for name in METHODS[method].options if name not in APART]
    return {name: TypeAdapter(_over_json(hints[name], OTHERWISE.get(name, MOST))) for name in names}


def _of_tensors(hint: Any) -> bool:
    return hint is Tensor or Tensor in typing.get_args(hint)


def _over_json(hint: Any, most: int) -> Any:
    """An annotation without what only Python has: tensors left out, arrays as tables, numbers bounded."""
    if typing.get_origin(hint) in (Union, UnionType):
        parts = [_over_json(part, most) for part in typing.get_args(hint) if not _of_tensors(part)]
        return Union[tuple(parts)]  # noqa: UP007  (made of parts)
    if hint is int:
        return Annotated[int, Field(ge=0, le=most)]
    if hint is float:
        return Annotated[float, Field(ge=0, le=1)]
    return list[list[bool]] if typing.get_origin(hint) is np.ndarray else hint


def schema(method: str) -> dict[str, Any]:
    """The options of a method, for OpenAPI."""
    record = METHODS[method]
    properties = {}
    for name, adapter in types(method).items():
        properties[name] = {**adapter.json_schema(), "default": record.options[name]}
    return {"title": method, "type": "object", "properties": properties, "additionalProperties": False}


def catalogue() -> list[dict[str, Any]]:
    """Every method with what a user must know to choose it."""
    return [
        {
            "name": record.name,
            "family": record.family,
            "signed": record.signed,
            "ledger": "ledger" in record.options,
            "summary": record.summary,
            "citation": record.citation,
            "options": schema(record.name)["properties"],
        }
        for record in METHODS
    ]
