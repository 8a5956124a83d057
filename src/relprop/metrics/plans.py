"""The perturbation metrics as plans: in which order tokens go, how many at each fraction, and what is then read.

Tokens with equal scores go in the order of the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from relprop.errors import InputError, unknown_name

TENTHS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
ERASER = (0.01, 0.05, 0.1, 0.2, 0.5)
Variant = Literal["paper", "released"]
# From the scores of a text's tokens, and which of them are content, to places: those that the fractions count first.
Order = Callable[[Tensor, Tensor], Tensor]


class Answers(NamedTuple):
    """What the model said of some examples, in double precision."""

    logits: Tensor  # [examples, fractions, classes]
    whole: Tensor  # [examples, classes], with nothing hidden
    labels: Tensor  # [examples]
    several: bool  # more than one class may be true: each has a probability of its own

    def log_p(self) -> tuple[Tensor, Tensor]:
        """log p of the labels [examples, fractions], and with nothing hidden [examples, 1]."""
        if self.whole.shape[-1] < 2:
            raise InputError("the metric reads probabilities: it needs a model of two classes or more")
        every = torch.cat([self.logits, self.whole[:, None]], 1)
        logs = torch.nn.functional.logsigmoid(every) if self.several else every.log_softmax(-1)
        own = logs.gather(2, self.labels[:, None, None].expand(-1, every.shape[1], 1))[..., 0]
        return own[:, :-1], own[:, -1:]


@dataclass(frozen=True)
class Schedule:
    """Which tokens are hidden at each fraction."""

    order: Order
    count: Callable[[float, int], int]  # from a fraction, and the number of tokens it is a fraction of
    keeps: bool = False  # the first of the order stay and the others are hidden; else the other way round
    of_all: bool = False  # fractions are of all tokens, not only of those that may be hidden
    shortest: int = 0  # texts of fewer tokens are left out

    def counts(self, tokens: int, ordered: int, fractions: Sequence[float]) -> list[int]:
        """How many of the order each fraction takes, for a text of some tokens, some of them in the order."""
        return [min(self.count(fraction, tokens if self.of_all else ordered), ordered) for fraction in fractions]

    def hidden(self, scores: Tensor, content: Tensor, fractions: Sequence[float]) -> Tensor:
        """Masks of a text's tokens [fractions, tokens]."""
        order = self.order(scores, content)
        counts = torch.tensor(self.counts(len(scores), len(order), fractions))[:, None]
        ranks = torch.arange(len(order))
        masks = torch.zeros(len(counts), len(scores), dtype=torch.bool)
        masks[:, order] = ranks >= counts if self.keeps else ranks < counts
        return masks


@dataclass(frozen=True)
class Plan:
    """One perturbation metric: a schedule, what is read of the answers, and how a curve becomes a number."""

    name: str
    fractions: tuple[float, ...]
    schedule: Schedule
    read: Callable[[Answers], Tensor]  # [examples, fractions]
    by: Literal["area", "mean"]


def _most_relevant(scores: Tensor, content: Tensor) -> Tensor:
    order = scores.argsort(descending=True, stable=True)
    return order[content[order]]


def _least_absolute(scores: Tensor, content: Tensor) -> Tensor:
    return _most_relevant(-scores.abs(), content)


def _released_most(scores: Tensor, content: Tensor) -> Tensor:
    """[Ali22]'s code: special tokens too, and `argsort()[::-1]`, which puts the last of tied tokens first."""
    return scores.argsort(stable=True).flip(0)


def _released_least(scores: Tensor, content: Tensor) -> Tensor:
    return scores.abs().argsort(stable=True)


def _released_but_last(scores: Tensor, content: Tensor) -> Tensor:
    """[Song24]'s code: its loop stops before the last of all tokens, which is therefore never hidden."""
    order = scores.argsort(descending=True, stable=True)[:-1]
    return order[content[order]]


def _up(fraction: float, total: int) -> int:
    """The next whole number, so that any fraction is at least one token; 0.07 * 100 is 7.000000000000001."""
    return math.ceil(fraction * total - 1e-9)


def _released_up(fraction: float, total: int) -> int:
    return math.ceil(fraction * total)


def _nearest(fraction: float, total: int) -> int:
    return round(fraction * total)


def _probability(answers: Answers) -> Tensor:
    return answers.log_p()[0].exp()


def _drop(answers: Answers) -> Tensor:
    log_p, log_p0 = answers.log_p()
    return log_p0.exp() - log_p.exp()


def _log_ratio(answers: Answers) -> Tensor:
    log_p, log_p0 = answers.log_p()
    return log_p - log_p0


def _squared_change(answers: Answers) -> Tensor:
    return (answers.logits - answers.whole[:, None]).square().sum(-1)


_SHOW = Schedule(_most_relevant, _up, keeps=True)
_HIDE = Schedule(_most_relevant, _up)
_PRUNE = Schedule(_least_absolute, _up)
_TENS = TENTHS[1:-1]
_PAPER = (
    Plan("auac", TENTHS, _SHOW, _probability, "area"),
    Plan("au_mse", TENTHS, _PRUNE, _squared_change, "area"),
    Plan("aopc", _TENS, _HIDE, _drop, "mean"),
    Plan("log_odds", _TENS, _HIDE, _log_ratio, "mean"),
    Plan("comprehensiveness", ERASER, _HIDE, _drop, "mean"),
    Plan("sufficiency", ERASER, _SHOW, _drop, "mean"),
)

_RELEASED_SHOW = Schedule(_released_most, _released_up, keeps=True)
_RELEASED_HIDE = Schedule(_released_but_last, _nearest, of_all=True, shortest=20)
_RELEASED_PRUNE = Schedule(_released_least, _released_up)
_LINSPACE = tuple(i * (1 / 10) for i in range(11))  # numpy's to the last bit, as 0.3 * 10 tokens then become 4
_NINTHS = tuple(i * (1 / 9) for i in range(1, 10))
_RELEASED = (
    Plan("auac", _LINSPACE, _RELEASED_SHOW, _probability, "area"),
    Plan("au_mse", _LINSPACE, _RELEASED_PRUNE, _squared_change, "area"),
    Plan("aopc", _NINTHS, _RELEASED_HIDE, _drop, "mean"),
    Plan("log_odds", _NINTHS, _RELEASED_HIDE, _log_ratio, "mean"),
)

FAITHFULNESS = tuple(plan.name for plan in _PAPER)


def plan(name: str, fractions: Sequence[float] | None = None, variant: Variant = "paper") -> Plan:
    """A metric by name, at fractions of one's own if given. ERASER's released code computes what its paper says."""
    if variant not in ("paper", "released"):
        raise InputError(f'variant is "paper" or "released", got {variant!r}')
    own: dict[str, Plan] = {one.name: one for one in (*_PAPER, *(_RELEASED if variant == "released" else ()))}
    if name not in own:
        raise unknown_name("metric", name, own)
    return own[name] if fractions is None else replace(own[name], fractions=rising(fractions))


def rising(fractions: Sequence[float]) -> tuple[float, ...]:
    """Fractions from 0 to 1, each larger than the one before."""
    steps = tuple(float(fraction) for fraction in fractions)
    if not steps or not all(0 <= step <= 1 for step in steps) or any(a >= b for a, b in pairwise(steps)):
        raise InputError(f"fractions rise from 0 to 1, got {list(steps)}")
    return steps
