"""Methods that change the input and measure the output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.flow import Flow
from relprop.engine.forward_passes import forward_flow
from relprop.engine.leaves import batch_of
from relprop.engine.sources import Source, replaced_ids
from relprop.engine.units import unit_index
from relprop.methods.examples import (
    check_separable,
    examples_first,
    keeps_batch,
    select_examples,
)
from relprop.methods.unit_scores import (
    Inputs,
    attribution,
    real_units,
    unit_index_of,
)
from relprop.model_config import config_value
from relprop.registry import METHODS
from relprop.types import Attribution


@METHODS.register(
    family="perturbation",
    signed=True,
    gradients=False,
    additive=True,
    passes=lambda units, options: units + 1,
    citation="Zeiler and Fergus 2014",
)
def occlusion(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    replacement: int | None = None,
    internal_batch_size: int = 32,
) -> Attribution:
    """Drop of the target when a unit is hidden.

    Zeiler and Fergus 2014. A token's embedding is replaced by that of `replacement` (a token id; None takes the pad
    token, or zeros); the ids themselves stay, for models that search them for the end token. Units other than tokens
    are hidden by zeros in their row of the first block's input.
    """
    flow = forward_flow(model, inputs, target, at="tokens")
    examples_first(flow)
    chosen, batch = flow.chosen, batch_of(inputs)
    check_separable(model, inputs, chosen)
    if replacement is None:
        replacement = config_value(model, "pad_token_id")
    parts = {}
    for name, real in hideable_units(flow, inputs).items():
        scores = chosen.value.new_zeros(real.shape)
        for owner, unit in _hidden_units(real, internal_batch_size, keeps_batch(chosen)):
            hidden = torch.zeros(len(unit), real.shape[1], dtype=torch.bool).scatter(1, unit[:, None], True)
            hide = Hide({name: hidden}, replacement)
            targets = [chosen.exact[i] for i in owner]
            changed = forward_flow(model, select_examples(inputs, owner, batch), targets, hide.edit, at="tokens").chosen
            scores[owner, unit] = (chosen.value[owner] - changed.value).to(scores)
        parts[name] = torch.where(real.to(scores.device), scores, 0)
    return attribution(flow, "occlusion", parts)


def _hidden_units(real: Tensor, size: int, whole: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Which unit of which example is hidden, in chunks of `size`; `whole`: one unit of every example per chunk."""
    if whole:
        for unit in range(real.shape[1]):
            yield torch.arange(len(real)), torch.full((len(real),), unit)
        return
    for chunk in torch.nonzero(real).split(max(1, size)):
        owner, units = chunk.unbind(1)
        yield owner, units


def hideable_units(flow: Flow, inputs: Inputs) -> dict[str, Tensor]:
    """Per part [batch, units]: which units are real, and can be hidden."""
    counts = {source.part: unit_index_of(flow, source).units for source in flow.sources}
    return {name: real_units(name, inputs, count) for name, count in counts.items()}


class Hide:
    """Hides units: `hidden` is [batch, units] per part."""

    def __init__(self, hidden: Mapping[str, Tensor], replacement: int | None) -> None:
        self._hidden, self._replacement = hidden, replacement

    def edit(self, source: Source) -> Tensor:
        if source.part not in self._hidden:
            return source.leaf
        hidden = self._hidden[source.part].to(source.leaf.device)
        tokens = source.is_integer and source.rows.single
        index = unit_index(source.rows, len(hidden), 0, tokens or source.enters, () if tokens else source.features)
        own = (index.unit >= 0) & hidden[index.example.clamp_min(0), index.unit.clamp_min(0)]
        rows, filler = source.rows.of(source.leaf), torch.zeros(())
        if source.lookup is not None and self._replacement is not None and source.raw_ids:
            filler = source.rows.of(source.lookup(replaced_ids(source, self._replacement)))
        return source.rows.back(torch.where(own[:, None], filler.to(rows), rows), source.leaf.shape)
