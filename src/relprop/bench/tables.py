"""Tables of a TOML file as frozen values: every setting known, of the right kind, and said plainly where it is not."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from relprop.errors import InputError, unknown_name

T = TypeVar("T")


def built(kind: type[T], table: Mapping[str, Any], where: str, **more: Any) -> T:
    """A dataclass from a table; `more` are fields that the table does not hold."""
    if not isinstance(table, Mapping):
        raise InputError(f"{where} should be a table of settings, got {table!r}")
    known = {field.name: field for field in fields(kind) if field.name not in more}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for name in table:
        if name not in known:
            raise unknown_name(f"setting of {where}", name, known)
    for name, field in known.items():
        if name not in table and field.default is MISSING and field.default_factory is MISSING:
            raise InputError(f'{where} lacks "{name}"')
    values = {name: _fitted(value, hints[name], f'"{name}" of {where}') for name, value in table.items()}
    return kind(**values, **more)


def _fitted(value: Any, hint: Any, what: str) -> Any:
    """The value as the type says, lists as tuples."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        for part in parts:
            try:
                return _fitted(value, part, what)
            except InputError:
                continue
    elif origin is Literal:
        if value in parts:
            return value
        raise InputError(f"{what} is one of {', '.join(map(repr, parts))}, got {value!r}")
    elif origin is tuple:
        if isinstance(value, list | tuple) and (parts[-1] is ... or len(value) == len(parts)):
            each = [parts[0]] * len(value) if parts[-1] is ... else parts
            return tuple(_fitted(one, part, what) for one, part in zip(value, each, strict=True))
    elif origin is Mapping:
        if isinstance(value, Mapping):
            return {_fitted(k, parts[0], what): _fitted(v, parts[1], what) for k, v in value.items()}
    elif isinstance(value, bool):
        if hint is bool:
            return value
    elif isinstance(value, hint) or (hint is float and isinstance(value, int)):
        return float(value) if hint is float else value
    raise InputError(f"{what} should be {_named(hint)}, got {value!r}")


_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", type(None): "nothing"}


def _named(hint: Any) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_named(part) for part in parts if part is not type(None))
    if origin is tuple:
        return f"a list, each {_named(parts[0])}"
    if origin is Mapping:
        return "a table"
    return _NAMES.get(hint, str(hint))
