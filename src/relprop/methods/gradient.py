"""Plain gradients and their averages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relprop.engine.forward_passes import forward_flow
from relprop.engine.leaves import batch_of, explained_parts
from relprop.engine.passes import propagate
from relprop.engine.sources import At, Source
from relprop.engine.units import unit_index
from relprop.errors import InputError
from relprop.methods.unit_scores import (
    Inputs,
    Parts,
    attribution,
    content_generator,
    example_copies,
    examples_first,
    input_relevance,
    mask_of,
    real_units,
    replaced_ids,
    select_examples,
    single_examples,
    unit_scores,
)
from relprop.ops import at_least_float32
from relprop.registry import METHODS
from relprop.rulebook import rulesets
from relprop.targets import ChosenTarget
from relprop.types import Attribution

Baseline = int | Tensor | Mapping[str, Tensor] | None
References = dict[str, Tensor | int | None]


@METHODS.register(family="gradient", signed=False, gradients=True, several=True, citation="Simonyan et al. 2014")
def gradient(
    model: nn.Module, inputs: Inputs, target: Any, *, at: At | None = None, checkpoint: bool = False
) -> Attribution:
    """L2 norm of the gradient at each unit (saliency)."""
    flow = propagate(model, inputs, target, rulesets.gradient, at=at, checkpoint=checkpoint)
    norms = unit_scores(flow, [at_least_float32(g) for g in flow.arrived], inputs, lambda g: g.norm(dim=-1))
    return attribution(flow, "gradient", norms)


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
    baseline: Baseline = None,
    internal_batch_size: int = 32,
) -> Attribution:
    """Gradients averaged on the straight way from a baseline to the input, at Gauss-Legendre points.

    `baseline`: a token id, or ids of the input's shape; None takes the model's pad token. Of floats it is a tensor of
    the input's shape, and None is zero; where only the first block can be changed (graphs), None is the mean of its
    rows. For several inputs, a dict with one each. Scores sum to value - baseline value, as far as the steps resolve
    the way: from all-zero embeddings, RMSNorm models jump.
    """
    if steps < 1:
        raise InputError(f"integrated_gradients needs at least one step, got {steps}")
    chosen = _checked(model, inputs, target)
    points, weights = np.polynomial.legendre.leggauss(steps)
    # Point 0 with weight 0 rides along: its value is the baseline's.
    alphas = torch.tensor([0.0, *(points + 1) / 2], dtype=torch.float64)
    shares = torch.tensor([0.0, *weights / 2], dtype=torch.float64)
    at = edited_at(inputs)
    references = _references(model, inputs, baseline)
    batch = batch_of(inputs)
    start = torch.zeros_like(chosen.value)
    total: Parts = {}
    for owner, point in example_copies(batch, steps + 1, internal_batch_size):
        chunk = select_examples(inputs, owner, batch)
        own = {name: one[owner.to(one.device)] if isinstance(one, Tensor) else one for name, one in references.items()}
        path = _BaselinePath(alphas[point], chunk, own)
        targets = [chosen.exact[i] for i in owner]
        flow = propagate(model, chunk, targets, rulesets.gradient, at=at, edit=path.edit)
        change = [at_least_float32(g) * d for g, d in zip(flow.arrived, path.differences, strict=True)]
        on_the_way = point > 0
        for name, part in unit_scores(flow, change, chunk).items():
            weighted = part[on_the_way] * shares[point[on_the_way]].to(part)[:, None]
            total.setdefault(name, part.new_zeros(batch, part.shape[1]))
            total[name].index_add_(0, owner[on_the_way].to(part.device), weighted)
        start[owner[~on_the_way]] = flow.chosen.value[~on_the_way]
    return attribution(flow, "integrated_gradients", total, chosen, baseline=start)


def _checked(model: nn.Module, inputs: Inputs, target: Any) -> ChosenTarget:
    """The target of the inputs as they are, whose examples can be taken one by one."""
    flow = forward_flow(model, inputs, target)
    examples_first(flow)
    return flow.chosen


class _BaselinePath:
    """Points on the straight way from the baseline of each part, token ids or numbers, to the input."""

    def __init__(self, alphas: Tensor, inputs: Inputs, references: References) -> None:
        self._alphas, self._inputs, self._references = alphas, inputs, references
        self.differences: list[Tensor] = []

    def edit(self, source: Source) -> Tensor:
        x, start = source.leaf, self._start(source)
        self.differences.append(at_least_float32(x - start))
        single_example = unit_index(source.rows, len(self._alphas), 0, source.enters).example
        alphas = torch.where(
            single_example >= 0, self._alphas.to(single_example.device)[single_example.clamp_min(0)], 1
        ).to(x)
        return start + source.rows.back(alphas[:, None] * source.rows.of(x - start), x.shape)

    def _start(self, source: Source) -> Tensor:
        reference = self._references.get(source.part)
        if not source.enters:
            return _mean_row(source, self._inputs)
        if source.lookup is None:
            fits = isinstance(reference, Tensor) and reference.shape == source.leaf.shape
            return (
                reference.to(source.leaf) if fits and isinstance(reference, Tensor) else torch.zeros_like(source.leaf)
            )
        return torch.zeros_like(source.leaf) if reference is None else source.lookup(replaced_ids(source, reference))


def _mean_row(source: Source, inputs: Inputs) -> Tensor:
    """Every row the mean of the real ones: a layer norm of zeros would leave all there is to the first step."""
    x, mask = source.leaf, mask_of(source.part, inputs)
    real = torch.ones_like(x[..., :1]) if mask is None or mask.shape != x.shape[:2] else (mask != 0).to(x)[..., None]
    return ((x * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)).expand_as(x)


def _references(model: nn.Module, inputs: Inputs, baseline: Baseline) -> References:
    """What each part starts from: token ids, or numbers in the part's shape; None where the start is zero."""
    parts = explained_parts(inputs)
    if isinstance(baseline, Tensor):
        if len(parts) != 1:
            raise InputError(f"the inputs are {', '.join(parts)}: give the baseline as a dict, one for each")
        baseline = dict.fromkeys(parts, baseline)
    if isinstance(baseline, Mapping):
        for name, one in baseline.items():
            if name not in parts or parts[name].shape != one.shape:
                own = tuple(parts[name].shape) if name in parts else f"none of that name, but {', '.join(parts)}"
                raise InputError(f'the baseline of "{name}" has shape {tuple(one.shape)}, the input {own}')
        return {name: baseline.get(name) for name in parts}
    if baseline is None:
        baseline = getattr(getattr(model, "config", None), "pad_token_id", None)
    return {name: None if value.is_floating_point() else baseline for name, value in parts.items()}


def edited_at(inputs: Inputs) -> At:
    """Where an input can be changed: as it enters; else, where only the first block has all its units, there.

    A mask of more units than the input has rows (a graph's virtual node) tells so.
    """
    for name, part in explained_parts(inputs).items():
        mask = mask_of(name, inputs)
        if (
            part.dim() > 2
            and mask is not None
            and len(explained_parts(inputs)) <= 2
            and mask.shape[1] == part.shape[1] + 1
        ):
            return "block"
    return "leaf"


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
    chosen = _checked(model, inputs, target)
    batch = batch_of(inputs)
    total: Parts = {}
    for owner, sample in example_copies(batch, samples, internal_batch_size):
        chunk = select_examples(inputs, owner, batch)
        shaker = _Noise(chunk, sample, noise, seed)
        targets = [chosen.exact[i] for i in owner]
        flow = propagate(model, chunk, targets, rulesets.gradient, at=edited_at(inputs), edit=shaker.edit)
        for name, part in unit_scores(flow, flow.relevance(), chunk).items():
            total.setdefault(name, part.new_zeros(batch, part.shape[1]))
            total[name].index_add_(0, owner.to(part.device), part / samples)
    return attribution(flow, "smoothgrad", total, chosen)


class _Noise:
    """Noise on the real units, drawn from each example's own content: neither order, batch nor padding changes it."""

    def __init__(self, inputs: Inputs, sample: Tensor, level: float, seed: int) -> None:
        self._inputs = inputs
        self._seeds = [f"{seed}/{number}" for number in sample.tolist()]
        self._level = level

    def edit(self, source: Source) -> Tensor:
        """Rows of one example, in their order, get its noise; those of padding and of no input get none."""
        found = unit_index(source.rows, len(self._seeds), 0, source.enters, source.features)
        real = real_units(source.part, self._inputs, found.units)
        rows = source.rows.of(source.leaf).clone()
        first = next(iter(explained_parts(self._inputs)))
        for number, (alone, seed) in enumerate(zip(single_examples(self._inputs), self._seeds, strict=True)):
            own = (found.example == number) & (found.unit >= 0)
            own[own.clone()] = real[number].to(own.device)[found.unit[own]]
            values = rows[own]
            seed = seed if source.part == first else f"{seed}/{source.part}"  # each part has its own noise
            drawn = torch.randn(values.shape, generator=content_generator(alone, seed), dtype=torch.float64)
            rows[own] = values + self._level * (values.max() - values.min()) * drawn.to(values)
        return source.rows.back(rows, source.leaf.shape)
