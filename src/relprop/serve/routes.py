"""The routes: KServe's V1 protocol, V2 health, and what the page needs. The work is done in the worker's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from relprop.serve.answers import MEDIA_TYPES, explanations_file, explanations_json, predictions_json
from relprop.serve.body import (
    Body,
    BodyKind,
    ExplainRequest,
    RenderBody,
    check_count,
    explain_request,
    explainer_inputs,
    openapi_body,
    validated_body,
)
from relprop.serve.instances import ExplainerInput
from relprop.serve.limits import Limits, RefusedError
from relprop.serve.models import ServedModel
from relprop.serve.options import method_catalogue
from relprop.serve.prometheus import CONTENT_TYPE
from relprop.serve.service import service_of
from relprop.serve.worker import RequestJob, Written

PAGE = Path(__file__).parent / "page"
LARGE = 32_768  # bytes of a body that is read in a thread: the event loop answers others meanwhile
Value = TypeVar("Value")
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"description": why, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    for code, why in {
        400: "The request cannot be explained, with the reason.", 401: "The token is missing or wrong.",
        403: "The host name is not one of the service.", 404: "There is no such model.",
        408: "The request arrived too slowly.", 413: "The request is too large.", 415: "The body is not JSON.",
        422: "The body has another shape.",
        503: "Not ready, too busy, or out of time; Retry-After holds the seconds to wait.",
    }.items()
}  # fmt: skip
BEARER = HTTPBearer(auto_error=False, description="Only if the service was started with a token.")


async def require_token(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
) -> None:
    token: str | None = request.app.state.token
    sent = (credentials.credentials if credentials else "").encode("latin-1")  # headers are decoded so: the same bytes
    if token is not None and not compare_digest(sent, token.encode()):
        refused = RefusedError(401, "this service needs its token: Authorization: Bearer TOKEN")
        refused.headers["WWW-Authenticate"] = "Bearer"
        raise refused


public_routes, token_routes = APIRouter(), APIRouter()


@public_routes.get("/", include_in_schema=False)
async def root(request: Request) -> Response:
    """The page for browsers; for KServe's V1 clients, that the server is alive."""
    index = PAGE / "index.html"
    if "text/html" in request.headers.get("accept", "") and index.is_file():
        return FileResponse(index)
    return JSONResponse({"status": "alive"})


@public_routes.get("/docs", include_in_schema=False)
async def docs() -> Response:
    """How to read and use the service; FastAPI's own page would load scripts from other sites."""
    return FileResponse(PAGE / "docs.html")


@public_routes.get("/v2/health/live")
async def live() -> dict[str, bool]:
    """Also answered while the model works."""
    return {"live": True}


@public_routes.get("/v2/health/ready", responses={503: ERRORS[503]})
async def ready(request: Request) -> JSONResponse:
    """Whether every model is loaded and requests are answered in time, else the reasons."""
    problems = service_of(request).problems()
    if problems:
        return JSONResponse({"ready": False, "error": "; ".join(problems)}, 503)
    return JSONResponse({"ready": True})


@token_routes.get("/v1/models")
async def models(request: Request) -> dict[str, list[str]]:
    """The models' names."""
    return {"models": list(service_of(request).models)}


@token_routes.get("/v1/models/{name}")
async def model(request: Request, name: str) -> dict[str, Any]:
    """Whether it is ready, what it reads, its classes, and the kinds of its heads."""
    return service_of(request).model(name).description()


@token_routes.get("/v2/models/{name}/ready")
async def model_ready(request: Request, name: str) -> JSONResponse:
    """Whether the model is ready, in KServe's V2 protocol."""
    problem = service_of(request).model(name).problem
    return JSONResponse({"name": name, "ready": not problem}, 503 if problem else 200)


@token_routes.get("/v1/methods")
async def methods() -> dict[str, Any]:
    """Every method with its options and its source."""
    return {"methods": method_catalogue()}


@token_routes.get("/metrics")
async def metrics(request: Request) -> Response:
    """Counters and histograms for Prometheus."""
    return Response(service_of(request).metrics.text(), media_type=CONTENT_TYPE)


@token_routes.post("/v1/models/{name}:predict", openapi_extra=openapi_body(Body))
async def predict(request: Request, name: str) -> Response:
    """The likeliest classes of each instance; of a language model, the likeliest next tokens."""
    body = await _json_body(request, Body)
    return await _response(request, name, body, ExplainRequest(()), predictions_json)


@token_routes.post("/v1/models/{name}:explain", openapi_extra=openapi_body(Body))
async def explain(request: Request, name: str) -> Response:
    """Explain each instance: the answer holds what `Explanation.from_json` of the library reads."""
    body = await _json_body(request, Body)
    several, words = body.parameters.methods is not None, body.parameters.words
    write = partial(explanations_json, words=words, several=several)
    asked = await _read(request, explain_request, body.parameters, service_of(request).model(name).default_method)
    return await _response(request, name, body, asked, write)


@token_routes.post("/v1/models/{name}:render", openapi_extra=openapi_body(RenderBody))
async def render(request: Request, name: str) -> Response:
    """The explanations as a file."""
    body = await _json_body(request, RenderBody)
    default, form = service_of(request).model(name).default_method, body.format
    asked = await _read(request, explain_request, body.parameters, default)
    check_count(body, len(asked.methods), service_of(request).limits.drawings)
    write = partial(explanations_file, words=body.parameters.words, form=form)
    response = await _response(request, name, body, asked, write, draws=True)
    response.headers["Content-Type"] = MEDIA_TYPES[form]
    response.headers["Content-Disposition"] = f'attachment; filename="relprop.{form}"'
    return response


async def _json_body(request: Request, kind: type[BodyKind]) -> BodyKind:
    """The body; only JSON is taken, as a page of another site may send forms without permission, but no JSON."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != "application/json":
        raise RefusedError(415, f'the body must be JSON (Content-Type: application/json), got "{sent}"')
    return await _read(request, validated_body, kind, await request.body())


async def _read(request: Request, read: Callable[..., Value], *given: Any) -> Value:
    """`read(*given)`, which takes long where the body is large."""
    large = len(await request.body()) > LARGE
    return await asyncio.to_thread(read, *given) if large else read(*given)


async def _response(
    request: Request,
    name: str,
    body: Body,
    asked: ExplainRequest,
    write: Callable[[list[Any]], Written],
    draws: bool = False,
) -> Response:
    service = service_of(request)
    model, limits = service.model(name), service.limits
    check_count(body, max(1, len(asked.methods)), limits.explanations)
    model.check(asked, body.parameters.words)
    inputs = await _read(request, _sized_inputs, model, body, limits)
    draws = draws or (bool(asked.methods) and model.draws_molecules)
    target = body.parameters.target if body.parameters.labels is None else body.parameters.labels
    job = RequestJob(name, asked, inputs, target, write, draws)
    return Response(await service.answer(job), media_type="application/json")


def _sized_inputs(model: ServedModel, body: Body, limits: Limits) -> list[tuple[ExplainerInput, int]]:
    return [(value, model.sizes.at_most(value)) for value in explainer_inputs(model.kind, body, limits)]
