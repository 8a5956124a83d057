"""The application on a socket, by uvicorn: who dawdles is cut off, and SIGTERM finishes what is in flight."""

from __future__ import annotations

import asyncio
import math
import signal
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relprop.errors import InputError
from relprop.serve.limits import Limits

HEAD = 65_536  # bytes of a request line and headers
KEEP_ALIVE = 15  # seconds between a client's requests


def protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """uvicorn's, with a deadline for headers and a bound to their size: it has neither. The guard watches bodies."""

    class Prompt(HttpToolsProtocol):
        _deadline: asyncio.TimerHandle | None = None
        _head = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._hurry()

        def connection_lost(self, exc: Exception | None) -> None:
            self._rest()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._head += len(data)
            super().data_received(data)
            if self._deadline is not None and self._head > HEAD:
                self.transport.close()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._hurry()

        def on_headers_complete(self) -> None:
            self._rest()
            super().on_headers_complete()

        def _hurry(self) -> None:
            self._rest()
            self._head = 0
            self._deadline = self.loop.call_later(limits.receiving, self.transport.close)

        def _rest(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Prompt


def listen(host: str, port: int) -> socket.socket:
    """Bound before any model is loaded: a port that is taken is said at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (")[0]
        raise InputError(f"cannot listen on {host}, port {port}: {reason}") from None


def configured(app: Any, limits: Limits) -> uvicorn.Config:
    """No websockets, no log of every request, and time enough to finish what is in flight."""
    return uvicorn.Config(
        app,
        http=protocol(limits),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(limits.seconds + limits.receiving),
    )


def run(app: Any, on: socket.socket, limits: Limits) -> None:
    """Until a signal comes. What is in flight is then answered, and the process ends well."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it once more when all is done
    uvicorn.Server(configured(app, limits)).run(sockets=[on])
