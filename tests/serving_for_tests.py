"""A service on a free port, in a thread of this process, with a clock that a test moves; and a client of bare HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from relprop.serve import Limits, application
from relprop.serve.server import listening_socket, uvicorn_config

TEXT = "a gorgeous, witty, seductive movie."
HANG = 600.0  # seconds after which a test that waits has failed: no test passes or fails by a shorter time


def patient(**limits: Any) -> Limits:
    """Limits whose times no test reaches by itself, however busy the machine is."""
    return Limits(**{"threads": 1, "linger": 0.0, "beside": HANG, "seconds": HANG, "receiving": HANG, **limits})


def until(true: Callable[[], Any]) -> None:
    end = time.monotonic() + HANG
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes by itself and when a test moves it."""

    moved = 0.0

    def time(self) -> float:
        return super().time() + self.moved

    def move(self, seconds: float) -> None:
        def forward() -> None:
            self.moved += seconds

        self.call_soon_threadsafe(forward)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def error(self) -> str:
        return str(self.json["error"])


@dataclass(frozen=True)
class Live:
    """A running service. Every call is a connection of its own."""

    app: Any
    port: int
    loop: MovableLoop | None = None
    server: uvicorn.Server | None = None

    def move_clock(self, seconds: float) -> None:
        """Every timeout of the server that is shorter is over."""
        assert self.loop is not None
        self.loop.move(seconds)

    @property
    def inside(self) -> int:
        """Inputs in the service."""
        return int(self.app.state.service.worker._inside)

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, None, headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, content, {"content-type": "application/json", **headers})

    def explain(self, *instances: Any, model: str = "sentiment", **parameters: Any) -> Answer:
        return self.post(f"/v1/models/{model}:explain", {"instances": list(instances), "parameters": parameters})

    def request(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG)
        try:
            connection.request(method, path, content, {name.replace("_", "-"): one for name, one in headers.items()})
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, named, answer.read())
        finally:
            connection.close()

    def wait(self, path: str = "/v2/health/ready", status: int = 200) -> None:
        until(lambda: self.get(path).status == status)


@contextmanager
def serving(models: Any, *, limits: Limits | None = None, **options: Any) -> Iterator[Live]:
    """The service, until the block ends."""
    limits = limits or patient()
    app = application(models, limits=limits, **options)
    with listening_socket("127.0.0.1", 0) as socket:
        config, loop = uvicorn_config(app, limits), MovableLoop()
        config.timeout_keep_alive = int(10 * HANG)
        server = uvicorn.Server(config)

        def run() -> None:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(server.serve(sockets=[socket]))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield Live(app, socket.getsockname()[1], loop, server)
        finally:
            server.should_exit = True
            thread.join(HANG)
            assert not thread.is_alive()
