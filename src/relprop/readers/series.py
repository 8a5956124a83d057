"""Series of numbers: steps of one or several channels, with what models read beside them."""

from __future__ import annotations

import csv
import inspect
import json
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from relprop.engine.model_call import device_of
from relprop.errors import InputError, ModelError
from relprop.model_config import config_value
from relprop.readers.windows import SpanScores, span_scores
from relprop.render.series.part import SeriesPart, SeriesWindow
from relprop.types import Attribution

VALUES, MASK = "past_values", "past_observed_mask"
COLUMNS = "columns"  # in a dict: the names of the channels
FUTURE, FUTURE_TIMES = "future_values", "future_time_features"
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class SeriesRow:
    """One series as the model will read it."""

    tensors: dict[str, Tensor]  # by the model's arguments, without a batch axis
    channels: tuple[str, ...]
    observed: Numbers  # [steps, channels]: 0 where nothing was observed
    note: str = ""

    def with_future(self, values: Tensor) -> SeriesRow:
        """The same with what is known of the steps to come."""
        return replace(self, tensors={**self.tensors, FUTURE: values})


class SeriesReader:
    """What a model of series says of its inputs. `columns`: the names of the channels."""

    name = "series"
    pads_right = True  # series of equal length share a batch

    def __init__(self, model: nn.Module, columns: Sequence[str] | None = None) -> None:
        self.model = model
        self.parameters = inspect.signature(model.forward).parameters
        self.argument = VALUES if VALUES in self.parameters else next(iter(self.parameters), VALUES)
        self.columns = None if columns is None else tuple(map(str, columns))

    @property
    def explains(self) -> tuple[str, ...]:
        return (self.argument, *(name for name in self.parameters if self._is_beside(name)))

    def _is_beside(self, name: str) -> bool:
        return name.endswith("_features") or name == FUTURE

    # What the config says.

    @property
    def steps(self) -> int | None:
        """How many steps the model reads; None for any number."""
        context, lags = (config_value(self.model, name) for name in ("context_length", "lags_sequence"))
        if not isinstance(context, int):
            return None
        return context + max(lags) if isinstance(lags, list | tuple) and lags else context

    @property
    def horizon(self) -> int:
        return int(config_value(self.model, "prediction_length") or 0)

    @property
    def _flat(self) -> bool:
        """Whether the model reads one channel without an axis for it."""
        lags = config_value(self.model, "lags_sequence")
        return lags is not None and config_value(self.model, "input_size") == 1

    def read(self, given: object, max_length: int | None = None) -> SeriesRow:
        if max_length is not None:
            raise InputError("max_length is for texts; a series is read as far as the model looks back")
        values, names, others = _values(given)
        if self.argument in others:
            raise InputError(f'give the series itself as "{VALUES}"')
        channels = self._channels(names, values.shape[1])
        note, wanted = "", self.steps
        if wanted is not None and len(values) < wanted:
            raise InputError(f"the series has {len(values)} steps, and the model looks back {wanted}: give more of it")
        if wanted is not None and len(values) > wanted:
            note = f"the last {wanted} of {len(values)} steps are read"
            others = {name: one[-wanted:] if name.startswith("past_") else one for name, one in others.items()}
            values = values[-wanted:]
        observed = np.isfinite(values)
        tensors = {self.argument: torch.tensor(np.where(observed, values, 0.0))}
        tensors |= self._mask(torch.tensor(observed)) | self._beside(others, len(values))
        if self._flat:
            tensors = {name: one[:, 0] if name in (self.argument, MASK) else one for name, one in tensors.items()}
        return SeriesRow(tensors, channels, observed.astype(np.float64), note)

    def _channels(self, names: Sequence[str] | None, count: int) -> tuple[str, ...]:
        wanted = config_value(self.model, "num_input_channels") or config_value(self.model, "input_size")
        if isinstance(wanted, int) and count != wanted:
            raise InputError(f"the model reads {wanted} channels, and the series has {count}: [steps, channels]")
        own = self.columns or names
        if own is not None and len(own) != count:
            raise InputError(f"{len(own)} names of columns for {count} channels")
        return tuple(own) if own is not None else tuple(f"channel {k}" for k in range(count))

    def _mask(self, observed: Tensor) -> dict[str, Tensor]:
        """Given where something is missing, or where the model asks for it."""
        asked = MASK in self.parameters and self.parameters[MASK].default is inspect.Parameter.empty
        if asked or (MASK in self.parameters and not bool(observed.all())):
            return {MASK: observed}
        if not bool(observed.all()):
            raise InputError("the series has values that are missing or not finite, which this model cannot leave out")
        return {}

    def _beside(self, others: Mapping[str, Numbers], steps: int) -> dict[str, Tensor]:
        """What else the model reads: features of time, static features. One of no features need not be given."""
        found = {}
        for name, array in others.items():
            if not self._is_beside(name) or name not in self.parameters:
                known = ", ".join(f'"{one}"' for one in self.parameters if self._is_beside(one)) or "nothing"
                raise InputError(f'the model takes no "{name}"; beside "{VALUES}" it takes {known}')
            if not np.isfinite(array).all():
                raise InputError(f'"{name}" holds numbers that are not finite')
            whole = name == "static_categorical_features"
            found[name] = torch.tensor(array.astype(np.int64) if whole else array)
        lengths = {"past_time_features": steps, FUTURE_TIMES: self.horizon}
        count = int(config_value(self.model, "num_time_features") or 0)
        for name, length in lengths.items():
            if name not in self.parameters or not length:
                continue
            if name not in found and count:
                raise InputError(
                    f'the model also reads "{name}" [{length}, {count}]: give a dict with it and "{VALUES}"'
                )
            own = found.setdefault(name, torch.zeros(length, 0, dtype=torch.float64))
            if own.shape != (length, count):
                raise InputError(f'"{name}" is [{length}, {count}] for this model, got {list(own.shape)}')
        return found

    def batches(self, rows: Sequence[SeriesRow], size: int) -> list[list[int]]:
        """Series of equal length, with the same inputs beside them, together."""

        def shapes(i: int) -> str:
            return str(sorted((name, tuple(one.shape)) for name, one in rows[i].tensors.items()))

        groups = [list(group) for _, group in groupby(sorted(range(len(rows)), key=shapes), key=shapes)]
        return [group[k : k + size] for group in groups for k in range(0, len(group), size)]

    def inputs(self, rows: Sequence[SeriesRow]) -> dict[str, Tensor]:
        device = device_of(self.model)
        like = next((one for one in self.model.parameters() if one.is_floating_point()), torch.zeros(0))
        stacked = {name: torch.stack([row.tensors[name] for row in rows]).to(device) for name in rows[0].tensors}
        return {name: one.to(like.dtype) if one.is_floating_point() else one for name, one in stacked.items()}

    def silent(self, rows: Sequence[SeriesRow]) -> tuple[str, ...]:
        """Inputs that hold nothing yet: forecasts of the steps before, where there are none."""
        return (FUTURE,) if any(FUTURE in row.tensors and not row.tensors[FUTURE].any() for row in rows) else ()

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[SeriesRow], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        """What options mean for series: every step of every channel is a unit, where the method can read it there.

        Integrated gradients starts from each channel's mean, and from zeros beside the series.
        """
        given = {"at": "elements", **given} if "at" in known else given
        if "baseline" not in known:
            return given
        baseline = {
            name: one.mean(1, keepdim=True).expand_as(one).clone() if name == self.argument else torch.zeros_like(one)
            for name, one in inputs.items()
            if name in self.explains and one.numel()
        }
        return {"baseline": baseline, **given}

    def hidden(self, rows: Sequence[SeriesRow], inputs: dict[str, Tensor], replacement: str | int | None) -> NoReturn:
        raise InputError("evaluate compares methods on texts and graphs, not on series")

    def parts(self, row: SeriesRow, found: Attribution, number: int) -> tuple[SeriesPart, ...]:
        names = [name for name in row.tensors if name in found.parts]
        return tuple(
            self._part(name, row, span_scores(found, name, number, tuple(row.tensors[name].shape))) for name in names
        )

    def _part(self, name: str, row: SeriesRow, spans: SpanScores) -> SeriesPart:
        values = row.tensors[name].double().numpy()
        if values.ndim == 1:  # one channel, or one step of static features
            static = name.startswith("static_")
            values = values[None] if static else values[:, None]
            at = 0 if static else 1
            spans = replace(spans, low=np.insert(spans.low, at, 0, 1), high=np.insert(spans.high, at, 0, 1))
        own = name in (self.argument, FUTURE)
        channels = row.channels if own else tuple(f"feature {k}" for k in range(values.shape[1]))
        observed = row.observed if name == self.argument else np.ones_like(values)
        units = tuple(_window(channels, *ends) for ends in zip(spans.low.tolist(), spans.high.tolist(), strict=True))
        note = row.note if name == self.argument else ""
        return SeriesPart(name, channels, values, observed, units, tuple(spans.scores.tolist()), spans.rest, note)


def _window(channels: Sequence[str], low: Sequence[int], high: Sequence[int]) -> SeriesWindow:
    (start, channel), (end, last) = low[:2], high[:2]
    whole = channel == 0 and last == len(channels) - 1 and last > 0
    name = (
        "all channels"
        if whole
        else channels[channel]
        if channel == last
        else f"{channels[channel]} to {channels[last]}"
    )
    steps = f"step {start}" if start == end else f"steps {start}-{end}"
    return SeriesWindow(f"{name} {steps}", start, end, channel, last)


def _values(given: object) -> tuple[Numbers, Sequence[str] | None, dict[str, Numbers]]:
    """The series [steps, channels], its names if it has some, and what is given beside it."""
    others: dict[str, Numbers] = {}
    if isinstance(given, Mapping):
        if VALUES not in given:
            raise InputError(f'a series given as a dict holds it as "{VALUES}", got {", ".join(map(str, given)):.200}')
        others = {str(name): _array(one, name) for name, one in given.items() if name not in (VALUES, COLUMNS)}
        names = given.get(COLUMNS)
        array, own, _ = _values(given[VALUES])
        return array, own if names is None else list(map(str, names)), others
    if isinstance(given, str | os.PathLike) and Path(given).suffix == ".json":
        return _values(_json_object(Path(given)))
    if isinstance(given, str | os.PathLike):
        array, names = read_table(Path(given))
        return array, names, others
    if hasattr(given, "to_numpy") and hasattr(given, "columns"):  # a pandas frame
        return _array(given.to_numpy(), VALUES), [str(name) for name in given.columns], others
    array = _array(given, VALUES)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not array.size:
        raise InputError(f"a series is an array [steps] or [steps, channels], got {list(array.shape)}")
    return array, None, others


def _json_object(path: Path) -> dict[str, Any]:
    """A series with what stands beside it, as a .json file has them."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f'there is no file "{path}"') from None
    except (OSError, ValueError) as error:
        raise InputError(f'"{path.name}" cannot be read as JSON: {error!s:.200}') from None
    if not isinstance(found, dict):
        raise InputError(f'"{path.name}" should hold {{"{VALUES}": [[...], ...]}}, with what the model reads beside it')
    return found


def _array(given: Any, name: object) -> Numbers:
    given = given.detach().cpu().double().numpy() if isinstance(given, Tensor) else given
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f'"{name}" is an array of numbers [steps] or [steps, channels], a pandas frame of numbers or the path of a '
            f".csv or .json file (several series are a list), got {type(given).__name__}"
        ) from None


def read_table(path: Path | StringIO) -> tuple[Numbers, list[str]]:
    """The columns of numbers of a .csv file with a header; a first column of words (dates) is left out."""
    names, rows = table_rows(path)
    file = _named(path)
    first = 1 if len(names) > 1 and any(not _is_number(row[0]) for row in rows) else 0
    values = []
    for k, row in enumerate(rows):
        bad = next((cell for cell in row[first:] if not _is_number(cell)), None)
        if bad is not None:
            raise InputError(f"line {k + 2} of {file} holds {bad!r:.60}, which is no number")
        values.append([float(cell) if cell.strip() else np.nan for cell in row[first:]])
    return np.array(values, dtype=np.float64), names[first:]


def _named(path: Path | StringIO) -> str:
    return f'"{path.name}"' if isinstance(path, Path) else "the table"


def table_rows(path: Path | StringIO) -> tuple[list[str], list[list[str]]]:
    """The header of a .csv file, or of its text, and its lines, all of the same length."""
    file = _named(path)
    try:
        with nullcontext(path) if isinstance(path, StringIO) else path.open(newline="", encoding="utf-8-sig") as text:
            lines = [line for line in csv.reader(text) if any(cell.strip() for cell in line)]
    except FileNotFoundError:
        raise InputError(f'there is no table "{path}"') from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file} cannot be read as a .csv file: {error!s:.200}") from None
    if len(lines) < 2:
        raise InputError(f"{file} holds no rows: it needs a header and at least one line below it")
    header, *rows = lines
    for k, row in enumerate(rows):
        if len(row) != len(header):
            raise InputError(f"line {k + 2} of {file} has {len(row)} cells, and the header {len(header)}")
    return [name.strip() for name in header], rows


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return not cell.strip()
    return True


def check_horizon(reader: SeriesReader) -> int:
    """How many steps the model forecasts."""
    if not reader.horizon:
        raise ModelError("the model's config does not say how many steps it forecasts (prediction_length)")
    return reader.horizon
