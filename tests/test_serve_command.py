"""`relprop serve` as a process: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from relprop.cli import main
from relprop.cli.serve import serve
from relprop.errors import InputError
from relprop.serve import Limits
from relprop.serve.guard import loopback_names
from relprop.serve.service import models_by_name
from serving_for_tests import HANG, Live, until
from tokenizers_for_tests import saved, tiny


@contextmanager
def process(*arguments: object, **environment: str) -> Iterator[tuple[subprocess.Popen[str], Live]]:
    code = "from relprop.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", *map(str, arguments), "--port", "0", "--threads", "1"]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert started.stderr is not None
    try:
        said = started.stderr.readline()
        found = re.search(r"http://127.0.0.1:(\d+)/ serves (.*)", said)
        assert found, said + started.stderr.read()
        yield started, Live(None, int(found[1]))
    finally:
        if started.poll() is None:
            started.kill()
        started.communicate()


def test_sigterm_finishes_what_is_in_flight(tmp_path: Path) -> None:
    """The one at work and the one that waits are answered; then it ends with 0, and takes nobody new meanwhile."""
    folder = saved(tmp_path, *tiny("bert"))
    body = {"instances": ["a gorgeous movie"], "parameters": {"method": "integrated_gradients"}}
    body["parameters"]["options"] = {"steps": 1000, "internal_batch_size": 4}  # type: ignore[index]
    content = json.dumps(body).encode()
    request = (
        f"POST /v1/models/mine:explain HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    ).encode() + content
    with process(f"mine={folder}", "--timeout", HANG, RELPROP_TOKEN="secret") as (started, live):
        live.wait()
        assert live.get("/v1/models").status == 401  # the token came by the environment
        assert live.get("/v2/health/live", host="evil.example").status == 403  # and it answers to this machine alone
        with connections(live.port, 2) as (working, waiting):
            working.sendall(request)
            until(lambda: inputs_inside(live) >= 1)
            waiting.sendall(request.replace(b"gorgeous", b"terrible"))
            until(lambda: inputs_inside(live) >= 2)
            started.send_signal(signal.SIGTERM)
            answers = [read(one) for one in (working, waiting)]
        assert [answer["explanations"][0]["text"] for answer in answers] == [["a gorgeous movie"], ["a terrible movie"]]
        assert started.wait(HANG) == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", live.port))
        assert started.stderr is not None
        assert "Traceback" not in started.stderr.read()


def test_sigterm_while_a_model_is_being_loaded() -> None:
    """Nothing is in flight: it need not be waited for."""
    with process("sentiment") as (started, live):
        live.wait("/v2/health/live")
        started.send_signal(signal.SIGTERM)
        assert started.wait(HANG) == 0


def inputs_inside(live: Live) -> float:
    """Inputs that wait or are worked on, as the service tells them."""
    told = live.get("/metrics", authorization="Bearer secret").content.decode()
    return float(re.findall(r"^relprop_queue_inputs (.*)$", told, re.MULTILINE)[0])


def test_without_a_model_that_can_be_served_it_ends_with_the_reason(tmp_path: Path) -> None:
    """But not while another one can."""
    (tmp_path / "empty").mkdir()
    with process(tmp_path / "empty", tmp_path / "nothing") as (started, _):
        assert started.stderr is not None
        said = started.stderr.read()
        assert started.wait(HANG) == 1
    assert said.splitlines()[-1].startswith('relprop: the model "empty" cannot be served: ')
    reason = f'; the model "nothing" cannot be served: there is no folder "{tmp_path}/nothing"'
    assert reason in said.splitlines()[-1]
    assert "Traceback" not in said
    with process(tmp_path / "empty", "sentiment") as (started, live):
        live.wait("/v2/models/sentiment/ready")
        assert started.poll() is None


def test_every_limit_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same default."""
    seen = {}
    monkeypatch.setattr("relprop.serve.server.serve_until_signal", lambda app, on, limits: seen.update(vars(limits)))
    monkeypatch.setattr(sys, "argv", ["relprop", "serve", "sentiment", "--port", "0"])
    monkeypatch.setattr("warnings.showwarning", __import__("warnings").showwarning)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (None, 0)
    assert seen == vars(Limits())
    options = {name.removeprefix("max_") for name in inspect.signature(serve).parameters}
    other = {"batch", "seconds", "body", "linger", "receiving", "beside"}
    assert set(seen) - other <= options
    assert {"timeout", "bytes", "batch"} <= options


@contextmanager
def connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    every = [socket.create_connection(("127.0.0.1", port), timeout=HANG) for _ in range(count)]
    try:
        yield every
    finally:
        for one in every:
            one.close()


def read(on: socket.socket) -> Any:
    got = b""
    while part := on.recv(65536):
        got += part
    assert got.startswith(b"HTTP/1.1 200 "), got
    return json.loads(got.partition(b"\r\n\r\n")[2])


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What is said to a user who got it wrong."""
    monkeypatch.setattr(sys, "argv", ["relprop", "serve", *map(str, arguments)])
    monkeypatch.setattr("warnings.showwarning", __import__("warnings").showwarning)  # `main` sets its own
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    return capsys.readouterr().err


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = command(monkeypatch, capsys, "sentiment", "--port", port)
    assert said == f"relprop: cannot listen on 127.0.0.1, port {port}: Address already in use\n"


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("relprop.cli.serve.find_spec", lambda name: None if name == "uvicorn" else object())
    said = command(monkeypatch, capsys, "sentiment")
    assert said == 'relprop: the service needs more packages: pip install "relprop[serve]"\n'


def test_names_of_models() -> None:
    assert models_by_name("sentiment") == {"sentiment": "sentiment"}
    assert models_by_name(["a/b-c", "x=a/d", "./folder/"]) == {"b-c": "a/b-c", "x": "a/d", "folder": "./folder/"}
    for wrong, says in (
        (["a/b", "c/b"], "two models have one name"),
        ([], "there is no model"),
        (["a b=c"], 'got "a b"'),
        (["=c"], 'got ""'),
    ):
        with pytest.raises(InputError, match=says):
            models_by_name(wrong)


def test_on_this_machine_alone_it_has_no_other_name() -> None:
    assert (
        loopback_names("127.0.0.1")
        == loopback_names("::1")
        == loopback_names("localhost")
        == ("localhost", "127.0.0.1", "[::1]")
    )
    assert loopback_names("127.0.0.7") == ("localhost", "127.0.0.1", "[::1]", "127.0.0.7")
    assert loopback_names("0.0.0.0") is loopback_names("explain.example") is None
