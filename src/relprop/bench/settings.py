"""Tables of a TOML file as frozen dataclasses, checked by pydantic: every setting known and of the right type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from relprop.errors import InputError, RelpropError, unknown_name

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
NOTHING_ELSE = {"extra": "forbid"}  # the `__pydantic_config__` of dataclasses that are read from files
_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a table",
    "missing": "a longer list",
    "too_long": "a shorter list",
}


def validated(kind: type[T], table: Mapping[str, object], where: str) -> T:
    """A dataclass from a table. `where` names the table in errors."""
    try:
        from pydantic import ValidationError
    except ImportError:
        raise RelpropError('benchmark suites need the pydantic package: pip install "relprop[bench]"') from None
    try:
        settings: T = _adapter(kind).validate_json(json.dumps(table, default=str), strict=True)  # type: ignore[arg-type]
    except ValidationError as error:
        raise _error_in_words(kind, error.errors(include_url=False), where) from None
    return settings


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _error_in_words(kind: Any, errors: Sequence[Mapping[str, Any]], where: str) -> RelpropError:
    """One sentence on the first of pydantic's errors; a misspelt setting counts before a missing one."""
    first = min(errors, key=lambda one: one["type"] != "unexpected_keyword_argument")
    place, got = first["loc"], f"got {first['input']!r}"
    if not place:
        return InputError(f"{where} should be a table of settings, {got}")
    name, *inner = place
    if inner and is_dataclass(part := (get_args(get_type_hints(kind)[name]) or (None,))[0]):
        own = [{**one, "loc": one["loc"][2:]} for one in errors if one["loc"][:2] == place[:2]]
        return _error_in_words(part, own, f"{name.removesuffix('s')} {inner[0] + 1} of {where}")
    if first["type"] == "unexpected_keyword_argument":
        return unknown_name(f"setting of {where}", name, [field.name for field in fields(kind)])
    if first["type"] == "missing" and not inner:
        return InputError(f'{where} lacks "{name}"')
    expected = [
        one["ctx"]["expected"] if one["type"] == "literal_error" else _EXPECTED.get(one["type"], one["msg"])
        for one in errors
        if one["loc"][0] == name
    ]
    return InputError(f'"{name}" of {where} should be {" or ".join(dict.fromkeys(expected))}, {got}')
