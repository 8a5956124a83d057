"""What a running application has: its models, the worker that asks them, its counters."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi import Request

from relprop.errors import InputError, unknown_name
from relprop.serve.limits import Limits, RefusedError
from relprop.serve.metrics import Metrics
from relprop.serve.models import Served
from relprop.serve.worker import Job, Worker

TURN = 0.001  # seconds after which Python lets another thread go on: health is answered while the model works


class Service:
    """Made anew whenever the application starts, which loads the models in the background."""

    def __init__(self, models: Mapping[str, Any], limits: Limits) -> None:
        self.limits, self.metrics = limits, Metrics()
        self.models = {name: Served(name, source) for name, source in models.items()}
        self.worker = Worker(self.models, limits, self.metrics)

    def model(self, name: str) -> Served:
        if name not in self.models:
            raise RefusedError(404, str(unknown_name("model", name, self.models)))
        return self.models[name]

    async def answer(self, job: Job) -> Any:
        """The job's, or a refusal when its time is over; then the worker drops what is left of it."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await asyncio.wrap_future(self.worker.submit(job))
        except TimeoutError:
            reason = f"this was not explained within {self.limits.seconds:g} seconds"
            raise RefusedError(503, reason, retry_after=5) from None

    def problems(self) -> list[str]:
        """Why it is not ready."""
        return [f'the model "{name}" {one.problem}' for name, one in self.models.items() if one.problem is not None]


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def named(models: str | Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Models under the names that addresses have: the last part of a folder or hub id, unless told."""
    if isinstance(models, Mapping):
        pairs = list(models.items())
    else:
        pairs = [_named(one) for one in ([models] if isinstance(models, str) else models)]
    for name, _ in pairs:
        if not re.fullmatch(r"[\w.-]+", name):
            raise InputError(f'a model\'s name has letters, digits, ".", "-" and "_", got "{name}"; say NAME=MODEL')
    if not pairs or len(dict(pairs)) < len(pairs):
        raise InputError("there is no model to serve" if not pairs else "two models have one name; say NAME=MODEL")
    return dict(pairs)


def _named(model: str) -> tuple[str, str]:
    name, equals, source = model.partition("=")
    return (name, source) if equals else (Path(model).expanduser().resolve().name, model)


@contextmanager
def quick_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
