"""Methods that change the input and look at the output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.run import predict, predict_edited
from relprop.engine.sources import At, Lookup
from relprop.methods.reading import Inputs, batch_size, real_units, select, singles, token_mask, units_at
from relprop.registry import METHODS
from relprop.types import Attribution


@METHODS.register(family="perturbation", signed=True, gradients=False, additive=True, citation="Zeiler and Fergus 2014")
def occlusion(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    replacement: int | None = None,
    internal_batch_size: int = 32,
) -> Attribution:
    """Drop of the target when a unit is hidden.

    A token's embedding becomes that of `replacement` (a token id; None takes the pad token, or zeros); the ids stay, so
    that a model that looks for its end token still finds it. Without tokens, the unit's row at the first block is 0.
    """
    chosen = predict(model, inputs, target)
    batch = batch_size(inputs)
    at: At = "word_embeddings" if "input_ids" in inputs else "block"
    if replacement is None:
        replacement = getattr(getattr(model, "config", None), "pad_token_id", None)
    real = units_of(model, inputs, chosen.exact, at)
    scores = chosen.value.new_zeros(real.shape)
    for owner, unit in (chunk.unbind(1) for chunk in torch.nonzero(real).split(max(1, internal_batch_size))):
        part = select(inputs, owner, batch)
        hidden = torch.zeros(len(unit), real.shape[1], dtype=torch.bool).scatter(1, unit[:, None], True)
        hide = Hide(part, hidden, replacement)
        changed = predict_edited(model, part, [chosen.exact[i] for i in owner], at, hide.edit)
        scores[owner, unit] = (chosen.value[owner] - changed.value).to(scores)
    return Attribution(scores, chosen.value, chosen.names, "occlusion", chosen.rows)


def units_of(model: nn.Module, inputs: Inputs, target: tuple[Any, ...], at: At) -> Tensor:
    """[batch, units]: which are there to be hidden."""
    if at == "word_embeddings":
        return torch.stack([real_units(one) for one in singles(inputs)])
    shapes: list[tuple[int, ...]] = []

    def look(x: Tensor, ids: Tensor | None, lookup: Lookup | None) -> Tensor:
        shapes.append(tuple(x.shape))
        return x

    predict_edited(model, inputs, list(target), at, look)
    mask = token_mask(inputs)
    fits = mask is not None and mask.shape == shapes[0][:2]
    return (mask != 0).cpu() if fits else torch.ones(shapes[0][:2], dtype=torch.bool)  # type: ignore[union-attr]


class Hide:
    """Hides a set of units of each row."""

    def __init__(self, inputs: Inputs, hidden: Tensor, replacement: int | None) -> None:
        self._inputs, self._hidden, self._replacement = inputs, hidden, replacement

    def edit(self, x: Tensor, ids: Tensor | None, lookup: Lookup | None) -> Tensor:
        known = ids is not None and "input_ids" in self._inputs
        place = units_at(ids, self._inputs) if known and ids is not None else (0, self._hidden.shape[1])
        if place is None:
            return x
        start, stop = place
        late = max(0, -start)
        rows, units = torch.nonzero(self._hidden[:, start + late : stop], as_tuple=True)
        edited = x.clone()
        filler: Tensor | float = 0.0
        if lookup is not None and ids is not None and self._replacement is not None:
            filler = lookup(torch.full_like(ids[:1, :1], self._replacement))[0, 0]
        edited[rows, units + late] = filler
        return edited
