"""The body of a request: instances and parameters. Its schema takes methods and options from the registry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import models_json_schema

from relprop.errors import InputError, RelpropError
from relprop.registry import METHODS
from relprop.serve.instances import INSTANCE_SCHEMA, ExplainerInput, explainer_input
from relprop.serve.limits import Limits, RefusedError, numbered, too_large
from relprop.serve.options import options_schema, typed_options

ClassName = int | str
Term = ClassName | tuple[ClassName | None, ClassName] | tuple[float, float] | tuple[float, float, float, float] | None
BodyKind = TypeVar("BodyKind", bound="Body")
METHOD_SCHEMA: dict[str, Any] = {"enum": [record.name for record in METHODS.every()]}
INSTANCES_SCHEMA: dict[str, Any] = {"items": INSTANCE_SCHEMA}
OPTIONS_SCHEMA: dict[str, Any] = {"anyOf": [options_schema(record.name) for record in METHODS.every()]}


class Parameters(BaseModel):
    """How to explain; what is left out is as in the library."""

    model_config = ConfigDict(extra="forbid", strict=True)

    method: str | None = Field(
        None, description="Default: the model's `default_method`.", json_schema_extra=METHOD_SCHEMA
    )
    methods: list[str] | None = Field(
        None,
        min_length=1,
        description="Several at once: each explanation is then a list, in this order.",
        json_schema_extra={"items": {"type": "string", **METHOD_SCHEMA}},
    )
    target: ClassName | tuple[Term, Term] | tuple[float, float, float, float] | None = Field(
        None,
        description="A class by name or index, a pair for their difference; a word, or its characters, and a label, or "
        "a pair of labels; the number of a mask and a token; an object of a picture, or a place on it ([x, y] or "
        "[left, top, right, bottom]), and a class; default: the predicted one.",
    )
    generate: int | None = Field(
        None, ge=1, le=200, description="Explain each of so many tokens that the model writes (texts, transcripts)."
    )
    labels: list[ClassName] | None = Field(
        None,
        min_length=1,
        description="Several labels of each text at once, in place of `target`: where texts may have several.",
    )
    ledger: bool = Field(False, description="Itemise where the output went, for methods that have a ledger.")
    words: bool = Field(False, description="Texts: merge sub-words to words.")
    special: Literal["keep", "drop"] = Field("keep", description="Leave out special tokens.")
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of the method; of several methods, each takes the options it has.",
        json_schema_extra=OPTIONS_SCHEMA,
    )


class Body(BaseModel):
    """KServe V1: what to explain, and how."""

    model_config = ConfigDict(extra="forbid", strict=True)

    instances: list[Any] = Field(min_length=1, json_schema_extra=INSTANCES_SCHEMA)
    parameters: Parameters = Field(default_factory=lambda: Parameters.model_validate({}))


class RenderBody(Body):
    """The same with the format of the file."""

    format: Literal["html", "png", "json"] = "html"


@dataclass(frozen=True)
class ExplainRequest:
    """What is asked of a model. Inputs of equal requests are explained together, each with its own target."""

    methods: tuple[str, ...]  # empty: predict
    generate: int | None = None
    ledger: bool = False
    special: str = "keep"
    options: str = "{}"  # JSON with sorted keys, so that equal options compare equal

    def passes(self, units: int) -> int:
        """Passes of all methods for an input of so many units, by the registry; a prediction takes one."""
        given, records = json.loads(self.options), [METHODS[name] for name in self.methods]
        once = sum(record.passes(units, {**record.options, **given}) for record in records) or 1
        return once * (self.generate or 1)

    @property
    def slow(self) -> bool:
        """Whether a method takes more than one pass."""
        return self.passes(2) > max(1, len(self.methods))

    @property
    def explainer_arguments(self) -> dict[str, Any]:
        options = typed_options(self.methods, json.loads(self.options))
        return {"method": list(self.methods), "ledger": self.ledger, "special": self.special, **options}


def validated_body(kind: type[BodyKind], content: bytes) -> BodyKind:
    """The body. Invalid JSON is refused with 400, JSON of another shape with 422."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        status = 400 if first["type"] == "json_invalid" else 422
        raise RefusedError(status, f"{where}: {first['msg']}" if where else first["msg"]) from None


def explain_request(parameters: Parameters, default: str) -> ExplainRequest:
    """The request, checked against the registry. `default`: the method where none is named."""
    if parameters.target is not None and parameters.labels is not None:
        raise InputError('give either "target" or "labels", not both')
    if parameters.method is not None and parameters.methods is not None:
        raise InputError('give either "method" or "methods", not both')
    names = parameters.methods or [parameters.method or default]
    methods = tuple(METHODS[name].name for name in names)
    if len(set(methods)) < len(methods):
        raise InputError("a method is named twice")
    typed_options(methods, parameters.options)  # raises if an option does not fit
    return ExplainRequest(
        methods,
        parameters.generate,
        parameters.ledger,
        parameters.special,
        json.dumps(parameters.options, sort_keys=True),
    )


def check_count(body: Body, methods: int, most: int) -> None:
    """Raises if more is to be explained than is taken at once."""
    instances, labels = len(body.instances), len(body.parameters.labels or [None])
    count, of_labels = instances * methods * labels, f" by {labels} labels" if labels > 1 else ""
    if count > most:
        raise too_large(f"{instances} instances by {methods} methods{of_labels} are {count}; at most {most} are taken")


def explainer_inputs(kind: str, body: Body, limits: Limits) -> list[ExplainerInput]:
    """Every instance as `Explainer` takes it; an error has the instance's number."""
    inputs = []
    for number, instance in enumerate(body.instances):
        try:
            inputs.append(explainer_input(kind, instance, limits))
        except RelpropError as error:
            raise numbered(error, number) if len(body.instances) > 1 else error from None
    return inputs


def openapi_body(kind: type[Body]) -> dict[str, Any]:
    """A route's body, for OpenAPI."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
    return {"requestBody": {"required": True, "content": content}}


def body_schemas() -> dict[str, Any]:
    """The schemas of the bodies and their parts, by name, for OpenAPI."""
    kinds: list[tuple[type[BaseModel], Literal["validation"]]] = [(Body, "validation"), (RenderBody, "validation")]
    _, schema = models_json_schema(kinds, ref_template="#/components/schemas/{model}")
    return dict(schema["$defs"])
