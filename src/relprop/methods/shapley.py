"""Shapley values of the units, computed by the `shap` package."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from relprop.engine.forward_passes import forward_flow
from relprop.errors import InputError, RelpropError
from relprop.methods.examples import (
    check_separable,
    examples_first,
    keeps_batch,
    select_examples,
    single_examples,
)
from relprop.methods.perturbation import Hide, hideable_units
from relprop.methods.unit_scores import (
    Inputs,
    attribution,
    content_generator,
)
from relprop.model_config import config_value
from relprop.registry import METHODS
from relprop.types import Attribution

Masks = NDArray[np.bool_]
Values = NDArray[np.float64]
ALGORITHMS = ("permutation", "partition")
ROUNDS = 10  # permutations, each forwards and backwards, unless `max_evals` is given
AT_ONCE = 64  # groups that "partition" divides at a time; this affects the result, so it is not an option


def _passes(units: int, options: Mapping[str, Any]) -> int:
    return 1 + int(options["max_evals"] or ROUNDS * (2 * units + 1))


@METHODS.register(
    family="perturbation",
    signed=True,
    gradients=False,
    complete=True,
    additive=True,
    passes=_passes,
    citation="Lundberg and Lee 2017",
)
def shapley(
    model: nn.Module,
    inputs: Inputs,
    target: Any,
    *,
    algorithm: Literal["permutation", "partition"] = "permutation",
    max_evals: int | None = None,
    seed: int = 0,
    replacement: int | None = None,
    internal_batch_size: int = 32,
) -> Attribution:
    """Mean gain of the target when a unit joins the others: over permutations, or down a tree of neighbours.

    Lundberg and Lee 2017. Units are hidden as in occlusion; scores sum to value - value with all units hidden.
    `algorithm`: "permutation" samples orders, "partition" gives Owen values of a balanced tree over positions.
    `max_evals`: forward passes per example (None: 10 orders, forwards and backwards). Needs the `shap` package.
    """
    if algorithm not in ALGORITHMS:
        raise InputError(f'algorithm is "permutation" or "partition", got "{algorithm}"')
    shap = shap_package('method "shapley"')
    flow = forward_flow(model, inputs, target, at="tokens")
    examples_first(flow)
    chosen = flow.chosen
    if keeps_batch(chosen):
        raise InputError("shapley takes examples one by one, and a target function may need the whole batch: explain "
                         "one example at a time")  # fmt: skip
    check_separable(model, inputs, chosen)
    if replacement is None:
        replacement = config_value(model, "pad_token_id")
    every = hideable_units(flow, inputs)
    real, sizes = torch.cat(list(every.values()), 1), [one.shape[1] for one in every.values()]
    scores, baseline = chosen.value.new_zeros(real.shape), torch.zeros_like(chosen.value)
    for i, single in enumerate(single_examples(inputs)):
        game = _Game(model, single, chosen.exact[i], dict(zip(every, sizes, strict=True)), real[i], replacement,
                     internal_batch_size)  # fmt: skip
        own_seed = int(torch.randint(2**32, (), generator=content_generator(single, seed)))
        with _numpy_seed(own_seed):
            values, nothing = _solve(shap, game.value, int(real[i].sum()), algorithm, max_evals, own_seed)
        scores[i, real[i]] = torch.from_numpy(values).to(scores)
        baseline[i] = nothing
    return attribution(flow, "shapley", dict(zip(every, scores.split(sizes, 1), strict=True)), baseline=baseline)


def _solve(
    shap: Any, value: Callable[[Masks], Values], units: int, algorithm: str, max_evals: int | None, seed: int
) -> tuple[Values, float]:
    """The Shapley value of each unit, and the target with all units hidden."""
    evals = ROUNDS * (2 * units + 1) if max_evals is None else max_evals
    if algorithm == "partition" and units > 1:
        from scipy.cluster.hierarchy import linkage

        neighbours = linkage(np.arange(units, dtype=float)[:, None], "ward")
        explainer = shap.PartitionExplainer(value, _Masker(neighbours))
    else:
        if evals < 2 * units + 1:
            raise InputError(f"max_evals={evals} is too few: one order of {units} units takes {2 * units + 1}")
        explainer = shap.PermutationExplainer(value, _Masker(None), seed=seed)
    result = explainer(np.ones((1, units)), max_evals=evals, batch_size=AT_ONCE, silent=True)
    return result.values[0], float(result.base_values[0])


class _Masker:
    """Passes the masks of `shap` to the value function unchanged."""

    immutable_outputs = True

    def __init__(self, clustering: NDArray[np.float64] | None) -> None:
        self.clustering = clustering

    def __call__(self, mask: Masks, units: NDArray[Any]) -> Masks:
        return mask[None]


@dataclass(frozen=True)
class _Game:
    """One example, and the target for any set of its units."""

    model: nn.Module
    inputs: Inputs
    target: Any
    units: dict[str, int]  # per part the number of units; all parts are concatenated
    real: Tensor  # [units]: which of them are not padding
    replacement: int | None
    size: int

    def value(self, masks: Masks) -> Values:
        """Per mask the target with all other units hidden."""
        hidden = torch.zeros(len(masks), len(self.real), dtype=torch.bool)
        hidden[:, self.real] = ~torch.from_numpy(masks.astype(bool))
        return torch.cat([self._predicted(part) for part in hidden.split(max(1, self.size))]).double().cpu().numpy()

    def _predicted(self, hidden: Tensor) -> Tensor:
        repeated = select_examples(self.inputs, torch.zeros(len(hidden), dtype=torch.long), 1)
        by_part = dict(zip(self.units, hidden.split(list(self.units.values()), 1), strict=True))
        hide = Hide(by_part, self.replacement)
        return forward_flow(self.model, repeated, [self.target] * len(hidden), hide.edit, at="tokens").chosen.value


_numpy = threading.Lock()


@contextmanager
def _numpy_seed(seed: int) -> Iterator[None]:
    """Seeds numpy's global generator, which `shap` uses, for one run at a time; afterwards its state is restored."""
    with _numpy:
        state = np.random.get_state()
        np.random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(state)


def shap_package(what: str) -> Any:
    """The `shap` package, which `what` needs, imported on first use: it is large and optional."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PendingDeprecationWarning)  # its colour maps, while it is imported
            import shap
    except ImportError:
        raise RelpropError(f'{what} needs the shap package: pip install "relprop[shap]"') from None
    return shap
