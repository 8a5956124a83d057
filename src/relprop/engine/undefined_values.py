"""Values that a model leaves undefined and does not use: NaN in the rows of padding, for instance.

A row of attention whose mask hides everything is 0/0. If the model never reads it, its output is finite; but the 0 that
flows back to such a row, times the NaN that is saved there, is NaN. Where that happens although the explained number is
finite, the pass is run again with 0 for NaN in what its calls compute. The explained number must stay the same: NaN
enters whatever is computed from it, so that a finite number was computed from none, unless the model looks for NaN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relprop.engine.observer import Observer, Run
from relprop.ops import Op


class DefinedValues(Observer):
    """Gives 0 for NaN in every float result."""

    def around_call(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
        return _defined(run(op, args, kwargs))

    def after_constant(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        return result if op.in_place else _defined(result)


def _defined(result: Any) -> Any:
    if type(result) in (tuple, list):
        return type(result)(map(_defined, result))
    if not isinstance(result, Tensor) or not result.is_floating_point() or not bool(result.isnan().any()):
        return result
    return torch.where(result.isnan(), 0, result)
