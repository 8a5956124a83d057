"""Before the application: the host that was meant, a body that is not too large and comes in time, and some room."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from ipaddress import ip_address
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from relprop.serve.limits import Limits, RefusedError, too_large

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
# Nothing but this server's own files and data, in no frame: also for a page that shows strangers' texts.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # the page of a service that was renewed is asked for anew
}


def own_names(host: str) -> tuple[str, ...] | None:
    """On this machine alone, its names; on a network others give the name."""
    try:
        alone = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return None
    return tuple(dict.fromkeys((*LOOPBACK, f"[{host}]" if ":" in host else host))) if alone else None


class Guard:
    """`hosts`: the names under which the service may be called; a page of another name that points here is a trick."""

    def __init__(self, app: Any, limits: Limits, hosts: Collection[str] | None) -> None:
        self._app, self._limits, self._hosts = app, limits, hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            self._check_host(Headers(scope=scope))
            body = await self._body(Headers(scope=scope), receive)
        except RefusedError as error:
            error.headers["Connection"] = "close"  # what is still being sent is not read
            await _refused(error)(scope, receive, with_headers)
            return
        try:
            if scope["method"] == "POST":  # of a crowd, most are turned away here, before anything is looked at
                scope["app"].state.service.worker.check_room()
        except RefusedError as error:
            await _refused(error)(scope, receive, with_headers)
            return
        await self._app(scope, _replayed(body, receive), with_headers)

    def _check_host(self, headers: Headers) -> None:
        name, _, port = headers.get("host", "").rpartition(":")
        called = name if name and port.isdigit() else headers.get("host", "")
        if self._hosts is not None and called.lower() not in self._hosts:
            raise RefusedError(403, f"this service answers to {', '.join(self._hosts)}, not to {called!r:.80}")

    async def _body(self, headers: Headers, receive: Any) -> bytes:
        most = self._limits.body
        large = too_large(f"the request is larger than {most:,} bytes")
        announced = headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > most:
            raise large
        if announced == "0" and "transfer-encoding" not in headers:
            return b""
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._limits.receiving):
                while True:
                    message = await receive()
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RefusedError(
                408, f"the request did not come whole within {self._limits.receiving:g} seconds"
            ) from None


def _refused(error: RefusedError) -> JSONResponse:
    return JSONResponse({"error": str(error)}, error.status, error.headers)


def _replayed(body: bytes, receive: Any) -> Any:
    """The body, which has been read, then whatever comes: that the client is gone."""
    told = False

    async def again() -> Any:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
