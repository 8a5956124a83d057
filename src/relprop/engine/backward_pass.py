"""The way back through a graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from relprop.engine.sources import MisfitError
from relprop.errors import ModelError, RelpropError
from relprop.rulebook.relevance_flow import GradientCutError


def backward(value: Tensor, leaves: Sequence[Tensor], keep_graph: bool = False) -> tuple[Tensor | None, ...]:
    """What flows back to each leaf. A failure of torch's becomes one sentence."""
    try:
        return torch.autograd.grad(value, leaves, allow_unused=True, retain_graph=keep_graph)
    except (RelpropError, MisfitError, GradientCutError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        raise ModelError(
            f"the model runs, but nothing can flow back through it ({reason}); if it uses torch.utils.checkpoint or an "
            "autograd function of its own, turn that off"
        ) from error
