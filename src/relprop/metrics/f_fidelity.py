"""F-Fidelity (Zheng et al., ICLR 2025): does a model that knows hidden units still err without the relevant ones?

The model that is asked was fine-tuned once with each unit hidden at random with probability beta, blind to any
explanation, so that inputs with few hidden units are nothing new to it. Of n units, s are the most relevant:

    FFid+ = acc(x) - E acc(x, each of the s most relevant units hidden with probability min(alpha, beta n / s))
    FFid- = acc(x) - E acc(x, each of the n - s others hidden with probability min(alpha, beta n / (n - s)))

so that about beta n units are hidden, as many as in the fine-tuning, however large s is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from relprop.errors import InputError
from relprop.metrics.hidden_units import Hidden
from relprop.metrics.hiding_plans import TENTHS, most_relevant, rounded_up
from relprop.metrics.nodes import Nodes
from relprop.metrics.score_arrays import Floats, Ints, Values, mean_defined
from relprop.metrics.token_perturbation import nothing_hidden, whole_answers
from relprop.metrics.tokens import Tokens, token_logits

ALPHA, BETA, DRAWS = 0.5, 0.1, 50  # as the paper's experiments
SIZES = TENTHS[1:-1]


@dataclass(frozen=True, eq=False)
class FFidelity:
    """The two curves per example, over the share of units that counts as relevant."""

    fractions: tuple[float, ...]
    plus: Floats  # [examples, fractions]
    minus: Floats  # [examples, fractions]
    labels: Ints  # [examples]: the classes that count as right

    def summary(self) -> dict[str, float]:
        """The means over fractions and examples."""
        return {"f_fidelity_plus": mean_defined(self.plus), "f_fidelity_minus": mean_defined(self.minus)}


def f_fidelity(
    model: nn.Module,
    tokens: Tokens | Nodes,
    scores: Sequence[Values],
    labels: Values | None = None,
    *,
    alpha: float = ALPHA,
    beta: float = BETA,
    draws: int = DRAWS,
    fractions: Sequence[float] = SIZES,
    seed: int = 0,
    batch_size: int = 32,
) -> list[FFidelity]:
    """FFid+ and FFid- of several sets of scores [examples, units], one result per set.

    `model` is the fine-tuned one, and `beta` the rate of its fine-tuning. `labels` are the classes that count as right;
    None takes those that it predicts for the whole inputs. What is drawn depends on the seed and the input alone, so
    all sets of scores meet the same draws.
    """
    sizes = _checked(alpha, beta, draws, fractions)
    score_sets = [torch.from_numpy(tokens.scores(one)) for one in scores]
    whole = nothing_hidden(tokens)
    seeds = [_seed(key, seed) for key in tokens.keys(whole)]
    questions = list(whole)
    for one in score_sets:
        for i, (row, content) in enumerate(zip(one, tokens.hideable, strict=True)):
            order = most_relevant(row, content)
            masks = _masks(order, len(row), sizes, (alpha, beta), draws, seeds[i])
            questions += [Hidden(i, mask) for mask in masks.flatten(0, 2)]
    logits = token_logits(model, tokens, questions, batch_size=batch_size)
    answers = whole_answers(model, logits[: len(tokens)], labels)
    right = answers.whole.argmax(-1) == answers.labels
    shape = len(score_sets), len(tokens), 2, len(sizes), draws
    said = logits[len(tokens) :].argmax(-1).view(shape)
    hits = (said == answers.labels.view(1, -1, 1, 1, 1)).double().mean(-1)  # [sets, examples, 2, fractions]
    fallen = (right.double().view(1, -1, 1, 1) - hits).numpy()
    return [FFidelity(sizes, own[:, 0], own[:, 1], answers.labels.numpy()) for own in fallen]


def _checked(alpha: float, beta: float, draws: int, fractions: Sequence[float]) -> tuple[float, ...]:
    if not 0 < alpha <= 1 or not 0 < beta <= 1 or draws < 1:
        raise InputError(f"alpha and beta are in (0, 1], draws 1 or more; got {alpha}, {beta} and {draws}")
    sizes = tuple(float(one) for one in fractions)
    if not sizes or not all(0 < one < 1 for one in sizes):
        raise InputError(f"fractions lie between 0 and 1, got {list(sizes)}")
    return sizes


def _seed(key: bytes, seed: int) -> int:
    """Told by what the model reads, so that neither batches nor the order of examples matter."""
    return int.from_bytes(hashlib.sha256(f"{seed} ".encode() + key).digest()[:7], "big")


def _masks(
    order: Tensor, units: int, fractions: Sequence[float], rates: tuple[float, float], draws: int, seed: int
) -> Tensor:
    """[2, fractions, draws, units]: hidden among the relevant ones, and among the others, of one example."""
    alpha, beta = rates
    count, ranks = len(order), torch.arange(len(order))
    drawn = torch.rand(draws, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    masks = torch.zeros(2, len(fractions), draws, units, dtype=torch.bool)
    for k, fraction in enumerate(fractions):
        s = rounded_up(fraction * count)
        for side, (among, size) in enumerate(((ranks < s, s), (ranks >= s, count - s))):
            if size:
                masks[side, k][:, order] = among & (drawn < min(alpha, beta * count / size))
    return masks
