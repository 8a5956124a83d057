"""Plain gradients, and their averages over baselines or noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relprop.engine.forward_passes import forward_flow
from relprop.engine.leaves import batch_of, explained_parts
from relprop.engine.passes import propagate
from relprop.engine.sources import At, Source, replaced_ids
from relprop.engine.units import unit_index
from relprop.errors import InputError
from relprop.methods.examples import (
    check_separable,
    example_copies,
    examples_first,
    keeps_batch,
    select_examples,
    single_examples,
)
from relprop.methods.unit_scores import (
    Inputs,
    Parts,
    attribution,
    content_generator,
    input_relevance,
    mask_of,
    real_units,
    unit_scores,
)
from relprop.model_config import config_value
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
    """L2 norm of the gradient at each unit (saliency).

    Simonyan et al. 2014.
    """
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
    """Sum over features of input times gradient (GI).

    sum_d x_d * dy/dx_d, Shrikumar et al. 2017; x is the input of the first block, as in [Ali22].
    """
    return input_relevance(
        model, inputs, target, rulesets.gradient, "gradient_x_input", at=at, checkpoint=checkpoint, ledger=ledger
    )


@METHODS.register(
    family="gradient",
    signed=True,
    gradients=True,
    complete=True,
    additive=True,
    passes=lambda units, options: options["steps"] + 1,
    citation="Sundararajan et al. 2017, Axiomatic Attribution",
)
def integrated_gradients(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    steps: int = 50,
    baseline: Baseline = None,
    at: At | None = None,
    internal_batch_size: int = 32,
) -> Attribution:
    """Gradients averaged along the straight path from a baseline to the input, at Gauss-Legendre points.

    Sundararajan et al. 2017. `baseline`: a token id, or ids of the input's shape; None takes the model's pad token. For
    floats it is a tensor of the input's shape, and None is zero; where only the first block's input can be changed
    (graphs), None is the mean of its rows. For several inputs, a dict with one baseline each. Scores sum to value -
    baseline value, as far as the steps resolve the path: RMSNorm models jump at all-zero embeddings.
    `at="elements"` scores every number of a float input by itself.
    """
    if steps < 1:
        raise InputError(f"integrated_gradients needs at least one step, got {steps}")
    chosen = _plain_target(model, inputs, target)
    points, weights = np.polynomial.legendre.leggauss(steps)
    # Point 0 with weight 0 is added: its value is the baseline's.
    alphas = torch.tensor([0.0, *(points + 1) / 2], dtype=torch.float64)
    shares = torch.tensor([0.0, *weights / 2], dtype=torch.float64)
    at = _edited_at(at, inputs)
    references = _references(model, inputs, baseline)
    batch = batch_of(inputs)
    start = torch.zeros_like(chosen.value)
    total: Parts = {}
    for owner, point in example_copies(batch, steps + 1, internal_batch_size, keeps_batch(chosen)):
        chunk = select_examples(inputs, owner, batch)
        own = {name: one[owner.to(one.device)] if isinstance(one, Tensor) else one for name, one in references.items()}
        path = _BaselinePath(alphas[point], chunk, own)
        targets = [chosen.exact[i] for i in owner]
        flow = propagate(model, chunk, targets, rulesets.gradient, at=at, edit=path.edit)
        differences = path.differences[-len(flow.arrived) :]  # of the last run: a pass may take several
        change = [at_least_float32(g) * d for g, d in zip(flow.arrived, differences, strict=True)]
        on_path = point > 0
        for name, part in unit_scores(flow, change, chunk).items():
            weighted = part[on_path] * shares[point[on_path]].to(part)[:, None]
            total.setdefault(name, part.new_zeros(batch, part.shape[1]))
            total[name].index_add_(0, owner[on_path].to(part.device), weighted)
        start[owner[~on_path]] = flow.chosen.value[~on_path]
    return attribution(flow, "integrated_gradients", total, chosen, baseline=start)


def _plain_target(model: nn.Module, inputs: Inputs, target: Any) -> ChosenTarget:
    """The target of the unchanged inputs. Raises unless examples lie along the first axis."""
    flow = forward_flow(model, inputs, target)
    examples_first(flow)
    check_separable(model, inputs, flow.chosen)
    return flow.chosen


class _BaselinePath:
    """Moves each source to a point on the straight path from its baseline (token ids or numbers) to the input."""

    def __init__(self, alphas: Tensor, inputs: Inputs, references: References) -> None:
        self._alphas, self._inputs, self._references = alphas, inputs, references
        self.differences: list[Tensor] = []

    def edit(self, source: Source) -> Tensor:
        x, start = source.leaf, self._start(source)
        self.differences.append(at_least_float32(x - start))
        example = unit_index(source.rows, len(self._alphas), 0, source.enters).example
        alphas = torch.where(example >= 0, self._alphas.to(example.device)[example.clamp_min(0)], 1).to(x)
        return start + source.rows.back(alphas[:, None] * source.rows.of(x - start), x.shape)

    def _start(self, source: Source) -> Tensor:
        reference = self._references.get(source.part)
        if not source.enters:
            return _mean_row(source, self._inputs)
        if source.lookup is None:
            if isinstance(reference, Tensor) and reference.shape == source.leaf.shape:
                return reference.to(source.leaf)
            return torch.zeros_like(source.leaf)
        if reference is None or not source.raw_ids:
            return torch.zeros_like(source.leaf)
        return source.lookup(replaced_ids(source, reference))


def _mean_row(source: Source, inputs: Inputs) -> Tensor:
    """The mean of the real rows, as every row: from zeros, a LayerNorm would change everything in the first step."""
    x, mask = source.leaf, mask_of(source.part, inputs)
    real = torch.ones_like(x[..., :1]) if mask is None or mask.shape != x.shape[:2] else (mask != 0).to(x)[..., None]
    return ((x * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)).expand_as(x)


def _references(model: nn.Module, inputs: Inputs, baseline: Baseline) -> References:
    """The baseline per part: token ids, or numbers of the part's shape; None for zeros."""
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
    token: int | None = config_value(model, "pad_token_id") if baseline is None else baseline
    return {name: None if value.is_floating_point() else token for name, value in parts.items()}


def _edited_at(at: At | None, inputs: Inputs) -> At:
    if at not in (None, "elements"):
        raise InputError(f'inputs are changed as they enter: at is None or "elements", got {at!r:.80}')
    return "elements" if at else edited_at(inputs)


def edited_at(inputs: Inputs) -> At:
    """Where inputs can be changed: as they enter, or at the first block if only that has all units.

    The latter is the case if the mask has one unit more than the input has rows (a graph's virtual node).
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
    family="gradient",
    signed=True,
    gradients=True,
    additive=True,
    passes=lambda units, options: options["samples"] + 1,
    citation="Smilkov et al. 2017, SmoothGrad",
)
def smoothgrad(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    samples: int = 25,
    noise: float = 0.1,
    seed: int = 0,
    at: At | None = None,
    internal_batch_size: int = 32,
) -> Attribution:
    """Mean of input times gradient under Gaussian noise; `noise` is its share of the input's range.

    Smilkov et al. 2017, applied to input x gradient. `at="elements"` scores every number of a float input by itself.
    """
    if samples < 1:
        raise InputError(f"smoothgrad needs at least one sample, got {samples}")
    chosen = _plain_target(model, inputs, target)
    batch = batch_of(inputs)
    total: Parts = {}
    for owner, sample in example_copies(batch, samples, internal_batch_size, keeps_batch(chosen)):
        chunk = select_examples(inputs, owner, batch)
        shaker = _Noise(chunk, sample, noise, seed)
        targets = [chosen.exact[i] for i in owner]
        flow = propagate(model, chunk, targets, rulesets.gradient, at=_edited_at(at, inputs), edit=shaker.edit)
        for name, part in unit_scores(flow, flow.relevance(), chunk).items():
            total.setdefault(name, part.new_zeros(batch, part.shape[1]))
            total[name].index_add_(0, owner.to(part.device), part / samples)
    return attribution(flow, "smoothgrad", total, chosen)


class _Noise:
    """Adds noise to the real units, seeded by each example's content: order, batch and padding do not change it."""

    def __init__(self, inputs: Inputs, sample: Tensor, level: float, seed: int) -> None:
        self._inputs = inputs
        self._seeds = [f"{seed}/{number}" for number in sample.tolist()]
        self._level = level

    def edit(self, source: Source) -> Tensor:
        """The source with the noise of each example on its rows; rows of padding and of no input get none."""
        index = unit_index(source.rows, len(self._seeds), 0, source.enters, source.features)
        real = real_units(source.part, self._inputs, index.units)
        rows = source.rows.of(source.leaf).clone()
        first = next(iter(explained_parts(self._inputs)))
        for number, (alone, seed) in enumerate(zip(single_examples(self._inputs), self._seeds, strict=True)):
            own = (index.example == number) & (index.unit >= 0)
            own[own.clone()] = real[number].to(own.device)[index.unit[own]]
            values = rows[own]
            seed = seed if source.part == first else f"{seed}/{source.part}"  # each part has its own noise
            drawn = torch.randn(values.shape, generator=content_generator(alone, seed), dtype=torch.float64)
            rows[own] = values + self._level * (values.max() - values.min()) * drawn.to(values)
        return source.rows.back(rows, source.leaf.shape)
