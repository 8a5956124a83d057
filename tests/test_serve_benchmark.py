"""The benchmark of the service measures what it says; the bounds themselves are for a quiet machine."""

from __future__ import annotations

import pytest

import serving as benchmark
from relprop.explainer import Explainer
from relprop.serve import Limits
from serving_for_tests import serving

TEXTS = ["a movie", "a dull film", "a gorgeous, witty, seductive movie."]


def test_clients_count_every_answer() -> None:
    """Explanations with their latency; refusals by their status alone."""
    with serving({"sentiment": Explainer("sentiment")}, limits=Limits(queue=3, threads=1)) as live:
        live.wait()
        seen = benchmark.clients(live.port, 12, 1.0, TEXTS)
        told = live.get("/metrics").content.decode()
        resident = benchmark.resident(live.port)
    assert set(seen.statuses) == {"200", "503"}
    assert len(seen.latencies) == seen.statuses["200"] > 0
    assert seen.rate == len(seen.latencies)
    route = 'route="/v1/models/{name}:explain"'
    assert f'relprop_requests_total{{code="200",{route}}} {float(seen.statuses["200"])}' in told
    assert resident > 1e8


def test_the_ceiling_does_all_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text once a round, in batches no larger than the service's; the rate is texts by seconds."""
    clock = iter(range(10_000))
    monkeypatch.setattr(benchmark, "BATCH", 2)
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: float(next(clock)))
    rate, batch = benchmark.ceiling(TEXTS, 0.0, together=3)
    assert batch == 1.0  # one tick between the two readings around each
    assert 0 < rate < 2  # of two texts at most, in more than one tick


def test_percentile() -> None:
    assert benchmark.percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert benchmark.percentile([float(k) for k in range(100)], 0.5) == 50.0
