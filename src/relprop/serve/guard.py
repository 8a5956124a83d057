"""Middleware before the application: checks the host name, the size and speed of the body, and room in the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relprop.serve.limits import Limits, RefusedError, too_large

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
# Only this server's own files and data, in no frame: the page shows texts of unknown origin.
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src blob:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # browsers ask again, so that an updated service shows its new page
}


def loopback_names(host: str) -> tuple[str, ...] | None:
    """The host names of a service that only this machine can reach; None on a network, where any name may be used."""
    try:
        local = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return None
    return tuple(dict.fromkeys((*LOOPBACK, f"[{host}]" if ":" in host else host))) if local else None


class Guard:
    """`hosts` are the names that requests may address: another name that points here is an attack (DNS rebinding)."""

    def __init__(self, app: ASGIApp, limits: Limits, hosts: Collection[str] | None) -> None:
        self._app, self._limits, self._hosts = app, limits, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        try:
            self._check_host(Headers(scope=scope))
            body = await self._body(Headers(scope=scope), receive)
        except RefusedError as error:
            error.headers["Connection"] = "close"  # the rest of the request is not read
            await _refused(error)(scope, receive, with_headers)
            return
        try:
            if scope["method"] == "POST":  # under heavy load most are refused here, before any parsing
                scope["app"].state.service.worker.check_room()
        except RefusedError as error:
            await _refused(error)(scope, receive, with_headers)
            return
        await self._app(scope, _replay(body, receive), with_headers)

    def _check_host(self, headers: Headers) -> None:
        name, _, port = headers.get("host", "").rpartition(":")
        host = name if name and port.isdigit() else headers.get("host", "")
        if self._hosts is not None and host.lower() not in self._hosts:
            raise RefusedError(403, f"this service answers to {', '.join(self._hosts)}, not to {host!r:.80}")

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
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
                408, f"the request did not arrive completely within {self._limits.receiving:g} seconds"
            ) from None


def _refused(error: RefusedError) -> JSONResponse:
    return JSONResponse({"error": str(error)}, error.status, error.headers)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that has been read, then later messages, such as that the client is gone."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
