"""The methods' options from the registry: validated by pydantic from their annotations, and described for OpenAPI."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor

from relprop.errors import InputError
from relprop.methods import DEFAULT  # and fills the registry
from relprop.registry import METHODS

USUAL_UNITS = 64  # of an input, by which the passes of methods are compared
NOT_OPTIONS = {"ledger"}  # a parameter of the request
# Whole numbers multiply the work, or the memory, unless they are a seed or the id of a token.
MOST = 1_000
OTHER_BOUNDS = {
    "seed": 2**31 - 1, "baseline": 2**31 - 1, "replacement": 2**31 - 1, "max_evals": 10_000, "internal_batch_size": 64,
}  # fmt: skip


def typed_options(methods: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """The options in the library's types; raises for an option that no method has and for a value of a wrong type."""
    records = [METHODS[name] for name in methods]
    for name, value in options.items():
        if name in NOT_OPTIONS:
            raise InputError(f'"{name}" belongs to the parameters, not to the options')
        owners = [record for record in records if name in record.options]
        if not owners:
            records[0].check({name: value})
            raise InputError(f'none of the methods has the option "{name}"')
        for record in owners:
            _check(record.name, name, value)
    return {name: _array(name, value) if isinstance(value, list) else value for name, value in options.items()}


def _check(method: str, option: str, value: Any) -> None:
    try:
        option_types(method)[option].validate_python(value, strict=True)
    except ValidationError as error:
        wrong = "; ".join(dict.fromkeys(one["msg"] for one in error.errors()))
        raise InputError(f'the option "{option}" of {method} does not fit: {wrong}; got {value!r:.80}') from None


def _array(name: str, value: list[list[bool]]) -> Any:
    if len({len(row) for row in value}) != 1:
        raise InputError(f'the option "{name}" should be a table of equal rows')
    return np.array(value)


@cache
def option_types(method: str) -> dict[str, TypeAdapter[Any]]:
    """The type of each option of a method, as JSON can hold it."""
    hints = typing.get_type_hints(METHODS[method].function)
    names = [name for name in METHODS[method].options if name not in NOT_OPTIONS]
    return {name: TypeAdapter(_json_type(hints[name], OTHER_BOUNDS.get(name, MOST))) for name in names}


def _json_type(hint: Any, most: int) -> Any:
    """The annotation without tensors, with arrays as tables and with bounds on numbers."""
    if typing.get_origin(hint) in (Union, UnionType):
        parts = [part for part in typing.get_args(hint) if part is not Tensor and Tensor not in typing.get_args(part)]
        return Union[tuple(_json_type(part, most) for part in parts)]  # noqa: UP007  (a union of computed parts)
    if hint is int:
        return Annotated[int, Field(ge=0, le=most)]
    if hint is float:
        return Annotated[float, Field(ge=0, le=1)]
    return list[list[bool]] if typing.get_origin(hint) is np.ndarray else hint


def options_schema(method: str) -> dict[str, Any]:
    """The JSON schema of a method's options, for OpenAPI."""
    defaults = METHODS[method].options
    properties = {
        name: {**adapter.json_schema(), "default": defaults[name]} for name, adapter in option_types(method).items()
    }
    return {"title": method, "type": "object", "properties": properties, "additionalProperties": False}


def method_catalogue() -> list[dict[str, Any]]:
    """Every method with its summary, source and options."""
    return [
        {
            "name": record.name,
            "default": record.name == DEFAULT,
            "family": record.family,
            "signed": record.signed,
            "ledger": "ledger" in record.options,
            "passes": record.passes(USUAL_UNITS, record.options),
            "pairs_only": record.name in METHODS.special_homes,
            "summary": record.summary,
            "citation": record.citation,
            "options": options_schema(record.name)["properties"],
        }
        for record in METHODS.every()
    ]
