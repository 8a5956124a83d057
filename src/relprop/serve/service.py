"""The state of a running application: its models, the worker that calls them, and its counters."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fastapi import Request

from relprop.errors import InputError, unknown_name
from relprop.serve.limits import Limits, RefusedError
from relprop.serve.models import ModelSource, ServedModel
from relprop.serve.prometheus import ServiceMetrics
from relprop.serve.worker import RequestJob, Worker, Written, out_of_time

Models = str | Iterable[str] | Mapping[str, ModelSource]
SWITCH_INTERVAL = 0.001  # seconds until Python runs another thread: health is answered while the model works


class Service:
    """Created whenever the application starts; loads the models in the background.

    `give_up` is called if none of them can be served.
    """

    def __init__(self, models: Mapping[str, ModelSource], limits: Limits, give_up: Callable[[], None]) -> None:
        self.limits, self.metrics = limits, ServiceMetrics()
        self.models = {name: ServedModel(name, source) for name, source in models.items()}
        self.worker = Worker(self.models, limits, self.metrics, on_loaded=self._loaded)
        self._give_up = give_up

    def _loaded(self) -> None:
        if self.is_hopeless:
            self._give_up()

    @property
    def is_hopeless(self) -> bool:
        """Whether every model has failed to load."""
        return all(model.problem is not None and not model.loading for model in self.models.values())

    def model(self, name: str) -> ServedModel:
        if name not in self.models:
            raise RefusedError(404, str(unknown_name("model", name, self.models)))
        return self.models[name]

    async def answer(self, job: RequestJob) -> Written:
        """The job's answer; refused when its time is over, and the worker then drops what is left of it."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await asyncio.wrap_future(self.worker.submit(job))
        except TimeoutError:
            raise out_of_time(self.limits) from None

    def problems(self) -> list[str]:
        """Why the service is not ready: one sentence per model, and one of the worker."""
        models = [f'the model "{name}" {one.problem}' for name, one in self.models.items() if one.problem is not None]
        return models if self.worker.problem is None else [*models, self.worker.problem]


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def models_by_name(models: Models) -> dict[str, ModelSource]:
    """Models by the names in URLs: the last part of a folder or hub id, unless given as NAME=MODEL."""
    pairs: list[tuple[str, ModelSource]]
    if isinstance(models, Mapping):
        pairs = list(models.items())
    else:
        pairs = [_name_and_source(one) for one in ([models] if isinstance(models, str) else models)]
    for name, _ in pairs:
        if not re.fullmatch(r"[\w.-]+", name):
            raise InputError(f'a model\'s name has letters, digits, ".", "-" and "_", got "{name}"; give NAME=MODEL')
    if not pairs or len(dict(pairs)) < len(pairs):
        raise InputError("there is no model to serve" if not pairs else "two models have one name; give NAME=MODEL")
    return dict(pairs)


def _name_and_source(model: str) -> tuple[str, str]:
    name, equals, source = model.partition("=")
    return (name, source) if equals else (Path(model).expanduser().resolve().name, model)


@contextmanager
def short_switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
