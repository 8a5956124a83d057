"""Notes on what the logarithm of a tensor is, for softmax and sums of exponentials written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from relprop.engine.call_kinds import CASTS
from relprop.engine.tensor_notes import Logarithm, Note, Root
from relprop.ops import Op


def logarithm_of(
    op: Op,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    first_note: Note | None,
    first: Tensor,
    root: Callable[[Tensor], Root],
) -> Logarithm | None:
    """What the logarithm of a call's result is; `first`: the tensor that the call reads."""
    if op.name == "exp" and first.is_floating_point():
        return Logarithm("identity", root(first))
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    if op.name == "softmax" and isinstance(dims, int):
        return Logarithm("log_softmax", root(first), dims)
    known = None if first_note is None else first_note.logarithm
    if known is None:
        return None
    if known.name == "identity":
        summed = op.name == "sum" and first is args[0]
        return replace(known, name="logsumexp", dims=dims, number=root(first).number) if summed else None
    return known if op.name in CASTS else None
