"""The application on a socket, by uvicorn: slow clients are cut off, and SIGTERM lets running requests finish."""

from __future__ import annotations

import asyncio
import math
import signal
import socket

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relprop.errors import InputError, ModelError
from relprop.serve.limits import Limits
from relprop.serve.service import Service

HEAD = 65_536  # bytes of a request line and headers
KEEP_ALIVE = 15  # seconds between a client's requests


def timed_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """uvicorn's protocol with a deadline and a size limit for headers, which it lacks. `Guard` checks bodies."""

    class TimedProtocol(HttpToolsProtocol):
        _deadline: asyncio.TimerHandle | None = None
        _head = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._start_deadline()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_deadline()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._head += len(data)
            super().data_received(data)
            if self._deadline is not None and self._head > HEAD:
                self.transport.close()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._start_deadline()

        def on_headers_complete(self) -> None:
            self._stop_deadline()
            super().on_headers_complete()

        def _start_deadline(self) -> None:
            self._stop_deadline()
            self._head = 0
            self._deadline = self.loop.call_later(limits.receiving, self.transport.close)

        def _stop_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return TimedProtocol


def listening_socket(host: str, port: int) -> socket.socket:
    """A bound socket; made before any model is loaded, so that a port in use is reported at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (")[0]
        raise InputError(f"cannot listen on {host}, port {port}: {reason}") from None


def uvicorn_config(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """No websockets, no log of every request, and enough time to finish running requests."""
    return uvicorn.Config(
        app,
        http=timed_protocol(limits),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(limits.seconds + limits.receiving),
    )


def serve_until_signal(app: FastAPI, on: socket.socket, limits: Limits) -> None:
    """Serve until a signal arrives; running requests are then answered. Raises if no model can be served."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it once more at the end
    server = uvicorn.Server(uvicorn_config(app, limits))
    app.state.give_up = lambda: setattr(server, "should_exit", True)
    server.run(sockets=[on])
    service: Service = app.state.service
    if service.is_hopeless:
        raise ModelError("; ".join(service.problems()))
