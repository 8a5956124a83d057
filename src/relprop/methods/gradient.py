"""Plain gradients and their averages."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relprop.engine.calling import wide
from relprop.engine.run import predict, propagate
from relprop.engine.sources import At, Lookup
from relprop.errors import InputError
from relprop.methods.reading import (
    Inputs,
    batch_size,
    content_generator,
    copies,
    input_relevance,
    real_units,
    select,
    singles,
    token_ids,
    token_mask,
    unit_scores,
    units_at,
)
from relprop.registry import METHODS
from relprop.rulebook import rulesets
from relprop.types import Attribution


@METHODS.register(family="gradient", signed=False, gradients=True, several=True, citation="Simonyan et al. 2014")
def gradient(
    model: nn.Module, inputs: Inputs, target: Any, *, at: At | None = None, checkpoint: bool = False
) -> Attribution:
    """L2 norm of the gradient at each unit (saliency)."""
    flow = propagate(model, inputs, target, rulesets.gradient, at=at, checkpoint=checkpoint)
    norms = unit_scores(flow, [wide(g) for g in flow.arrived], inputs, lambda g: g.norm(dim=-1))
    return Attribution(norms, flow.chosen.value, flow.chosen.names, "gradient", flow.chosen.rows)


@METHODS.register(
    family="gradient", signed=True, gradients=True, additive=True, several=True, citation="Shrikumar et al. 2017"
)
def gradient_x_input(
    model: nn.Module, inputs: Inputs, target: Any, *,
    at: At | None = None, checkpoint: bool = False, ledger: bool = False,
) -> Attribution:  # fmt: skip
    """Sum over features of input times gradient (GI)."""
    return input_relevance(
        model, inputs, target, rulesets.gradient, "gradient_x_input", at=at, checkpoint=checkpoint, ledger=ledger
    )


@METHODS.register(
    family="gradient",
    signed=True,
    gradients=True,
    complete=True,
    additive=True,
    citation="Sundararajan et al. 2017, Axiomatic Attribution",
)
def integrated_gradients(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    steps: int = 50,
    baseline: int | Tensor | None = None,
    internal_batch_size: int = 32,
) -> Attribution:
    """Gradients averaged on the straight way from a baseline to the input, at Gauss-Legendre points.

    `baseline`: a token id, or ids of the input's shape; None takes the model's pad token. Without input_ids it is a
    tensor of the float input's shape, and None is zero; where only the first block can be changed (graphs), None is the
    mean of its rows. Scores sum to value - baseline value, as far as the steps resolve the way: from all-zero
    embeddings, RMSNorm models jump.
    """
    if steps < 1:
        raise InputError(f"integrated_gradients needs at least one step, got {steps}")
    chosen = predict(model, inputs, target)
    points, weights = np.polynomial.legendre.leggauss(steps)
    # Point 0 with weight 0 rides along: its value is the baseline's.
    alphas = torch.tensor([0.0, *(points + 1) / 2], dtype=torch.float64)
    shares = torch.tensor([0.0, *weights / 2], dtype=torch.float64)
    reference = _start_of(model, inputs, baseline)
    batch = batch_size(inputs)
    start = torch.zeros_like(chosen.value)
    scores: Tensor | None = None
    for owner, point in copies(batch, steps + 1, internal_batch_size):
        part_inputs = select(inputs, owner, batch)
        way = _Way(alphas[point], part_inputs, None if reference is None else reference[owner])
        flow = propagate(
            model,
            part_inputs,
            [chosen.exact[i] for i in owner],
            rulesets.gradient,
            at=_edited(inputs),
            edit=way.edit,
        )
        change = [wide(g) * d for g, d in zip(flow.arrived, way.differences, strict=True)]
        part = unit_scores(flow, change, part_inputs)
        scores = part.new_zeros((batch, part.shape[1])) if scores is None else scores
        on_the_way = point > 0
        weighted = part[on_the_way] * shares[point[on_the_way]].to(part)[:, None]
        scores.index_add_(0, owner[on_the_way].to(part.device), weighted)
        start[owner[~on_the_way]] = flow.chosen.value[~on_the_way]
    assert scores is not None
    return Attribution(scores, chosen.value, chosen.names, "integrated_gradients", chosen.rows, baseline=start)


class _Way:
    """Points on the straight way from the baseline, token ids or numbers, to the input."""

    def __init__(self, alphas: Tensor, inputs: Inputs, baseline: Tensor | None) -> None:
        self._alphas, self._inputs, self._baseline = alphas, inputs, baseline
        self._at_block = baseline is None and _edited(inputs) == "block"
        self.differences: list[Tensor] = []

    def edit(self, x: Tensor, ids: Tensor | None, lookup: Lookup | None) -> Tensor:
        start = torch.zeros_like(x)
        if self._at_block:
            start = _mean_row(x, token_mask(self._inputs))
        if lookup is not None and ids is not None and self._baseline is not None:
            start = lookup(self._start(ids, self._baseline))
        elif "input_ids" not in self._inputs and self._baseline is not None and self._baseline.shape == x.shape:
            start = self._baseline.to(x)
        self.differences.append(wide(x - start))
        alphas = self._alphas.to(x.device, x.dtype).view(-1, *(1,) * (x.dim() - 1))
        return start + alphas * (x - start)

    def _start(self, ids: Tensor, baseline: Tensor) -> Tensor:
        """The baseline for what is being embedded: the text itself, lengthened, or shifted by one for a decoder."""
        place = units_at(ids, self._inputs)
        if place is None:
            return ids
        start, stop = place
        late = max(0, -start)
        own = baseline[:, start + late : stop]
        return torch.cat([ids[:, :late], own, ids[:, late + own.shape[1] :]], 1)


def _mean_row(x: Tensor, mask: Tensor | None) -> Tensor:
    """Every row the mean of the real ones: a layer norm of zeros would leave all there is to the first step."""
    real = torch.ones_like(x[..., :1]) if mask is None or mask.shape != x.shape[:2] else (mask != 0).to(x)[..., None]
    return ((x * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)).expand_as(x)


def _start_of(model: nn.Module, inputs: Inputs, baseline: int | Tensor | None) -> Tensor | None:
    """What to start from, token ids or numbers in the input's shape; None where the start is zero."""
    ids = token_ids(inputs)
    if ids is None:
        return baseline if isinstance(baseline, Tensor) else None
    if isinstance(baseline, Tensor):
        if baseline.shape != ids.shape:
            raise InputError(f"baseline ids have shape {tuple(baseline.shape)}, the input {tuple(ids.shape)}")
        return baseline
    if baseline is None:
        baseline = getattr(getattr(model, "config", None), "pad_token_id", None)
    return None if baseline is None else torch.full_like(ids, baseline)


def _edited(inputs: Inputs) -> At:
    """Where an input can be changed: its word embeddings, itself when it is made of numbers, else at the first block.

    A mask of more units than the input has rows (a graph's virtual node) tells that only the block has them all.
    """
    if "input_ids" in inputs:
        return "word_embeddings"
    mask = token_mask(inputs)
    tensors = [one for name, one in inputs.items() if isinstance(one, Tensor) and "mask" not in name]
    numbers = [one for one in tensors if one.is_floating_point()]
    whole = mask is None or all(one.shape[: mask.dim()] == mask.shape for one in numbers)
    return "input" if numbers and whole else "block"


@METHODS.register(
    family="gradient", signed=True, gradients=True, additive=True, citation="Smilkov et al. 2017, SmoothGrad"
)
def smoothgrad(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    samples: int = 25,
    noise: float = 0.1,
    seed: int = 0,
    internal_batch_size: int = 32,
) -> Attribution:
    """Mean of input times gradient under Gaussian noise; `noise` is its share of the input's range."""
    if samples < 1:
        raise InputError(f"smoothgrad needs at least one sample, got {samples}")
    chosen = predict(model, inputs, target)
    batch = batch_size(inputs)
    scores: Tensor | None = None
    for owner, sample in copies(batch, samples, internal_batch_size):
        part_inputs = select(inputs, owner, batch)
        shaker = _Noise(part_inputs, sample, noise, seed)
        flow = propagate(
            model,
            part_inputs,
            [chosen.exact[i] for i in owner],
            rulesets.gradient,
            at=_edited(inputs),
            edit=shaker.edit,
        )
        part = unit_scores(flow, flow.relevance(), part_inputs)
        scores = part.new_zeros((batch, part.shape[1])) if scores is None else scores
        scores.index_add_(0, owner.to(part.device), part / samples)
    assert scores is not None
    return Attribution(scores, chosen.value, chosen.names, "smoothgrad", chosen.rows)


class _Noise:
    """Noise on the real units, drawn from each example's own content: neither order, batch nor padding changes it."""

    def __init__(self, inputs: Inputs, sample: Tensor, level: float, seed: int) -> None:
        self._inputs = inputs
        self._seeds = [f"{seed}/{number}" for number in sample.tolist()]
        self._level = level

    def edit(self, x: Tensor, ids: Tensor | None, lookup: Lookup | None) -> Tensor:
        place = None if ids is None else units_at(ids, self._inputs)
        own = slice(None) if place is None or place[0] < 0 else slice(*place)
        seeds = [f"{seed}/{own.start}" if own.start else seed for seed in self._seeds]  # each side has its own noise
        rows = zip(x, singles(self._inputs), seeds, strict=True)
        return torch.stack([self._shaken(row, alone, seed, own) for row, alone, seed in rows])

    def _shaken(self, row: Tensor, alone: Inputs, seed: str, own: slice) -> Tensor:
        real = real_units(alone)[own].to(row.device)
        units = real if row.dim() == 2 and len(row) == len(real) else slice(None)
        values = row[units]
        drawn = torch.randn(values.shape, generator=content_generator(alone, seed), dtype=torch.float64).to(row)
        noisy = row.clone()
        noisy[units] = values + self._level * (values.max() - values.min()) * drawn
        return noisy
