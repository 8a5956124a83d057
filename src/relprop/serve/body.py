"""The body of a request: instances and parameters, whose schema is the registry's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import models_json_schema

from relprop.attribution import DEFAULT_METHOD
from relprop.errors import InputError
from relprop.registry import METHODS
from relprop.serve import instances, options
from relprop.serve.limits import Limits, RefusedError, too_large

Class = int | str
METHOD: dict[str, Any] = {"enum": METHODS.names()}
INSTANCES: dict[str, Any] = {"items": instances.SCHEMA}
OPTIONS: dict[str, Any] = {"anyOf": [options.schema(name) for name in METHODS.names()]}


class Parameters(BaseModel):
    """How to explain. What is left out is as in the library."""

    model_config = ConfigDict(extra="forbid", strict=True)

    method: str | None = Field(None, description=f"Default: {DEFAULT_METHOD}.", json_schema_extra=METHOD)
    methods: list[str] | None = Field(
        None,
        min_length=1,
        description="Several at once: each explanation is then a list, in this order.",
        json_schema_extra={"items": {"type": "string", **METHOD}},
    )
    target: Class | tuple[Class, Class] | None = Field(
        None, description="A class by name or index, a pair for their difference; default: the predicted one."
    )
    ledger: bool = Field(False, description="Itemise where the output went, by methods that have a ledger.")
    words: bool = Field(False, description="Texts: merge sub-words to words.")
    special: Literal["keep", "drop"] = Field("keep", description="Leave out special tokens.")
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Of the method; of several, each takes those that it has.",
        json_schema_extra=OPTIONS,
    )


class Body(BaseModel):
    """KServe V1: what to explain, and how."""

    model_config = ConfigDict(extra="forbid", strict=True)

    instances: list[Any] = Field(min_length=1, json_schema_extra=INSTANCES)
    parameters: Parameters = Field(default_factory=lambda: Parameters.model_validate({}))


class Drawing(Body):
    """The same, and which file to make of it."""

    format: Literal["html", "png", "json"] = "html"


@dataclass(frozen=True)
class Wish:
    """What is asked of a model. Inputs of equal wishes are explained together, each with its own target."""

    methods: tuple[str, ...]  # none: predict
    ledger: bool = False
    special: str = "keep"
    options: str = "{}"  # as JSON: equal ones are equal

    @property
    def arguments(self) -> dict[str, Any]:
        """For the explainer."""
        own = options.checked(self.methods, json.loads(self.options))
        return {"method": list(self.methods), "ledger": self.ledger, "special": self.special, **own}


def parsed(kind: type[Body], content: bytes) -> Any:
    """The body. Broken JSON is a bad request; JSON of another shape cannot be processed."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        status = 400 if first["type"] == "json_invalid" else 422
        raise RefusedError(status, f"{where}: {first['msg']}" if where else first["msg"]) from None


def explaining(parameters: Parameters) -> Wish:
    """The wish, checked against the registry."""
    if parameters.method is not None and parameters.methods is not None:
        raise InputError('give either "method" or "methods", not both')
    names = parameters.methods or [parameters.method or DEFAULT_METHOD]
    methods = tuple(METHODS[name].name for name in names)
    if len(set(methods)) < len(methods):
        raise InputError("a method is named twice")
    wish = Wish(methods, parameters.ledger, parameters.special, json.dumps(parameters.options, sort_keys=True))
    _ = wish.arguments  # which says what does not fit
    return wish


def check_count(body: Body, methods: int, most: int) -> None:
    count = len(body.instances) * methods
    if count > most:
        raise too_large(f"{len(body.instances)} instances by {methods} methods are {count}; at most {most} are taken")


def given(kind: str, body: Body, limits: Limits) -> list[tuple[Any, int]]:
    """Every instance as the library takes it; an error says which one."""
    found = []
    for number, one in enumerate(body.instances):
        try:
            found.append(instances.read(kind, one, limits))
        except InputError as error:
            raise InputError(f"instance {number}: {error}" if len(body.instances) > 1 else str(error)) from None
    return found


def reference(kind: type[Body]) -> dict[str, Any]:
    """A route's body, for OpenAPI."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
    return {"requestBody": {"required": True, "content": content}}


def schemas() -> dict[str, Any]:
    """The bodies and what they are made of, for OpenAPI."""
    kinds: list[tuple[type[BaseModel], Literal["validation"]]] = [(Body, "validation"), (Drawing, "validation")]
    _, found = models_json_schema(kinds, ref_template="#/components/schemas/{model}")
    return dict(found["$defs"])
