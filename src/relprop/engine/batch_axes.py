"""Along which axis of a part its examples lie, as far as that is proved."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from relprop.engine.sources import Source
from relprop.engine.survey import ReadingPlan

PERIOD = 12  # how many examples powers of two can mark; half precision holds 2^12 too


def proved_axes(sources: Sequence[Source], examples: int, plan: ReadingPlan) -> tuple[dict[str, int], list[Source]]:
    """Per part its batch axis (-1 for none) as far as it is proved; and the sources for which it is not."""
    axes, unproved = {}, []
    for source in sources:
        axis, shape = plan.axes.get(source.part), source.rows.shape
        if examples == 1:
            axes[source.part] = 0 if shape[:1] == (1,) else -1
        elif axis is not None and axis < len(shape) and shape[axis] == examples:
            axes[source.part] = axis
        else:
            unproved.append(source)
    return axes, unproved


def common_axis(sources: Sequence[tuple[Source, tuple[Tensor, Tensor]]], examples: int) -> int | None:
    """The axis of a part along which all its rows lie by their example; None if there is none."""
    for axis, size in enumerate(sources[0][0].rows.shape):
        read = [flowed & ~source.rows.empty for source, (_, flowed) in sources]
        if size == examples and all(
            torch.equal(source.rows.low[own, axis] % PERIOD, owner[own])
            for (source, (owner, _)), own in zip(sources, read, strict=True)
        ):
            return axis
    return None
