"""Many at once: inputs go together and never mix, what is too much or too slow is turned away, health answers."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from relprop.deadline import check_deadline
from relprop.errors import InputError
from relprop.explainer import Explainer
from relprop.registry import METHODS
from relprop.serve import Limits, routes
from relprop.serve.body import ExplainRequest
from relprop.serve.limits import RefusedError
from relprop.serve.models import ServedModel
from relprop.serve.prometheus import ServiceMetrics
from relprop.serve.worker import AHEAD, GRACE, PATIENCE, SLOW_SHARE, UNITS_TOGETHER, RequestJob, Worker
from serving_for_tests import HANG, Live, patient, serving, until
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


@dataclass
class Gate:
    """Who arrives waits until it is open."""

    arrived: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        self.arrived.set()
        assert self.go.wait(HANG)


@contextmanager
def held(model: Any) -> Iterator[Gate]:
    """The model runs only once the gate is open."""
    gate = Gate()
    with watched(model, lambda _: gate.wait()):
        try:
            yield gate
        finally:
            gate.go.set()


def texts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 20))) for _ in range(count)]


def batches(live: Live) -> tuple[float, float]:
    """How many there were, and of how many inputs in all."""
    told = dict(line.rsplit(" ", 1) for line in live.get("/metrics").content.decode().splitlines())
    return float(told["relprop_batch_inputs_count"]), float(told["relprop_batch_inputs_sum"])


# Batches.


def test_requests_are_explained_together(explainer: Explainer) -> None:
    """Thirty requests, one input each, in four batches: the first goes alone while the others gather."""
    with serving({"bert": explainer}, limits=patient(batch=10)) as live, ThreadPoolExecutor(30) as clients:
        live.wait()
        with held(explainer.model) as gate:
            first = clients.submit(live.explain, "a movie", model="bert")
            assert gate.arrived.wait(HANG)
            others = [clients.submit(live.explain, text, model="bert") for text in texts(29)]
            until(lambda: live.inside == 30)
            gate.go.set()
            assert all(one.result().status == 200 for one in [first, *others])
        assert batches(live) == (4, 30)


def test_answers_never_mix(explainer: Explainer) -> None:
    """Different texts, targets, methods and options at once: each gets what it would have got alone."""
    draw = random.Random(0)
    asked = []
    for text in texts(60):
        method = draw.choice(["lrp_ah_ln", "gradient_x_input", "rollout", "attn_lrp"])
        target = draw.choice([None, "positive", 0, ("positive", "negative")])
        options = {"start_block": draw.choice([0, 1])} if method == "rollout" else {}
        asked.append((text, {"method": method, "target": target, **options}))
    with serving({"bert": explainer}, limits=patient()) as live, ThreadPoolExecutor(60) as clients:
        live.wait()

        def ask(one: tuple[str, dict[str, Any]]) -> Any:
            text, given = one
            options = {name: value for name, value in given.items() if name == "start_block"}
            return live.explain(text, model="bert", method=given["method"], target=given["target"], options=options)

        with held(explainer.model) as gate:
            futures = [clients.submit(ask, one) for one in asked]
            until(lambda: live.inside == 60)
            gate.go.set()
            answers = [one.result() for one in futures]
        assert batches(live)[0] < 60  # some did go together
    for (text, given), answer in zip(asked, answers, strict=True):
        found, own = answer.json["explanations"][0], explainer(text, **given)
        assert (found["text"], found["method"], found["target"]) == ([text], own.method, own.target)
        assert found["scores"] == pytest.approx(own.scores, rel=1e-4, abs=1e-5)


def test_one_bad_input_spoils_no_other(explainer: Explainer) -> None:
    """Its error is its own; the others of its batch are answered, those of its own request are not."""
    with serving({"bert": explainer}, limits=patient()) as live, ThreadPoolExecutor(8) as clients:
        live.wait()
        with held(explainer.model) as gate:
            first = clients.submit(live.explain, "a movie", model="bert")
            assert gate.arrived.wait(HANG)
            good = [clients.submit(live.explain, text, model="bert") for text in texts(5)]
            blank = clients.submit(live.explain, "good", " ", "bad", model="bert")
            lost = clients.submit(live.explain, "good", model="bert", target="nobody")
            until(lambda: live.inside == 10)
            gate.go.set()
            assert [one.result().status for one in [first, *good]] == [200] * 6
        assert blank.result().error == "instance 1: the text is empty: there is nothing to explain"
        assert (blank.result().status, lost.result().status) == (400, 400)
        assert 'target "nobody" is unknown' in lost.result().error


FAST, SLOW = ExplainRequest(("lrp",)), ExplainRequest(("occlusion",))


def job(text: str, request: ExplainRequest = FAST, size: int | None = None) -> RequestJob:
    return RequestJob("m", request, [(text, size or len(text))], None, lambda results: results)


class Fake(ServedModel):
    """Answers with its inputs, and keeps the batches; the first waits at the gate. An input may be an error."""

    def __init__(self) -> None:
        super().__init__("m", "m")
        self.batches: list[list[Any]] = []
        self.gate = Gate()

    def load(self) -> None:
        self.problem = None

    def check_work(self, request: ExplainRequest, inputs: Any, limits: Limits) -> None:
        if "too much" in inputs:
            raise RefusedError(413, "too much")

    def answer(self, request: ExplainRequest, inputs: Any, targets: Any) -> list[Any]:
        self.gate.wait()
        check_deadline()
        for one in inputs:
            if isinstance(one, BaseException):
                raise one
        self.batches.append(list(inputs))
        return list(inputs)


class Clock:
    """The worker's time, which only a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Working:
    fake: Fake
    worker: Worker
    clock: Clock

    def occupied(self) -> Future[Any]:
        """A first job, which is with the model: whatever is submitted next waits."""
        first = self.worker.submit(job("first"))
        assert self.fake.gate.arrived.wait(HANG)
        return first

    def go(self) -> None:
        self.fake.gate.go.set()


@contextmanager
def working(**limits: Any) -> Iterator[Working]:
    fake, clock = Fake(), Clock()
    worker = Worker({"m": fake}, patient(**limits), ServiceMetrics(), clock=clock)
    worker.start()
    try:
        yield Working(fake, worker, clock)
    finally:
        fake.gate.go.set()
        worker.stop()


def results(futures: list[Future[Any]]) -> list[Any]:
    return [one.result(HANG) for one in futures]


def test_inputs_of_like_size_go_together_and_none_waits_for_ever() -> None:
    """The oldest always goes, with its nearest; one that nobody is like is passed only by those just behind it."""
    with working(batch=4) as w:
        first = w.occupied()
        sizes = [1, 40, 2, 41, 3, 42, 4, 43, 90, *[5] * 40]
        answers = [w.worker.submit(job("x" * size)) for size in sizes]
        w.go()
        assert results([first, *answers]) == [["first"], *(["x" * size] for size in sizes)]
    told = [sorted(map(len, batch)) for batch in w.fake.batches]
    assert told[:3] == [[5], [1, 2, 3, 4], [40, 41, 42, 43]]
    assert next(k for k, batch in enumerate(told) if 90 in batch) <= 3 + AHEAD


def test_the_first_of_a_batch_waits_for_others_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with working(batch=2, linger=HANG / 2) as w:
        w.go()
        lingers = threading.Event()
        wait_for = w.worker._changed.wait_for

        def seen(true: Callable[[], Any], seconds: float | None = None) -> Any:
            if seconds == HANG / 2:
                lingers.set()
            return wait_for(true, seconds)

        monkeypatch.setattr(w.worker._changed, "wait_for", seen)
        one = w.worker.submit(job("a"))
        assert lingers.wait(HANG)
        assert results([one, w.worker.submit(job("b"))]) == [["a"], ["b"]]
    assert w.fake.batches == [["a", "b"]]
    with working(batch=2, linger=0.01) as w:
        w.go()
        assert results([w.worker.submit(job("alone"))]) == [["alone"]]


def test_different_requests_do_not_go_together() -> None:
    other = (replace(FAST, ledger=True), replace(FAST, options='{"a": 1}'))
    requests = [FAST, ExplainRequest(("gae",)), *other, ExplainRequest(())]
    with working() as w:
        first = w.occupied()
        answers = [w.worker.submit(job(str(k), request)) for k, request in enumerate(requests)]
        w.go()
        assert results([first, *answers]) == [["first"], *([str(k)] for k in range(5))]
    assert len(w.fake.batches) == 6


def test_large_inputs_go_in_small_batches() -> None:
    """So many units are padded to one batch, and no more."""
    with working() as w:
        first = w.occupied()
        answers = [w.worker.submit(job(str(k), size=UNITS_TOGETHER // 3)) for k in range(6)]
        huge = w.worker.submit(job("huge", size=2 * UNITS_TOGETHER))
        w.go()
        results([first, *answers, huge])
    assert [len(batch) for batch in w.fake.batches] == [1, 3, 3, 1]


# What goes first.


def test_fast_methods_go_before_slow_ones() -> None:
    with working() as w:
        first = w.occupied()
        slow = [w.worker.submit(job(f"slow {k}", SLOW)) for k in range(4)]
        w.clock.now += 1
        fast = [w.worker.submit(job(f"fast {k}")) for k in range(2)]
        w.go()
        results([first, *slow, *fast])
    size = 24 // SLOW_SHARE
    assert w.fake.batches == [["first"], ["fast 0", "fast 1"], [f"slow {k}" for k in range(size)], ["slow 3"]]


def test_a_large_request_lets_others_pass_after_its_first_batch() -> None:
    with working(batch=2) as w:
        first = w.occupied()
        large = RequestJob("m", FAST, [(str(k), 1) for k in range(5)], None, lambda results: results)
        answer = w.worker.submit(large)
        w.clock.now += 1
        small = w.worker.submit(job("small", replace(FAST, ledger=True)))
        w.go()
        assert results([first, answer, small])[1:] == [["0", "1", "2", "3", "4"], ["small"]]
    assert w.fake.batches == [["first"], ["0", "1"], ["small"], ["2", "3"], ["4"]]


def test_slow_methods_are_not_starved() -> None:
    """Only fast ones that come within a share of a request's time pass them."""
    with working() as w:
        first = w.occupied()
        slow = w.worker.submit(job("slow", SLOW))
        w.clock.now += PATIENCE * HANG + 1
        late = w.worker.submit(job("late"))
        w.go()
        results([first, slow, late])
    assert w.fake.batches == [["first"], ["slow"], ["late"]]


def test_the_registry_says_which_methods_are_slow() -> None:
    slow = {"integrated_gradients", "smoothgrad", "occlusion", "shapley", "alti", "decompx", "attention_flow"}
    assert {name for name in METHODS.names() if ExplainRequest((name,)).slow} == slow
    assert not ExplainRequest(()).slow
    assert not ExplainRequest(("lrp", "gae", "rollout")).slow
    given = ExplainRequest(("integrated_gradients", "lrp"), options='{"steps": 7}')
    assert given.passes(100) == 8 + 1
    assert ExplainRequest(("shapley",)).passes(4) == 1 + 10 * (2 * 4 + 1)
    assert ExplainRequest(("shapley",), options='{"max_evals": 50}').passes(4) == 51


# Work that nobody waits for, errors, and a worker that has ended.


def test_work_that_nobody_waits_for_is_dropped() -> None:
    with working() as w:
        first = w.occupied()
        late, gone = w.worker.submit(job("late")), w.worker.submit(job("gone"))
        assert gone.cancel()
        w.clock.now += HANG
        fresh = w.worker.submit(job("fresh"))
        w.go()
        assert results([fresh]) == [["fresh"]]
        for one in (first, late):
            with pytest.raises(RefusedError, match="not explained within 600 seconds"):
                one.result(HANG)
        assert w.worker._inside == 0
    assert w.fake.batches == [["fresh"]]


def test_a_batch_goes_on_while_one_client_waits() -> None:
    """Whoever has waited too long is told so."""
    with working() as w:
        old = w.occupied()
        w.clock.now += 1
        both = [w.worker.submit(job("old")), w.worker.submit(job("new"))]
        first_gate, w.fake.gate = w.fake.gate, Gate()
        first_gate.go.set()
        assert results([old]) == [["first"]]
        assert w.fake.gate.arrived.wait(HANG)
        assert both[0].cancel()
        w.go()
        assert results(both[1:]) == [["new"]]
    assert w.fake.batches == [["first"], ["old", "new"]]


class Odd(BaseException):
    """Neither an error nor an exit."""


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), MemoryError(), RecursionError(), Odd(), ValueError()]
)
def test_any_exception_fails_its_job_alone(error: BaseException) -> None:
    """Whoever waits gets an ordinary error, and the worker goes on."""
    with working() as w:
        w.go()
        assert results([w.worker.submit(job("a"))]) == [["a"]]
        bad = RequestJob("m", FAST, [(error, 1)], None, lambda results: results)  # type: ignore[list-item]
        with pytest.raises(RuntimeError, match="a request failed"):
            w.worker.submit(bad).result(HANG)
        assert results([w.worker.submit(job("b"))]) == [["b"]]
        assert w.worker.problem is None


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError(), Odd()])
def test_any_exception_of_writing_fails_its_job_alone(error: BaseException) -> None:
    def write(_: Any) -> str:
        raise error

    with working() as w:
        w.go()
        with pytest.raises(RuntimeError, match="a request failed"):
            w.worker.submit(RequestJob("m", FAST, [("a", 1)], None, write)).result(HANG)
        assert results([w.worker.submit(job("b"))]) == [["b"]]


def test_what_is_too_much_is_refused_before_any_of_it_is_done() -> None:
    with working(batch=1) as w:
        first = w.occupied()
        inputs = [("one", 3), ("too much", 3)]
        much = w.worker.submit(RequestJob("m", FAST, inputs, None, lambda results: results))
        w.go()
        with pytest.raises(RefusedError, match="too much"):
            much.result(HANG)
        results([first, w.worker.submit(job("last"))])
    assert w.fake.batches == [["first"], ["last"]]


def test_a_batch_beyond_its_limit_makes_readiness_false() -> None:
    with working() as w:
        first = w.occupied()
        assert w.worker.problem is None
        w.clock.now += HANG + GRACE
        assert w.worker.problem is None
        w.clock.now += 3
        assert w.worker.problem == "a batch runs 5 seconds beyond its limit"
        with pytest.raises(RefusedError, match="5 seconds beyond its limit: try again later"):
            w.worker.submit(job("next"))
        w.go()
        with pytest.raises(RefusedError):
            first.result(HANG)
        until(lambda: w.worker.problem is None)
        assert results([w.worker.submit(job("last"))]) == [["last"]]


def test_a_dead_worker_makes_readiness_false(explainer: Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is said at once, also to those who wait."""
    with serving({"bert": explainer}) as live, ThreadPoolExecutor(2) as clients:
        live.wait()
        worker = live.app.state.service.worker
        with held(explainer.model) as gate:
            asked = clients.submit(live.explain, "a movie", model="bert")
            assert gate.arrived.wait(HANG)
            waiting = clients.submit(live.explain, "a film", model="bert")
            until(lambda: live.inside == 2)

            def broken(*_: Any) -> None:
                raise SystemExit(1)

            monkeypatch.setattr(worker, "_note_time", broken)
            gate.go.set()
            assert asked.result().status == 200
            ended = waiting.result()
        assert (ended.status, ended.error) == (503, "the service has stopped")
        until(lambda: not worker._calling.is_alive())
        ready = live.get("/v2/health/ready")
        assert (ready.status, ready.error) == (
            503,
            "the thread that calls the models has ended; the log has the reason",
        )
        assert live.get("/v2/health/live").status == 200
        assert live.explain("a movie", model="bert").status == 503


def test_many_passes_end_when_time_is_over(explainer: Explainer) -> None:
    """A method of a thousand passes is not run to its end for nobody; the model is as it was."""
    passes: list[int] = []
    with serving({"bert": explainer}) as live, ThreadPoolExecutor(1) as client:
        live.wait()
        with held(explainer.model) as gate, watched(explainer.model, passes.append):
            options = {"steps": 1000, "internal_batch_size": 1}
            asked = client.submit(live.explain, "a movie", model="bert", method="integrated_gradients", options=options)
            assert gate.arrived.wait(HANG)
            live.move_clock(HANG + 1)
            answer = asked.result()
            assert (answer.status, answer.error) == (503, "this was not explained within 600 seconds")
            assert int(answer.headers["retry-after"]) >= 1
            gate.go.set()
            until(lambda: not live.app.state.service.worker._deadlines)
        assert len(passes) <= 1  # the one that had begun
        assert live.explain("a movie", model="bert").status == 200
    assert not explainer.model._forward_pre_hooks


# Too much, too slow.


def test_a_full_queue_refuses_and_says_when_to_come_again(explainer: Explainer) -> None:
    with serving({"bert": explainer}, limits=patient(queue=4)) as live, ThreadPoolExecutor(8) as clients:
        live.wait()
        with held(explainer.model) as gate:
            waiting = [clients.submit(live.explain, text, model="bert") for text in texts(3)]
            until(lambda: live.inside == 3)
            refused = live.explain("a", "b", model="bert")
            assert (refused.status, refused.error) == (503, "3 inputs are waiting already: try again later")
            assert int(refused.headers["retry-after"]) >= 1
            waiting.append(clients.submit(live.explain, "a", model="bert"))
            until(lambda: live.inside == 4)
            assert live.explain("b", model="bert").status == 503
            assert live.get("/v2/health/live").status == 200
            gate.go.set()
            assert [one.result().status for one in waiting] == [200] * 4
        until(lambda: live.inside == 0)
        assert live.explain("a", "b", "c", "good", "bad", model="bert").status == 200  # alone, it may be larger


def test_small_requests_are_explained_beside_a_long_batch(explainer: Explainer) -> None:
    """One that holds its model does not hold others; what is slow or large itself waits."""
    models = {"bert": explainer, "other": Explainer(deepcopy(explainer.model), explainer.tokenizer)}
    limits = patient(beside=0.001, batch=4)
    with serving(models, limits=limits) as live, ThreadPoolExecutor(3) as clients:
        live.wait()
        slow = {"method": "integrated_gradients", "options": {"steps": 2}}
        with held(explainer.model) as gate:
            heavy = clients.submit(live.explain, "a movie", model="bert", **slow)
            assert gate.arrived.wait(HANG)
            others = [clients.submit(live.explain, "a film", model="other", **slow)]
            others.append(clients.submit(live.explain, *texts(5), model="other"))
            until(lambda: live.inside == 7)
            for text in texts(6):
                assert live.explain(text, model="other").status == 200
            assert live.inside == 7
            assert not any(one.done() for one in (heavy, *others))
            gate.go.set()
            assert [one.result().status for one in (heavy, *others)] == [200] * 3


def test_short_batches_are_not_disturbed(explainer: Explainer) -> None:
    """Small requests wait for the thread that batches them, unless it is held for long."""
    with serving({"bert": explainer}, limits=patient(beside=HANG)) as live, ThreadPoolExecutor(9) as clients:
        live.wait()
        with held(explainer.model) as gate:
            first = clients.submit(live.explain, "a", model="bert")
            assert gate.arrived.wait(HANG)
            asked = [clients.submit(live.explain, text, model="bert") for text in texts(8)]
            until(lambda: live.inside == 9)
            gate.go.set()
            assert [one.result().status for one in (first, *asked)] == [200] * 9
        assert batches(live) == (2, 9)


def test_large_requests_leave_room_for_small_ones(explainer: Explainer) -> None:
    """They may take three quarters of the queue."""
    with serving({"bert": explainer}, limits=patient(queue=8)) as live, ThreadPoolExecutor(4) as clients:
        live.wait()
        with held(explainer.model) as gate:
            waiting = [clients.submit(live.explain, "a", model="bert")]
            assert gate.arrived.wait(HANG)
            waiting.append(clients.submit(live.explain, *texts(5), model="bert"))
            until(lambda: live.inside == 6)
            assert live.explain(*texts(5), model="bert").status == 503
            waiting.append(clients.submit(live.explain, "a", "b", model="bert"))
            until(lambda: live.inside == 8)
            assert live.explain("a", model="bert").status == 503
            gate.go.set()
            assert [one.result().status for one in waiting] == [200] * 3


def test_health_answers_while_the_model_works(explainer: Explainer) -> None:
    with serving({"bert": explainer}) as live, ThreadPoolExecutor(1) as client:
        live.wait()
        with held(explainer.model) as gate:
            asked = client.submit(live.explain, "a movie", model="bert")
            assert gate.arrived.wait(HANG)
            assert live.get("/v2/health/live").json == {"live": True}
            assert live.get("/v2/health/ready").json == {"ready": True}
            gate.go.set()
            assert asked.result().status == 200


def test_health_answers_while_a_large_body_is_read(explainer: Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the three steps of reading is taken in a thread; of a small body, at once."""
    gate, threads = Gate(), set[str]()

    def slowly(read: Callable[..., Any]) -> Callable[..., Any]:
        def reads(*given: Any) -> Any:
            threads.add(threading.current_thread().name)
            gate.wait()
            return read(*given)

        return reads

    for name in ("validated_body", "explain_request", "_sized_inputs"):
        monkeypatch.setattr(routes, name, slowly(getattr(routes, name)))
    body = json.dumps({"instances": ["a movie"]}).encode()
    with serving({"bert": explainer}) as live, ThreadPoolExecutor(1) as client:
        live.wait()
        asked = client.submit(live.post, PATH, body + b" " * routes.LARGE)
        assert gate.arrived.wait(HANG)
        assert live.get("/v2/health/live").json == {"live": True}
        gate.go.set()
        assert asked.result().status == 200
        assert all(name.startswith("asyncio_") for name in threads)
        assert live.post(PATH, body).status == 200
        assert not all(name.startswith("asyncio_") for name in threads)  # in the event loop's own


def test_not_ready_while_a_model_is_being_loaded(explainer: Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    real = ServedModel.load
    monkeypatch.setattr(ServedModel, "load", lambda self: (go.wait(HANG), real(self))[1])
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


def test_a_model_that_exits_while_it_is_loaded_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are."""

    def exits(_: Any) -> None:
        raise SystemExit(3)

    monkeypatch.setattr("relprop.serve.models.Explainer", exits)
    broken = ServedModel("broken", "sentiment")
    monkeypatch.setattr("relprop.serve.models.isinstance", lambda *_: False, raising=False)
    broken.load()
    assert broken.problem == "cannot be served: SystemExit: 3"


# Slow clients. The server's clock is moved by hand: nothing is cut off by itself.


@contextmanager
def connected(live: Live) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", live.port), timeout=HANG) as on:
        until(lambda: connections(live))
        yield on


def connections(live: Live) -> list[Any]:
    assert live.server is not None
    return list(live.server.server_state.connections)


def everything(on: socket.socket, idle: Callable[[], None] = lambda: None) -> bytes:
    """Until the other side closes. `idle` is called whenever nothing has come for the socket's timeout."""
    got = b""
    while True:
        try:
            part = on.recv(65536)
        except TimeoutError:
            idle()
        except ConnectionResetError:  # it closed before it had read everything
            return got
        else:
            if not part:
                return got
            got += part


def one_answer(on: socket.socket) -> bytes:
    """That the service lives, on a connection that stays open."""
    got = b""
    while not got.endswith(b"}"):
        got += on.recv(65536)
    return got


def cut_off(live: Live, on: socket.socket) -> bytes:
    """What comes until the other side closes, as it does some time after its clock was moved."""
    on.settimeout(0.1)
    live.move_clock(HANG + 1)
    return everything(on, lambda: live.move_clock(HANG + 1))  # once more: the bytes may have come after the last time


@pytest.fixture
def live() -> Iterator[Live]:
    with serving({"bert": Explainer(*tiny("bert"))}, limits=patient(body=2_000)) as live:
        live.wait()
        until(lambda: not connections(live))
        yield live


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join(
        [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *lines, "", ""]
    ).encode()


def being_answered(live: Live) -> bool:
    """Whether the server has read a request's head."""
    return any(one.cycle is not None and not one.cycle.response_complete for one in connections(live))


def test_a_body_that_comes_too_slowly_is_cut_off(live: Live) -> None:
    with connected(live) as on:
        on.sendall(head(PATH, "Content-Length: 100") + b'{"inst')
        until(lambda: being_answered(live))
        live.move_clock(HANG + 1)
        answer = everything(on)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive completely within 600 seconds" in answer


def test_a_body_that_trickles_is_cut_off(live: Live) -> None:
    """Every byte in time, the whole too late."""
    with connected(live) as on:
        on.sendall(head(PATH, "Content-Length: 500"))
        until(lambda: being_answered(live))
        for _ in range(3):
            on.sendall(b" ")
            live.move_clock(HANG / 2.5)
        assert everything(on).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("sent", [b"", b"POST /v1/mod", head(PATH, "X-A: b")[:-2]], ids=["nothing", "line", "headers"])
def test_a_head_that_comes_too_slowly_is_cut_off(live: Live, sent: bytes) -> None:
    with connected(live) as on:
        on.sendall(sent)
        assert cut_off(live, on) == b""


def test_the_second_head_of_a_connection_is_watched_too(live: Live) -> None:
    with connected(live) as on:
        on.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert one_answer(on).startswith(b"HTTP/1.1 200 ")
        live.move_clock(HANG + 1)  # idle is no crime
        on.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert one_answer(on).startswith(b"HTTP/1.1 200 ")
        on.sendall(b"GET /v2/he")
        assert cut_off(live, on) == b""


def test_headers_without_end_are_cut_off(live: Live) -> None:
    with connected(live) as on:
        try:
            on.sendall(b"GET / HTTP/1.1\r\n")
            for number in range(4_000):
                on.sendall(f"X-{number}: {'a' * 100}\r\n".encode())
        except (BrokenPipeError, ConnectionResetError):
            return
        assert everything(on) == b""


def test_bodies_that_are_too_large(live: Live) -> None:
    """Announced, refused at once; not announced, when it is too much."""
    with connected(live) as on:
        on.sendall(head(PATH, "Content-Length: 2001"))
        announced = everything(on)
    with connected(live) as on:
        on.sendall(head(PATH, "Transfer-Encoding: chunked") + (b"3e8\r\n" + b" " * 1000 + b"\r\n") * 3)
        chunked = everything(on)
    for answer in (announced, chunked):
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"error": "the request is larger than 2,000 bytes"}


def test_a_body_in_parts_is_read_whole(live: Live) -> None:
    body = json.dumps({"instances": ["a movie"]}).encode()
    with connected(live) as on:
        on.sendall(head(PATH, f"Content-Length: {len(body)}", "Connection: close"))
        until(lambda: being_answered(live))
        for k in range(0, len(body), 5):
            on.sendall(body[k : k + 5])
        assert everything(on).startswith(b"HTTP/1.1 200 ")


def test_limits_are_numbers_that_make_sense() -> None:
    with pytest.raises(InputError, match="queue must be more than 0, got 0"):
        Limits(queue=0)
