"""Rows of a table: columns by name as the numbers that a model takes, and the scores of its columns."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from relprop.engine.model_call import device_of
from relprop.errors import InputError, ModelError, unknown_name
from relprop.readers.windows import SpanScores, span_scores
from relprop.render.features.part import FeaturePart
from relprop.types import Attribution

Categories = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class FeatureRow:
    """One row of a table as the model will read it, and as it is shown."""

    numbers: Tensor  # [columns of numbers]
    categories: Tensor | None  # [columns of categories], where the model takes them by an argument of their own
    shown: dict[str, str]


class FeatureReader:
    """The columns of a model in plain PyTorch whose forward takes floats [batch, columns].

    `categories`: columns of words, each with the words that its indices 0, 1, ... stand for. Where forward takes two
    arguments, the second one is these columns' indices, of integers; else all columns stand in one tensor.
    """

    name = "rows"
    pads_right = True  # all rows have the same columns

    def __init__(self, model: nn.Module, columns: Sequence[str], categories: Categories | None = None) -> None:
        self.model = model
        self.columns = _names(columns)
        self.categories = dict(categories or {})
        for name in self.categories:
            if name not in self.columns:
                raise unknown_name("column", name, self.columns)
        taken = [one for one in inspect.signature(model.forward).parameters.values() if one.default is one.empty]
        taken = [one for one in taken if one.kind is not one.VAR_POSITIONAL and one.kind is not one.VAR_KEYWORD]
        if len(taken) not in (1, 2) or (len(taken) == 2 and not self.categories):
            said = ", ".join(one.name for one in taken) or "nothing"
            raise ModelError(
                "a model of columns takes one tensor of floats [batch, columns], and perhaps a second one of "
                f"categories, with categories={{column: words}}; its forward takes {said}"
            )
        self._arguments = tuple(one.name for one in taken)
        self._groups = [list(self.columns)]
        if len(taken) == 2:
            self._groups = [[one for one in self.columns if (one in self.categories) == kind] for kind in (False, True)]

    @property
    def explains(self) -> tuple[str, ...]:
        return self._arguments

    def read(self, given: object, max_length: int | None = None) -> FeatureRow:
        if max_length is not None:
            raise InputError("max_length is for texts; a row is read whole")
        row = self._by_name(given)
        indices = {name: self._number(name, row[name]) for name in self.columns}
        shown = {name: _shown(row[name]) for name in self.columns}
        numbers = torch.tensor([indices[name] for name in self._groups[0]], dtype=torch.float64)
        if len(self._groups) == 1:
            return FeatureRow(numbers, None, shown)
        return FeatureRow(numbers, torch.tensor([int(indices[name]) for name in self._groups[1]]), shown)

    def _by_name(self, given: object) -> Mapping[str, object]:
        """A dict of the columns; of a tuple, an array or a pandas row its numbers in the columns' order."""
        if hasattr(given, "to_dict") and not isinstance(given, Mapping):
            given = given.to_dict()
        if isinstance(given, Mapping):
            missing = [name for name in self.columns if name not in given]
            unknown = [str(name) for name in given if name not in self.columns]
            if missing:
                raise InputError(f'the row has no column "{missing[0]}"' + _more(missing))
            if unknown:
                raise InputError(str(unknown_name("column", unknown[0], self.columns)))
            return {str(name): value for name, value in given.items()}
        if isinstance(given, Tensor | np.ndarray):
            given = tuple(given.tolist())
        if not isinstance(given, tuple):
            raise InputError(
                f"a row is a dict of its columns, or a tuple or array of {len(self.columns)} numbers in their order "
                f"(several rows are a list), got {given!r:.80}"
            )
        if len(given) != len(self.columns):
            raise InputError(f"a row has {len(self.columns)} columns ({', '.join(self.columns)}), got {len(given)}")
        return dict(zip(self.columns, given, strict=True))

    def _number(self, name: str, value: object) -> float:
        if name in self.categories:
            words = list(self.categories[name])
            if value in words:
                return words.index(str(value))
            raise InputError(f'the column "{name}": {unknown_name("category", value, words)}')
        try:
            number = float(value) if isinstance(value, str | Real | np.generic) else None
        except ValueError:
            number = None
        if number is None or not isfinite(number):
            raise InputError(f'the column "{name}" holds a finite number, got {value!r:.80}')
        return number

    def batches(self, rows: Sequence[FeatureRow], size: int) -> list[list[int]]:
        return [list(range(k, min(k + size, len(rows)))) for k in range(0, len(rows), size)]

    def inputs(self, rows: Sequence[FeatureRow]) -> dict[str, Tensor]:
        like = next((one for one in self.model.parameters() if one.is_floating_point()), torch.zeros(0))
        device = device_of(self.model)
        batch = {self._arguments[0]: torch.stack([row.numbers for row in rows]).to(device, like.dtype)}
        own = [row.categories for row in rows if row.categories is not None]
        return {**batch, self._arguments[1]: torch.stack(own).to(device)} if own else batch

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[FeatureRow], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        """What options mean for rows: integrated gradients starts from zeros, and from each column's first category."""
        if "baseline" not in known:
            return given
        return {"baseline": {name: torch.zeros_like(inputs[name]) for name in self._arguments}, **given}

    def hidden(self, rows: Sequence[FeatureRow], inputs: dict[str, Tensor], replacement: str | int | None) -> NoReturn:
        raise InputError("evaluate compares methods on texts and graphs, not on rows of tables")

    def parts(self, row: FeatureRow, found: Attribution, number: int) -> tuple[FeaturePart, ...]:
        tensors = (row.numbers, row.categories)
        return tuple(
            _part(argument, names, row, span_scores(found, argument, number, tuple(tensor.shape)))
            for argument, names, tensor in zip(self._arguments, self._groups, tensors, strict=False)
            if argument in found.parts and tensor is not None
        )


def _part(argument: str, names: Sequence[str], row: FeatureRow, spans: SpanScores) -> FeaturePart:
    first, last = spans.low[:, 0].tolist(), spans.high[:, 0].tolist()
    units = tuple(names[a] if a == b else f"{names[a]} to {names[b]}" for a, b in zip(first, last, strict=True))
    values = tuple(row.shown[names[a]] if a == b else "" for a, b in zip(first, last, strict=True))
    return FeaturePart(argument, units, values, tuple(spans.scores.tolist()), spans.rest)


def _names(columns: Sequence[str]) -> tuple[str, ...]:
    names = tuple(columns) if isinstance(columns, list | tuple) else ()
    if not names or not all(isinstance(one, str) and one for one in names) or len(set(names)) < len(names):
        raise InputError(
            f"columns is a list of different names, in the order of the model's numbers; got {columns!r:.80}"
        )
    return names


def _more(names: Sequence[object]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, Real) else str(value)
