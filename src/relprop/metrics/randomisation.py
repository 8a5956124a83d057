"""The model-randomisation check of Adebayo et al. 2018: scores should change when the model's weights are random.

Layer after layer, from the output down, gets random weights; scores that stay alike do not depend on what the model has
learned. This happens on a copy: the model itself is not changed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from relprop.engine.module_stack import stacks
from relprop.errors import InputError
from relprop.metrics.correlation import compared_rows, spearman
from relprop.metrics.score_arrays import Floats, Values, mean_defined


@dataclass(frozen=True, eq=False)
class Randomisation:
    """Rank correlation per example with the true model's scores, where all layers down to this one are random."""

    layers: tuple[str, ...]  # from the top
    spearman: Floats  # [examples, layers]
    spearman_absolute: Floats  # [examples, layers], of absolute scores

    def summary(self) -> dict[str, float]:
        """Means with every layer random, over the examples where the correlation is defined."""
        return {
            "randomised_spearman": mean_defined(self.spearman[:, -1]),
            "randomised_spearman_absolute": mean_defined(self.spearman_absolute[:, -1]),
        }


def model_randomisation(
    model: nn.Module,
    explain: Callable[[nn.Module], Values],
    *,
    layers: Sequence[str] | None = None,
    where: Values | None = None,
    seed: int = 0,
) -> Randomisation:
    """Compare `explain(model)`, scores [examples, ...], with those of copies that lose their weights from the top.

    `explain` should name its target, as a random model predicts another class. `layers` are names of modules, from the
    top; by default the head, each block, the embeddings. `where` marks the scores that count. Random weights are
    normal, with the mean and the deviation of their tensor, so that signals keep their size.
    """
    changed = copy.deepcopy(model)
    parts = _default_layers(changed) if layers is None else _named_layers(changed, layers)
    generator = torch.Generator().manual_seed(seed)
    true = explain(model)
    signed, absolute = [], []
    for parameters in parts.values():
        for parameter in parameters:
            _redraw(parameter, generator)
        rows = compared_rows(true, explain(changed), where)
        signed.append(np.concatenate([spearman(a, b) for a, b in rows]))
        absolute.append(np.concatenate([spearman(np.abs(a), np.abs(b)) for a, b in rows]))
    return Randomisation(tuple(parts), np.stack(signed, 1), np.stack(absolute, 1))


@torch.no_grad()
def _redraw(parameter: nn.Parameter, generator: torch.Generator) -> None:
    old = parameter.float()
    noise = torch.randn(parameter.shape, generator=generator).to(old.device)
    parameter.copy_(old.mean() + old.std(correction=0) * noise)


def _default_layers(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Parameters of the head, the blocks from last to first, and the embeddings, by name.

    The head is registered after the stacks of blocks, the embeddings before. What lies between two stacks goes with the
    block before it. A parameter that is used twice, such as embeddings as output weights, belongs to the lower layer.
    """
    blocks = {id(p): block for stack in stacks(model) for block in stack for p in block.parameters()}
    if not blocks:
        return _named_layers(model, [name for name, child in model.named_children() if _has_weights(child)][::-1])
    names = {id(module): name for name, module in model.named_modules()}
    parameters = list(model.parameters())
    last = max(i for i, parameter in enumerate(parameters) if id(parameter) in blocks)
    layers: dict[str, list[nn.Parameter]] = {}
    current = "embeddings"
    for i, parameter in enumerate(parameters):
        if id(parameter) in blocks:
            current = names[id(blocks[id(parameter)])]
        layers.setdefault("head" if i > last else current, []).append(parameter)
    return dict(reversed(layers.items()))


def _has_weights(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _named_layers(model: nn.Module, names: Sequence[str]) -> dict[str, list[nn.Parameter]]:
    modules = dict(model.named_modules())
    for name in names:
        if name not in modules or not _has_weights(modules[name]):
            raise InputError(f'there is no layer "{name}" with weights in the model')
    if not names:
        raise InputError("there is no layer to randomise")
    return {name: list(modules[name].parameters()) for name in names}
