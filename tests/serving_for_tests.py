"""A service on a free port, in a thread of this process, and a client of bare HTTP."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from relprop.serve import Limits, application
from relprop.serve.server import listening_socket, uvicorn_config

TEXT = "a gorgeous, witty, seductive movie."


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

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, None, headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, content, {"content-type": "application/json", **headers})

    def explain(self, *instances: Any, model: str = "sentiment", **parameters: Any) -> Answer:
        return self.post(f"/v1/models/{model}:explain", {"instances": list(instances), "parameters": parameters})

    def request(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, content, {name.replace("_", "-"): one for name, one in headers.items()})
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, named, answer.read())
        finally:
            connection.close()

    def wait(self, path: str = "/v2/health/ready", status: int = 200, seconds: float = 60) -> Answer:
        until = time.monotonic() + seconds
        while (answer := self.get(path)).status != status:
            assert time.monotonic() < until, answer.content
            time.sleep(0.02)
        return answer


@contextmanager
def serving(models: Any, *, limits: Limits | None = None, **options: Any) -> Iterator[Live]:
    """The service, until the block ends."""
    limits = limits or Limits(threads=1)
    app = application(models, limits=limits, **options)
    with listening_socket("127.0.0.1", 0) as socket:
        server = uvicorn.Server(uvicorn_config(app, limits))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
        thread.start()
        try:
            yield Live(app, socket.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()
