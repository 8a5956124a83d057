"""The application, whole: routes, what stands before them, and how errors are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
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
from relprop.serve.body import schemas
from relprop.serve.guard import Guard
from relprop.serve.limits import Limits, RefusedError
from relprop.serve.metrics import Measured
from relprop.serve.routes import ERRORS, PAGE, allowed, guarded, open_to_all
from relprop.serve.service import Service, named, quick_turns


def application(
    models: str | Iterable[str] | Mapping[str, Any],
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Collection[str] | None = None,
) -> FastAPI:
    """A service of these models: by name, folder or hub id (perhaps as NAME=MODEL), or {name: one, or an `Explainer`}.

    With `token`, requests must carry it. `hosts`: the names that it may be called by; None takes any. Models are loaded
    once it runs, in the background.
    """
    sources, bounds = named(models), limits or Limits()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with quick_turns():
            app.state.service = Service(sources, bounds)
            app.state.service.worker.start()
            yield
            await asyncio.to_thread(app.state.service.worker.stop)

    app = FastAPI(
        title="relprop",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        middleware=[Middleware(Measured), Middleware(Guard, limits=bounds, hosts=hosts)],
        exception_handlers={
            RelpropError: _bad_request,
            RefusedError: _refused,
            HTTPException: _refused,
            Exception: _failed,
        },
    )
    app.state.token = token
    app.include_router(open_to_all)
    app.include_router(guarded, dependencies=[Depends(allowed)], responses=ERRORS)
    app.openapi = partial(_openapi, app)  # type: ignore[method-assign]
    if PAGE.is_dir():
        app.mount("/", StaticFiles(directory=PAGE))
    return app


async def _refused(request: Request, error: Any) -> JSONResponse:
    reason = error.detail if isinstance(error, HTTPException) else str(error)
    status = error.status_code if isinstance(error, HTTPException) else error.status
    return JSONResponse({"error": reason}, status, error.headers)


async def _bad_request(request: Request, error: Any) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 400)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": "the service failed at this request; its log says why"}, 500)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Made once: the routes, and the bodies as the registry has them."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes, description=__doc__)
        error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
        made.setdefault("components", {}).setdefault("schemas", {}).update({**schemas(), "Error": error})
        app.openapi_schema = made
    return app.openapi_schema
