"""Numbers of series: a forecast at a step to come, or a number that a model reads off a series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.model_call import call, evaluating
from relprop.engine.restoring import restoring
from relprop.errors import InputError, ModelError, TargetError, unknown_name
from relprop.model_config import config_value
from relprop.outputs import logits_of, output_field
from relprop.readers import read_all
from relprop.readers.series import FUTURE, SeriesReader, SeriesRow, check_horizon
from relprop.tasks.task import Answered, Query
from relprop.types import Attribution

_FORMS = "a target is a step to come, counted from 1, or (step, channel)"


def forecasts(outputs: object, distribution: str | None) -> Tensor:
    """[batch, steps, channels] or [batch, steps]: the forecast itself, or the mean of the distribution forecast."""
    parameters = getattr(outputs, "params", None)
    if parameters is None:
        parameters = getattr(outputs, "prediction_outputs", getattr(outputs, "regression_outputs", None))
    if not isinstance(parameters, tuple | list):
        return logits_of(outputs) if parameters is None else parameters
    mean = _mean(parameters, distribution)
    loc, scale = (output_field(outputs, name) for name in ("loc", "scale"))
    if scale is not None:
        mean = mean * _beside(scale, mean)
    return mean if loc is None or distribution == "negative_binomial" else mean + _beside(loc, mean)


def _mean(parameters: Sequence[Tensor], distribution: str | None) -> Tensor:
    """From the parameters in the order of transformers: (df, loc, scale), (loc, scale), (total_count, logits)."""
    if distribution == "student_t":
        return parameters[1]
    if distribution == "normal":
        return parameters[0]
    if distribution == "negative_binomial":
        return parameters[0] * parameters[1].exp()
    raise ModelError(f'the mean of the distribution "{distribution}" is not known: pass target=function of outputs')


def _beside(own: Tensor, like: Tensor) -> Tensor:
    """What scales a series, with an axis for its steps: [batch, 1] or [batch, 1, channels]."""
    while own.dim() > like.dim():
        own = own.squeeze(-1)
    return own if own.dim() == like.dim() else own.unsqueeze(1)


@dataclass(frozen=True)
class ForecastAt:
    """The forecast of one channel at a step, counted from 0; without steps, one number of several."""

    step: int
    channel: int | None
    distribution: str | None
    name: str

    def __call__(self, outputs: object) -> Tensor:
        found = forecasts(outputs, self.distribution)[:, self.step]
        return found if self.channel is None else found[:, self.channel]

    @property
    def __name__(self) -> str:
        return self.name


class Forecast:
    """A forecast at a step to come. `target`: the step, counted from 1, or (step, channel by name or number).

    Models that forecast step by step read their own forecasts of the steps before; those are a part of their own.
    Models that read numbers off a series take the number's index; None where there is only one.
    """

    name = "series"

    def __init__(self, model: nn.Module, reader: SeriesReader) -> None:
        self.model, self.reader = model, reader
        found = config_value(model, "distribution_output")
        self.distribution = found if isinstance(found, str) else None

    def target(self, target: object) -> object:
        return target

    def check_evaluation(self) -> None:
        raise InputError("evaluate reads the probability of one class, and this model gives numbers")

    def queries(self, given: Sequence[object], targets: Sequence[object], max_length: int | None = None) -> list[Query]:
        rows = read_all(self.reader, given, max_length)
        return [self._query(row, target) for row, target in zip(rows, targets, strict=True)]

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        return Answered(found.target[number])

    def _query(self, row: SeriesRow, target: object) -> Query:
        rolls = self._rolls(row)
        if rolls:
            row = row.with_future(self._future(row))
        if callable(target):
            return Query(row, target)
        found = self._forecasts(row)
        if found.dim() == 2 and not rolls:
            return Query(row, self._number(found.shape[1], target))
        step, channel = self._place(target, tuple(found.shape[1:]), row.channels)
        if rolls:
            row = self._rolled(row, step)
        name = row.channels[channel or 0]
        ahead = "1 step" if step == 0 else f"{step + 1} steps"
        return Query(row, ForecastAt(step, channel, self.distribution, f"{name} {ahead} ahead"))

    def _number(self, count: int, target: object) -> ForecastAt:
        if target is None and count > 1:
            raise TargetError(f"the model gives {count} numbers: say which one, target=0 to {count - 1}")
        index = 0 if target is None else target
        if isinstance(index, str) and index.isdigit():
            index = int(index)
        if isinstance(index, bool) or not isinstance(index, Integral) or not 0 <= int(index) < count:
            raise TargetError(f"the model gives {count} numbers, 0 to {count - 1}, got target={target!r:.80}")
        name = "the number" if count == 1 else f"number {index}"
        return ForecastAt(int(index), None, self.distribution, name)

    def _place(self, target: object, shape: tuple[int, ...], channels: Sequence[str]) -> tuple[int, int | None]:
        """The step, counted from 0, and the channel; None where the forecast has no axis for it."""
        steps, several = shape[0], shape[1] if len(shape) > 1 else 1
        step, channel = target if isinstance(target, tuple) and len(target) == 2 else (target, None)
        step = int(step) if isinstance(step, str) and step.strip().isdigit() else step
        step = 1 if step is None else step  # the next one
        if isinstance(step, bool) or not isinstance(step, Integral) or not 1 <= int(step) <= steps:
            raise TargetError(f"the model forecasts {steps} steps: {_FORMS}; got {target!r:.80}")
        if channel is None and several > 1:
            named = ", ".join(channels[:8])
            raise TargetError(f"the model forecasts {several} channels ({named}): target=(step, channel)")
        index = self._channel(channel, channels) if channel is not None else 0
        return int(step) - 1, index if len(shape) > 1 else None

    def _channel(self, channel: object, channels: Sequence[str]) -> int:
        if isinstance(channel, str) and channel.strip() in channels:
            return channels.index(channel.strip())
        number: Any = int(channel) if isinstance(channel, str) and channel.strip().isdigit() else channel
        if isinstance(number, Integral) and 0 <= int(number) < len(channels):
            return int(number)
        raise TargetError(str(unknown_name("channel", channel, channels)))

    def _rolls(self, row: SeriesRow) -> bool:
        """Whether the model forecasts step by step: it gives nothing unless it is told of the steps to come."""
        if FUTURE not in self.reader.parameters:
            return False
        try:
            self._forecasts(row)
        except (ModelError, TargetError):
            return True
        return False

    def _future(self, row: SeriesRow) -> Tensor:
        """Nothing known of the steps to come: all zeros."""
        values = row.tensors[self.reader.argument]
        return values.new_zeros(check_horizon(self.reader), *values.shape[1:])

    def _rolled(self, row: SeriesRow, step: int) -> SeriesRow:
        """The series with the model's own forecasts of the steps before this one, each read with those before it."""
        first, plain = row, self._forecasts(row)[0, step]
        for k in range(step):
            future = row.tensors[FUTURE].clone()
            future[k] = self._forecasts(row)[0, k].to(future)
            row = row.with_future(future)
        return first if torch.equal(self._forecasts(row)[0, step], plain) else row  # it may not read them

    @restoring
    def _forecasts(self, row: SeriesRow) -> Tensor:
        with torch.no_grad(), evaluating(self.model):
            outputs = call(self.model, self.reader.inputs([row]))
        found = forecasts(outputs, self.distribution)
        if found.dim() not in (2, 3):
            raise ModelError(
                f"a forecast is [batch, steps] or [batch, steps, channels], and this is {list(found.shape)}"
            )
        return found
