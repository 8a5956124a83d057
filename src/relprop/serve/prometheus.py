"""Counters and histograms of the service, in Prometheus's format."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class ServiceMetrics:
    """One registry per service, so that a process can hold several services."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        ProcessCollector(registry=own)
        route = ("route",)
        self.requests = Counter("relprop_requests", "Requests answered.", (*route, "code"), registry=own)
        self.latency = Histogram(
            "relprop_request_seconds", "From arrival to answer.", route, buckets=SECONDS, registry=own
        )
        self.depth = Gauge("relprop_queue_inputs", "Inputs that wait or are worked on.", registry=own)
        self.batch = Histogram(
            "relprop_batch_inputs", "Inputs explained together.", buckets=(1, 2, 4, 8, 16, 32, 64, 128), registry=own
        )
        self.seconds = Histogram("relprop_batch_seconds", "What a batch took.", buckets=SECONDS, registry=own)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class RequestCounts:
    """Middleware that counts every answer under its route, never under a path that the client invented."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, code = time.monotonic(), 500

        async def send_and_note(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            metrics: ServiceMetrics = scope["app"].state.service.metrics
            metrics.requests.labels(route, code).inc()
            metrics.latency.labels(route).observe(time.monotonic() - began)
