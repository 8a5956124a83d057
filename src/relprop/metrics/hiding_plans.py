"""The perturbation metrics on tokens and nodes, as a table: in which order units are taken, which are hidden, what is
read of the model's answers, at which fractions, and how a curve becomes one number.

Units with equal scores are taken in the order of the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.errors import InputError, unknown_name

Variant = Literal["paper", "released"]
# From the scores of an example's units, and which of them may be hidden, to the order in which fractions take them.
UnitOrder = Callable[[Tensor, Tensor], Tensor]


class ClassAnswers(NamedTuple):
    """What the model returned for some examples, in double precision."""

    logits: Tensor  # [examples, fractions, classes]
    whole: Tensor  # [examples, classes], with nothing hidden
    labels: Tensor  # [examples]
    multi_label: bool  # classes do not exclude each other: each has a probability of its own

    def log_p(self) -> tuple[Tensor, Tensor]:
        """log p of the labels [examples, fractions], and with nothing hidden [examples, 1]."""
        if self.whole.shape[-1] < 2:
            raise InputError("the metric reads probabilities: it needs a model of two classes or more")
        logits = torch.cat([self.logits, self.whole[:, None]], 1)
        log_p = F.logsigmoid(logits) if self.multi_label else logits.log_softmax(-1)
        of_labels = log_p.take_along_dim(self.labels[:, None, None], 2)[..., 0]
        return of_labels[:, :-1], of_labels[:, -1:]


def most_relevant(scores: Tensor, content: Tensor) -> Tensor:
    order = scores.argsort(descending=True, stable=True)
    return order[content[order]]


def least_absolute(scores: Tensor, content: Tensor) -> Tensor:
    return most_relevant(-scores.abs(), content)


def released_most_relevant(scores: Tensor, content: Tensor) -> Tensor:
    """[Ali22]'s code: special tokens too, and `argsort()[::-1]`, which puts the last of tied tokens first."""
    return scores.argsort(stable=True).flip(0)


def released_least_absolute(scores: Tensor, content: Tensor) -> Tensor:
    return scores.abs().argsort(stable=True)


def released_without_last(scores: Tensor, content: Tensor) -> Tensor:
    """[Song24]'s code: its loop stops before the last of all tokens, which is therefore never hidden."""
    order = scores.argsort(descending=True, stable=True)[:-1]
    return order[content[order]]


def rounded_up(number: float) -> int:
    """The next whole number, so that any fraction is at least one token; 0.07 * 100 is 7.000000000000001."""
    return math.ceil(number - 1e-9)


def probability(answers: ClassAnswers) -> Tensor:
    return answers.log_p()[0].exp()


def probability_drop(answers: ClassAnswers) -> Tensor:
    log_p, log_p0 = answers.log_p()
    return log_p0.exp() - log_p.exp()


def log_ratio(answers: ClassAnswers) -> Tensor:
    log_p, log_p0 = answers.log_p()
    return log_p - log_p0


def squared_change(answers: ClassAnswers) -> Tensor:
    return (answers.logits - answers.whole[:, None]).square().sum(-1)


@dataclass(frozen=True)
class HidingPlan:
    """One perturbation metric: a row of the table."""

    name: str
    order: UnitOrder
    hides: Literal["first", "rest"]  # at a fraction: the first units of the order, or all of it but these
    read: Callable[[ClassAnswers], Tensor]  # gives [examples, fractions]
    fractions: tuple[float, ...]
    by: Literal["area", "mean"]
    rounds: Callable[[float], int] = rounded_up
    of_all: bool = False  # fractions are of all units, not only of those in the order
    shortest: int = 0  # examples of fewer units are left out

    def counts(self, units: int, ordered: int) -> list[int]:
        """How many of the `ordered` units each fraction takes, in an example of `units`."""
        total = units if self.of_all else ordered
        return [min(self.rounds(fraction * total), ordered) for fraction in self.fractions]

    def hidden(self, scores: Tensor, content: Tensor) -> Tensor:
        """Masks of one example's units [fractions, units]."""
        order = self.order(scores, content)
        counts = torch.tensor(self.counts(len(scores), len(order)))[:, None]
        ranks = torch.arange(len(order))
        masks = torch.zeros(len(counts), len(scores), dtype=torch.bool)
        masks[:, order] = ranks < counts if self.hides == "first" else ranks >= counts
        return masks


TENTHS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
ERASER = (0.01, 0.05, 0.1, 0.2, 0.5)
_PAPER = {
    row.name: row
    for row in (
        HidingPlan("auac", most_relevant, "rest", probability, TENTHS, "area"),  # [Ali22] Table 1
        HidingPlan("au_mse", least_absolute, "first", squared_change, TENTHS, "area"),  # [Ali22] Table 2
        HidingPlan("aopc", most_relevant, "first", probability_drop, TENTHS[1:-1], "mean"),  # [Song24] Table 1
        HidingPlan("log_odds", most_relevant, "first", log_ratio, TENTHS[1:-1], "mean"),  # [Song24] Table 1
        HidingPlan("comprehensiveness", most_relevant, "first", probability_drop, ERASER, "mean"),  # ERASER, section 4
        HidingPlan("sufficiency", most_relevant, "rest", probability_drop, ERASER, "mean"),  # ERASER, section 4
    )
}
_LINSPACE = tuple(i * (1 / 10) for i in range(11))  # numpy's to the last bit, as 0.3 * 10 tokens then become 4
_NINTHS = tuple(i * (1 / 9) for i in range(1, 10))
_RELEASED = (
    _PAPER
    | {  # ERASER's released code computes what its paper says
        "auac": replace(_PAPER["auac"], order=released_most_relevant, fractions=_LINSPACE, rounds=math.ceil),
        "au_mse": replace(_PAPER["au_mse"], order=released_least_absolute, fractions=_LINSPACE, rounds=math.ceil),
    }
    | {
        name: replace(
            _PAPER[name], order=released_without_last, fractions=_NINTHS, rounds=round, of_all=True, shortest=20
        )
        for name in ("aopc", "log_odds")
    }
)

FAITHFULNESS = tuple(_PAPER)


def plan(name: str, fractions: Sequence[float] | None = None, variant: Variant = "paper") -> HidingPlan:
    """A metric by name, at other fractions than the paper's if given."""
    if variant not in ("paper", "released"):
        raise InputError(f'variant is "paper" or "released", got {variant!r}')
    rows = _RELEASED if variant == "released" else _PAPER
    if name not in rows:
        raise unknown_name("metric", name, rows)
    return rows[name] if fractions is None else replace(rows[name], fractions=_rising(fractions))


def _rising(fractions: Sequence[float]) -> tuple[float, ...]:
    steps = tuple(float(fraction) for fraction in fractions)
    if not steps or not all(0 <= step <= 1 for step in steps) or any(a >= b for a, b in pairwise(steps)):
        raise InputError(f"fractions rise from 0 to 1, got {list(steps)}")
    return steps
