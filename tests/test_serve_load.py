"""Many at once: inputs go together and never mix, what is too much or too slow is turned away, health answers."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from relprop.explainer import Explainer
from relprop.serve import Limits
from relprop.serve.body import ExplainRequest
from relprop.serve.models import ServedModel
from relprop.serve.prometheus import ServiceMetrics
from relprop.serve.worker import AHEAD, RequestJob, Worker
from serving_for_tests import Live, serving
from tokenizers_for_tests import WORDS, tiny

PATH = "/v1/models/bert:explain"


@pytest.fixture
def explainer() -> Explainer:
    return Explainer(*tiny("bert"))


@contextmanager
def watched(model: Any, before: Callable[[int], None]) -> Iterator[None]:
    """Calls `before` with the number of rows, whenever the model runs."""

    def seen(_: Any, __: Any, named: dict[str, Any]) -> None:
        before(len(next(value for value in named.values() if value is not None)))

    hook = model.register_forward_pre_hook(seen, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def held(model: Any) -> Iterator[threading.Event]:
    """The model runs only once the event is set."""
    go = threading.Event()
    with watched(model, lambda _: void(go.wait(30))):
        try:
            yield go
        finally:
            go.set()


def void(_: Any) -> None: ...


def texts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 20))) for _ in range(count)]


def until(true: Callable[[], Any], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def inside(live: Live) -> int:
    return int(live.app.state.service.worker._inside)


# Batches.


def test_requests_are_explained_together(explainer: Explainer) -> None:
    """Thirty requests, one input each, in four passes: the first goes alone while the others gather."""
    rows: list[int] = []
    with serving({"bert": explainer}, limits=Limits(batch=10, threads=1)) as live, ThreadPoolExecutor(30) as clients:
        live.wait()
        with held(explainer.model) as go, watched(explainer.model, rows.append):
            first = clients.submit(live.explain, "a movie", model="bert")
            until(lambda: inside(live) == 1)
            time.sleep(0.1)  # it is with the model
            others = [clients.submit(live.explain, text, model="bert") for text in texts(29)]
            until(lambda: inside(live) == 30)
            go.set()
            assert all(one.result().status == 200 for one in [first, *others])
    assert sum(rows) == 30
    assert len(rows) == 4


def test_answers_never_mix(explainer: Explainer) -> None:
    """Different texts, targets, methods and options at once: each gets what it would have got alone."""
    draw = random.Random(0)
    asked = []
    for text in texts(60):
        method = draw.choice(["lrp_ah_ln", "gradient_x_input", "rollout", "attn_lrp"])
        target = draw.choice([None, "positive", 0, ("positive", "negative")])
        options = {"start_block": draw.choice([0, 1])} if method == "rollout" else {}
        asked.append((text, {"method": method, "target": target, **options}))
    with serving({"bert": explainer}, limits=Limits(threads=1)) as live, ThreadPoolExecutor(20) as clients:
        live.wait()

        def ask(one: tuple[str, dict[str, Any]]) -> Any:
            text, given = one
            options = {name: value for name, value in given.items() if name == "start_block"}
            return live.explain(text, model="bert", method=given["method"], target=given["target"], options=options)

        answers = list(clients.map(ask, asked))
        sizes = live.get("/metrics").content.decode()
    for (text, given), answer in zip(asked, answers, strict=True):
        found, own = answer.json["explanations"][0], explainer(text, **given)
        assert (found["text"], found["method"], found["target"]) == ([text], own.method, own.target)
        assert found["scores"] == pytest.approx(own.scores, rel=1e-4, abs=1e-5)
    count = next(line for line in sizes.splitlines() if line.startswith("relprop_batch_inputs_count"))
    assert float(count.split()[1]) < 60  # some did go together


def test_one_bad_input_spoils_no_other(explainer: Explainer) -> None:
    """Its error is its own; the others of its batch are answered, those of its own request are not."""
    with serving({"bert": explainer}, limits=Limits(threads=1)) as live, ThreadPoolExecutor(8) as clients:
        live.wait()
        with held(explainer.model) as go:
            first = clients.submit(live.explain, "a movie", model="bert")
            until(lambda: inside(live) == 1)
            time.sleep(0.1)
            good = [clients.submit(live.explain, text, model="bert") for text in texts(5)]
            blank = clients.submit(live.explain, "good", " ", "bad", model="bert")
            lost = clients.submit(live.explain, "good", model="bert", target="nobody")
            until(lambda: inside(live) == 10)
            go.set()
            assert [one.result().status for one in [first, *good]] == [200] * 6
        assert blank.result().error == "instance 1: the text is empty: there is nothing to explain"
        assert (blank.result().status, lost.result().status) == (400, 400)
        assert 'target "nobody" is unknown' in lost.result().error


LRP = ExplainRequest(("lrp",))


def job(text: str, request: ExplainRequest = LRP, seconds: float = 60) -> RequestJob:
    return RequestJob("m", request, [(text, len(text))], None, lambda results: results, time.monotonic() + seconds)


class Fake(ServedModel):
    """Answers with its inputs, and keeps the batches."""

    def __init__(self) -> None:
        super().__init__("m", None)
        self.batches: list[list[Any]] = []
        self.go = threading.Event()

    def load(self) -> None:
        self.problem = None

    def answer(self, request: ExplainRequest, inputs: Any, targets: Any, deadline: float) -> list[Any]:
        self.go.wait(30)
        self.batches.append(list(inputs))
        return list(inputs)


@contextmanager
def working(limits: Limits) -> Iterator[tuple[Fake, Worker]]:
    fake = Fake()
    worker = Worker({"m": fake}, limits, ServiceMetrics())
    worker.start()
    try:
        yield fake, worker
    finally:
        fake.go.set()
        worker.stop()


def test_inputs_of_like_size_go_together_and_none_waits_for_ever() -> None:
    """The oldest always goes, with its nearest; one that nobody is like is passed only by those just behind it."""
    with working(Limits(batch=4, linger=0)) as (fake, worker):
        first = worker.submit(job("first"))
        until(lambda: not worker._waiting)
        sizes = [1, 40, 2, 41, 3, 42, 4, 43, 90, *[5] * 40]
        answers = [worker.submit(job("x" * size)) for size in sizes]
        fake.go.set()
        assert [one.result(30) for one in [first, *answers]] == [["first"], *(["x" * size] for size in sizes)]
    told = [sorted(map(len, batch)) for batch in fake.batches]
    assert told[:3] == [[5], [1, 2, 3, 4], [40, 41, 42, 43]]
    assert next(k for k, batch in enumerate(told) if 90 in batch) <= 3 + AHEAD


def test_the_first_of_a_batch_waits_a_moment_for_others() -> None:
    with working(Limits(batch=2, linger=0.5)) as (fake, worker):
        fake.go.set()
        began = time.monotonic()
        answers = [worker.submit(job("a")), worker.submit(job("b"))]
        assert [one.result(30) for one in answers] == [["a"], ["b"]]
        assert fake.batches == [["a", "b"]]
        assert time.monotonic() - began < 0.4  # full: no need to wait
        worker.submit(job("c")).result(30)
        assert fake.batches[1:] == [["c"]]
        assert time.monotonic() - began > 0.5


def test_different_requests_do_not_go_together() -> None:
    other = (replace(LRP, ledger=True), replace(LRP, options='{"a": 1}'))
    requests = [LRP, ExplainRequest(("gae",)), *other, ExplainRequest(())]
    with working(Limits(linger=0)) as (fake, worker):
        answers = [worker.submit(job(str(k), request)) for k, request in enumerate(requests)]
        fake.go.set()
        assert [one.result(30) for one in answers] == [[str(k)] for k in range(5)]
    assert len(fake.batches) == 5


def test_work_that_nobody_waits_for_is_dropped() -> None:
    with working(Limits(linger=0)) as (fake, worker):
        first = worker.submit(job("first"))
        until(lambda: not worker._waiting)
        late, gone = worker.submit(job("late", seconds=0.05)), worker.submit(job("gone"))
        assert gone.cancel()
        time.sleep(0.1)
        fake.go.set()
        assert first.result(30) == ["first"]
        assert worker.submit(job("last")).result(30) == ["last"]
        assert not late.done()  # whoever asked has been told by the clock
    assert fake.batches == [["first"], ["last"]]


def test_many_passes_end_when_time_is_over(explainer: Explainer) -> None:
    """A method of a thousand passes is not run to its end for nobody; the model is as it was."""
    passes: list[int] = []
    with serving({"bert": explainer}, limits=Limits(seconds=0.5, threads=1)) as live:
        live.wait()
        with watched(explainer.model, lambda rows: (passes.append(rows), time.sleep(0.02))[0]):
            options = {"steps": 1000, "internal_batch_size": 1}
            answer = live.explain("a movie", model="bert", method="integrated_gradients", options=options)
            assert (answer.status, answer.error) == (503, "this was not explained within 0.5 seconds")
            assert int(answer.headers["retry-after"]) >= 1
        assert live.explain("a movie", model="bert").status == 200
    assert len(passes) < 60
    assert not explainer.model._forward_pre_hooks


# Too much, too slow.


def test_a_full_queue_refuses_and_says_when_to_come_again(explainer: Explainer) -> None:
    limits = Limits(queue=4, threads=1)
    with serving({"bert": explainer}, limits=limits) as live, ThreadPoolExecutor(8) as clients:
        live.wait()
        with held(explainer.model) as go:
            waiting = [clients.submit(live.explain, text, model="bert") for text in texts(3)]
            until(lambda: inside(live) == 3)
            refused = live.explain("a", "b", model="bert")
            assert (refused.status, refused.error) == (503, "3 inputs are waiting already: try again later")
            assert int(refused.headers["retry-after"]) >= 1
            waiting.append(clients.submit(live.explain, "a", model="bert"))
            until(lambda: inside(live) == 4)
            assert live.explain("b", model="bert").status == 503
            assert live.get("/v2/health/live").status == 200
            go.set()
            assert [one.result().status for one in waiting] == [200] * 4
        until(lambda: inside(live) == 0)
        assert live.explain("a", "b", "c", "good", "bad", model="bert").status == 200  # alone, it may be larger


def test_health_answers_while_the_model_works(explainer: Explainer) -> None:
    with serving({"bert": explainer}, limits=Limits(threads=1)) as live, ThreadPoolExecutor(1) as client:
        live.wait()
        with held(explainer.model) as go:
            asked = client.submit(live.explain, "a movie", model="bert")
            until(lambda: inside(live) == 1)
            assert live.get("/v2/health/live").json == {"live": True}
            assert live.get("/v2/health/ready").json == {"ready": True}
            go.set()
            assert asked.result().status == 200


def test_not_ready_while_a_model_is_being_loaded(explainer: Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    real = ServedModel.load
    monkeypatch.setattr(ServedModel, "load", lambda self: (go.wait(30), real(self))[1])
    with serving({"bert": explainer}) as live:
        assert live.get("/v2/health/ready").error == 'the model "bert" is being loaded'
        refused = live.explain("a", model="bert")
        assert (refused.status, refused.error, refused.headers["retry-after"]) == (
            503,
            live.get("/v2/health/ready").error,
            "5",
        )
        assert live.get("/v1/models/bert").json == {"name": "bert", "ready": False, "reason": "is being loaded"}
        go.set()
        live.wait()
        assert live.explain("a", model="bert").status == 200


@contextmanager
def connected(live: Live) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", live.port), timeout=20) as on:
        yield on


def send(on: socket.socket, parts: list[bytes], pause: float = 0.0) -> None:
    for part in parts:
        on.sendall(part)
        time.sleep(pause)


def everything(on: socket.socket) -> bytes:
    """Until the other side closes."""
    got = b""
    while part := on.recv(65536):
        got += part
    return got


@pytest.fixture(scope="module")
def impatient() -> Iterator[Live]:
    limits = Limits(receiving=0.4, body=2_000, threads=1)
    with serving({"bert": Explainer(*tiny("bert"))}, limits=limits) as live:
        live.wait()
        yield live


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join(
        [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *lines, "", ""]
    ).encode()


def test_a_body_that_comes_too_slowly_is_cut_off(impatient: Live) -> None:
    began = time.monotonic()
    with connected(impatient) as on:
        on.sendall(head(PATH, "Content-Length: 100") + b'{"inst')
        answer = everything(on)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive completely within 0.4 seconds" in answer
    assert 0.3 < time.monotonic() - began < 10


def test_a_body_that_trickles_is_cut_off(impatient: Live) -> None:
    """Every byte in time, the whole too late."""
    parts = [head(PATH, "Content-Length: 500"), *[b" "] * 100]
    with connected(impatient) as on, pytest.raises((BrokenPipeError, ConnectionResetError)):
        send(on, parts, pause=0.05)


@pytest.mark.parametrize("sent", [b"", b"POST /v1/mod", head(PATH, "X-A: b")[:-2]], ids=["nothing", "line", "headers"])
def test_a_head_that_comes_too_slowly_is_cut_off(impatient: Live, sent: bytes) -> None:
    began = time.monotonic()
    with connected(impatient) as on:
        on.sendall(sent)
        assert everything(on) == b""
    assert 0.3 < time.monotonic() - began < 10


def test_the_second_head_of_a_connection_is_watched_too(impatient: Live) -> None:
    with connected(impatient) as on:
        on.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert on.recv(65536).startswith(b"HTTP/1.1 200 ")
        time.sleep(0.6)  # idle is no crime
        on.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert on.recv(65536).startswith(b"HTTP/1.1 200 ")
        on.sendall(b"GET /v2/he")
        assert everything(on) == b""


def test_headers_without_end_are_cut_off(impatient: Live) -> None:
    parts = [b"GET / HTTP/1.1\r\n", *(f"X-{number}: {'a' * 100}\r\n".encode() for number in range(4_000))]
    with connected(impatient) as on, pytest.raises((BrokenPipeError, ConnectionResetError)):
        send(on, parts)


def test_bodies_that_are_too_large(impatient: Live) -> None:
    """Announced, refused at once; not announced, when it is too much."""
    with connected(impatient) as on:
        on.sendall(head(PATH, "Content-Length: 2001"))
        announced = everything(on)
    with connected(impatient) as on:
        on.sendall(head(PATH, "Transfer-Encoding: chunked") + (b"3e8\r\n" + b" " * 1000 + b"\r\n") * 3)
        chunked = everything(on)
    for answer in (announced, chunked):
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"error": "the request is larger than 2,000 bytes"}


def test_a_body_in_parts_is_read_whole(impatient: Live) -> None:
    body = json.dumps({"instances": ["a movie"]}).encode()
    with connected(impatient) as on:
        on.sendall(head(PATH, f"Content-Length: {len(body)}", "Connection: close"))
        send(on, [body[k : k + 5] for k in range(0, len(body), 5)], pause=0.01)
        assert everything(on).startswith(b"HTTP/1.1 200 ")


def test_limits_are_numbers_that_make_sense() -> None:
    from relprop.errors import InputError

    with pytest.raises(InputError, match="queue must be more than 0, got 0"):
        Limits(queue=0)
