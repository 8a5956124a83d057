"""Which rows of a source a later state carries along the residual stream.

After the first block every row depends on all units, so that no gradient shows whose row it is. What shows it is the
residual connection: the state that a row starts from is moved, scaled, normalised and added to, but never multiplied
by a matrix. So every tensor of this path has a note with the source's row that each of its numbers is. Moves
are applied to the row numbers themselves; elementwise calls and norms keep them; any other call drops the note.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relprop.engine.call_kinds import POINTWISE
from relprop.engine.leaves import moved_numbers, moves, tensors
from relprop.ops import Op

_ROWS = "_relprop_rows"
# They scale and shift numbers where they are.
_NORMS = {"layer_norm", "rms_norm", "group_norm", "batch_norm", "centre", "shift", "norm_bias"}
_IN_PLACE_OF = {*POINTWISE, *_NORMS, "masked_fill", "clamp", "clamp_min", "clamp_max", "nan_to_num", "detach"}


@dataclass(frozen=True)
class CarriedRows:
    """The rows of a source that a tensor carries."""

    source: int  # its number, in the order of the reading plan
    rows: Tensor | None  # per number of the tensor its row, CONSTANT for none; None: the source itself, as it is


@dataclass(frozen=True)
class _RowNote:
    carried: CarriedRows
    version: int  # of the tensor: an in-place write drops the note


def carried_rows(tensor: Tensor) -> CarriedRows | None:
    note: _RowNote | None = getattr(tensor, _ROWS, None)
    return note.carried if note is not None and note.version == tensor._version else None


def set_carried_rows(tensor: Tensor, carried: CarriedRows | None) -> None:
    if carried is not None:
        setattr(tensor, _ROWS, _RowNote(carried, tensor._version))


def copy_carried_rows(tensor: Any, other: Any) -> None:
    """`other` has the values of `tensor`."""
    if isinstance(tensor, Tensor) and isinstance(other, Tensor) and tensor.shape == other.shape:
        set_carried_rows(other, carried_rows(tensor))


def rows_after(
    op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor, row_numbers: list[Tensor]
) -> CarriedRows | None:
    """The rows that the result of a call carries. `row_numbers`: per source, the row of each of its numbers."""
    given = [(one, carried) for one in tensors((*args, *kwargs.values())) if (carried := carried_rows(one)) is not None]
    if not given or len({carried.source for _, carried in given}) > 1:
        return None
    first, source = given[0][1], given[0][1].source
    if op.name in _IN_PLACE_OF:
        if all(carried is first and one.shape == result.shape for one, carried in given):
            return first
        expanded = [_numbers(carried, row_numbers) for _, carried in given]
        return _same(source, expanded, result.shape)
    if not moves(op):
        return None

    def numbers(tensor: Tensor) -> Tensor | None:
        carried = carried_rows(tensor)
        return None if carried is None else _numbers(carried, row_numbers)

    moved = moved_numbers(op, args, kwargs, numbers)
    fits = isinstance(moved, Tensor) and moved.shape == result.shape
    return CarriedRows(source, moved) if fits else None


def _numbers(carried: CarriedRows, row_numbers: list[Tensor]) -> Tensor:
    return row_numbers[carried.source] if carried.rows is None else carried.rows


def _same(source: int, numbers: list[Tensor], shape: torch.Size) -> CarriedRows | None:
    """The row numbers of several operands, broadcast to one shape, if they agree."""
    first, *others = (one.expand(shape) for one in numbers)
    return CarriedRows(source, first) if all(torch.equal(first, other) for other in others) else None
