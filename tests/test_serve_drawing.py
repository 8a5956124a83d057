"""Drawing in a process of its own: stopped when its time is over, and none the worse for it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from relprop.errors import InputError
from relprop.serve.body import ExplainRequest
from relprop.serve.drawing import COMMAND, DrawingError, DrawingProcess
from relprop.serve.prometheus import ServiceMetrics
from relprop.serve.worker import RequestJob, Worker
from serving_for_tests import HANG, patient, serving, until
from test_serve import ASPIRIN, graphormer
from test_serve_load import Fake


@pytest.fixture
def drawing() -> Iterator[DrawingProcess]:
    process = DrawingProcess()
    yield process
    process.close()


def test_it_computes_what_it_is_told_in_a_process_that_stays(drawing: DrawingProcess) -> None:
    first = drawing.call(os.getpid, HANG)
    assert first != os.getpid()
    assert drawing.call(os.getpid, HANG) == first
    assert drawing.call(partial(os.write, 1, b"printed"), HANG) == 7  # which does not come between its answers
    assert drawing.call(partial(pow, 2, 5), HANG) == 32


def test_errors_come_back(drawing: DrawingProcess) -> None:
    with pytest.raises(ZeroDivisionError):
        drawing.call(partial(divmod, 1, 0), HANG)
    assert drawing.call(os.getpid, HANG) != os.getpid()


def test_it_is_killed_when_its_time_is_over_and_starts_again(drawing: DrawingProcess) -> None:
    first = drawing.call(os.getpid, HANG)
    with pytest.raises(DrawingError):
        drawing.call(partial(time.sleep, 10 * HANG), 0.1)
    assert drawing.call(os.getpid, HANG) not in (first, os.getpid())


def test_it_may_crash(drawing: DrawingProcess) -> None:
    with pytest.raises(DrawingError):
        drawing.call(partial(os._exit, 1), HANG)
    assert drawing.call(partial(pow, 2, 5), HANG) == 32


def test_what_only_the_service_knows_is_drawn_there(drawing: DrawingProcess) -> None:
    """A class of the user's own script."""
    module = type(sys)("only_here")
    sys.modules["only_here"] = module
    exec("def where():\n    import os\n    return os.getpid()", module.__dict__)
    try:
        assert drawing.call(module.where, HANG) == os.getpid()
    finally:
        del sys.modules["only_here"]


def test_a_slow_drawing_holds_nobody_who_wants_none() -> None:
    """It is refused when its time is over, and the next is drawn."""
    fake = Fake()
    fake.gate.go.set()
    worker = Worker({"m": fake}, patient(), ServiceMetrics())
    knows_this_file = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})"
    worker._drawer = DrawingProcess((*COMMAND[:2], f"{knows_this_file}; {COMMAND[2]}"))
    worker.start()
    request = ExplainRequest(("lrp",))

    def job(write: Any, draws: bool) -> RequestJob:
        return RequestJob("m", request, [("a", 1)], None, write, draws)

    slow = worker.submit(job(partial(_sleep, 10 * HANG), True))
    until(lambda: worker._drawer._process is not None)
    quick = [worker.submit(job(lambda results: "plain", False)) for _ in range(3)]
    assert [one.result(HANG) for one in quick] == ["plain"] * 3
    assert not slow.done()
    assert worker._drawer._process is not None
    worker._drawer._process.kill()  # as its timer would
    with pytest.raises(RuntimeError, match="a request failed"):
        slow.result(HANG)
    assert worker.submit(job(repr, True)).result(HANG) == "['a']"
    worker.stop()
    assert worker._drawer._process is None


def _sleep(seconds: float, results: Any) -> None:
    time.sleep(seconds)


def test_molecules_are_laid_out_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers have the places that the library finds; here nothing is laid out."""
    expected = graphormer()(ASPIRIN).part.graph.places

    def refuse(*_: Any, **__: Any) -> None:
        raise InputError("laid out in the service itself")

    with serving({"graphs": graphormer()}) as live:
        live.wait()
        monkeypatch.setattr("rdkit.Chem.rdDepictor.Compute2DCoords", refuse)
        answer = live.explain(ASPIRIN, model="graphs")
        assert answer.status == 200, answer.content
        assert answer.json["explanations"][0]["graph"]["places"] == pytest.approx(expected)
        drawn = live.post("/v1/models/graphs:render", {"instances": [ASPIRIN], "format": "html"})
        assert drawn.status == 200, drawn.content
        assert live.post("/v1/models/graphs:predict", {"instances": [ASPIRIN]}).status == 200
