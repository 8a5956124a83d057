"""The application: routes, middleware, and how errors become answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.middleware import Middleware
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from relprop import __version__
from relprop.errors import RelpropError
from relprop.serve.body import body_schemas
from relprop.serve.guard import Guard
from relprop.serve.limits import Limits, RefusedError
from relprop.serve.prometheus import RequestCounts
from relprop.serve.routes import ERRORS, PAGE, public_routes, require_token, token_routes
from relprop.serve.samples import PICTURES
from relprop.serve.service import Models, Service, models_by_name, short_switch_interval


def application(
    models: Models,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Collection[str] | None = None,
) -> FastAPI:
    """A service of models: names, folders or hub ids (or NAME=MODEL), or {name: one of these, or an `Explainer`}.

    With `token`, requests must carry it. `hosts` are the host names that requests may address; None takes any. Models
    are loaded in the background once the application runs.
    """
    sources, bounds = models_by_name(models), limits or Limits()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with short_switch_interval():
            app.state.service = Service(sources, bounds, lambda: app.state.give_up())
            app.state.service.worker.start()
            yield
            await asyncio.to_thread(app.state.service.worker.stop)

    app = FastAPI(
        title="relprop",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
        middleware=[Middleware(RequestCounts), Middleware(Guard, limits=bounds, hosts=hosts)],
        exception_handlers={
            RelpropError: _bad_request,
            RefusedError: _refused,
            HTTPException: _http_error,
            Exception: _failed,
        },
    )
    app.state.token = token
    app.state.give_up = lambda: None  # called if no model can be served
    app.include_router(public_routes)
    app.include_router(token_routes, dependencies=[Depends(require_token)], responses=ERRORS)
    app.openapi = partial(_openapi, app)  # type: ignore[method-assign]
    for name, folder in PICTURES.items():
        app.mount(f"/samples/{name}", StaticFiles(directory=folder))
    if PAGE.is_dir():
        app.mount("/", StaticFiles(directory=PAGE))
    return app


async def _refused(request: Request, error: Any) -> JSONResponse:
    return JSONResponse({"error": str(error)}, error.status, error.headers)


async def _http_error(request: Request, error: Any) -> JSONResponse:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _bad_request(request: Request, error: Any) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 400)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": "the service failed at this request; its log has the reason"}, 500)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The schema of the routes and their bodies, made once."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes, description=__doc__)
        error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
        schema.setdefault("components", {}).setdefault("schemas", {}).update({**body_schemas(), "Error": error})
        app.openapi_schema = schema
    return app.openapi_schema
