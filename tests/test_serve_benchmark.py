"""The benchmark of the service measures what it says; the bounds themselves are for a quiet machine."""

from __future__ import annotations

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.requests import Request

import serving as benchmark
from relprop.explainer import Explainer
from serving_for_tests import patient, serving, until
from test_serve_load import held

TEXTS = ["a movie", "a dull film", "a gorgeous, witty, seductive movie."]


def test_clients_count_every_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Explanations with their latency; refusals by their status alone. Their time ends when both have come."""
    now, explainer = [0.0], Explainer("sentiment")
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: now[0])

    def answered(code: str) -> float:
        """How many answers had this status, as the service tells it; a full queue refuses before there is a route."""
        told = live.get("/metrics").content.decode()
        line = rf'^relprop_requests_total{{code="{code}",route="(?:.*:explain|other)"}} (.*)$'
        return sum(map(float, re.findall(line, told, re.MULTILINE)))

    with serving({"sentiment": explainer}, limits=patient(queue=3)) as live, ThreadPoolExecutor(1) as pool:
        live.wait()
        with held(explainer.model) as gate:
            asked = pool.submit(benchmark.clients, live.port, 12, 1.0, TEXTS)
            until(lambda: live.inside == 3)
            until(lambda: answered("503") > 0)
            gate.go.set()
            until(lambda: answered("200") > 0)
        now[0] = 2.0
        seen, resident = asked.result(), benchmark.resident(live.port)
        assert seen.statuses["200"] == answered("200")
    assert set(seen.statuses) == {"200", "503"}
    assert len(seen.latencies) == seen.statuses["200"] > 0
    assert seen.rate == len(seen.latencies)
    assert resident > 1e8


def test_the_ceiling_does_all_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text once a round, in batches no larger than the service's; the rate is texts by seconds."""
    clock = iter(range(10_000))
    monkeypatch.setattr(benchmark, "BATCH", 2)
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: float(next(clock)))
    rate, batch = benchmark.ceiling(TEXTS, 0.0, together=3)
    assert batch == 1.0  # one tick between the two readings around each
    assert 0 < rate < 2  # of two texts at most, in more than one tick


def test_a_hold_of_the_event_loop_is_seen() -> None:
    """In processor time; what the clock alone tells (a busy machine) is no hold."""

    async def holds() -> list[float]:
        ticks, request = benchmark.Ticks(), Request({"type": "http"})
        await ticks.answer(request)
        await asyncio.sleep(2 * benchmark.TICK)
        await ticks.answer(request)
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        while not ticks.longest:
            await asyncio.sleep(0)
        seen = [float(bytes((await ticks.answer(request)).body))]
        ticks.note(clock=9.0, used=0.2)
        return [*seen, ticks.longest]

    seen, noted = asyncio.run(holds())
    assert seen >= 0.1 - 2 * benchmark.TICK
    assert noted == pytest.approx(0.2 - benchmark.TICK)


def test_percentile() -> None:
    assert benchmark.percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert benchmark.percentile([float(k) for k in range(100)], 0.5) == 50.0
