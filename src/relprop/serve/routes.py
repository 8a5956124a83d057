"""The routes: KServe's V1 protocol, V2 health, and what a page needs. They read and hand on; a thread works."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from relprop.serve import answers, options
from relprop.serve.body import Body, Drawing, Wish, check_count, explaining, given, parsed, reference
from relprop.serve.limits import RefusedError
from relprop.serve.metrics import TYPE
from relprop.serve.service import service_of
from relprop.serve.worker import Job

PAGE = Path(__file__).parent / "page"
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"description": why, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    for code, why in {
        400: "The request cannot be explained, and why.", 401: "The token is missing or wrong.",
        403: "The service was called by a name that is not its own.", 404: "There is no such model.",
        408: "The request came too slowly.", 413: "The request is too large.", 415: "The body is not JSON.",
        422: "The body has another shape.",
        503: "Not ready, too busy, or out of time; Retry-After says when to come again.",
    }.items()
}  # fmt: skip


BEARER = HTTPBearer(auto_error=False, description="Only where the service was started with a token.")


async def allowed(request: Request, shown: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]) -> None:
    token: str | None = request.app.state.token
    sent = (shown.credentials if shown else "").encode("latin-1")  # as headers are read: the very bytes
    if token is not None and not compare_digest(sent, token.encode()):
        refused = RefusedError(401, "this service wants its token: Authorization: Bearer TOKEN")
        refused.headers["WWW-Authenticate"] = "Bearer"
        raise refused


open_to_all, guarded = APIRouter(), APIRouter()


@open_to_all.get("/", include_in_schema=False)
async def root(request: Request) -> Response:
    """The page for people; for KServe's clients of V1, that the server lives."""
    index = PAGE / "index.html"
    if "text/html" in request.headers.get("accept", "") and index.is_file():
        return FileResponse(index)
    return JSONResponse({"status": "alive"})


@open_to_all.get("/v2/health/live")
async def live() -> dict[str, bool]:
    """Answered also while the model works."""
    return {"live": True}


@open_to_all.get("/v2/health/ready", responses={503: ERRORS[503]})
async def ready(request: Request) -> JSONResponse:
    """Whether every model is loaded; else why not."""
    problems = service_of(request).problems()
    return (
        JSONResponse({"ready": False, "error": "; ".join(problems)}, 503) if problems else JSONResponse({"ready": True})
    )


@guarded.get("/v1/models")
async def models(request: Request) -> dict[str, list[str]]:
    """The models' names."""
    return {"models": list(service_of(request).models)}


@guarded.get("/v1/models/{name}")
async def model(request: Request, name: str) -> dict[str, Any]:
    """Whether it is ready, what it reads, its classes, and what is known of its heads."""
    return service_of(request).model(name).about()


@guarded.get("/v2/models/{name}/ready")
async def model_ready(request: Request, name: str) -> JSONResponse:
    """As KServe V2 asks it."""
    one = service_of(request).model(name)
    return JSONResponse({"name": name, "ready": not one.problem}, 503 if one.problem else 200)


@guarded.get("/v1/methods")
async def methods() -> dict[str, Any]:
    """Every method with its options and its source."""
    return {"methods": options.catalogue()}


@guarded.get("/metrics")
async def metrics(request: Request) -> Response:
    """For Prometheus."""
    return Response(service_of(request).metrics.text(), media_type=TYPE)


@guarded.post("/v1/models/{name}:predict", openapi_extra=reference(Body))
async def predict(request: Request, name: str) -> Response:
    """The likeliest classes of each instance; of a language model, the likeliest next tokens."""
    asked = await _read(request, Body)
    return await _answered(request, name, asked, Wish(()), answers.predictions)


@guarded.post("/v1/models/{name}:explain", openapi_extra=reference(Body))
async def explain(request: Request, name: str) -> Response:
    """Explain each instance: the answer's explanations are those of the library, as their `to_json` tells them."""
    asked = await _read(request, Body)
    several, words = asked.parameters.methods is not None, asked.parameters.words
    finish = partial(answers.explanations, words=words, several=several)
    return await _answered(request, name, asked, explaining(asked.parameters), finish)


@guarded.post("/v1/models/{name}:render", openapi_extra=reference(Drawing))
async def render(request: Request, name: str) -> Response:
    """The same as a file to keep."""
    asked = await _read(request, Drawing)
    wish, form = explaining(asked.parameters), asked.format
    check_count(asked, len(wish.methods), service_of(request).limits.drawings)
    finish = partial(answers.drawing, words=asked.parameters.words, form=form)
    made = await _answered(request, name, asked, wish, finish)
    made.headers["Content-Type"] = answers.MEDIA[form]
    made.headers["Content-Disposition"] = f'attachment; filename="relprop.{form}"'
    return made


async def _read(request: Request, kind: type[Body]) -> Any:
    """A page of another site may send a form, but JSON only with leave, which nobody gives."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != "application/json":
        raise RefusedError(415, f'the body must be JSON (Content-Type: application/json), got "{sent}"')
    return parsed(kind, await request.body())


async def _answered(
    request: Request, name: str, asked: Body, wish: Wish, finish: Callable[[list[Any]], Any]
) -> Response:
    service = service_of(request)
    one, bounds = service.model(name), service.limits
    check_count(asked, max(1, len(wish.methods)), bounds.explanations)
    one.check(wish, asked.parameters.words)
    job = Job(
        name, wish, given(one.kind, asked, bounds), asked.parameters.target, finish, time.monotonic() + bounds.seconds
    )
    return Response(await service.answer(job), media_type="application/json")
