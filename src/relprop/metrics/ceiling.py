"""How good can scores be? The best order of a text's tokens by the metric itself, found by search.

A metric that hides tokens looks at scores only for which tokens come first: at each fraction a set, which holds the
sets before it. The search makes such a chain of sets token by token, and keeps the best few of each size: from the
empty set up, then from all tokens down, and the better of the two. It is exact if it may keep as many sets as there are
of one size, n over n/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from relprop.errors import InputError
from relprop.metrics.curves import Curve
from relprop.metrics.hiding import Hidden
from relprop.metrics.nodes import Nodes
from relprop.metrics.plans import Answers, Plan, plan
from relprop.metrics.results import METRICS, Floats
from relprop.metrics.token_perturbation import answers_of, faithfulness, whole_texts
from relprop.metrics.tokens import Tokens, token_logits

Set = int  # of a text's tokens, one a bit


def ceiling(
    model: nn.Module,
    tokens: Tokens | Nodes,
    labels: Any = None,
    *,
    metric: str | Plan = "auac",
    beam: int = 4,
    longest: int = 24,
    batch_size: int = 32,
) -> Curve:
    """The metric of the best order that the search finds: about as far as any scores can get."""
    each = plan(metric) if isinstance(metric, str) else metric
    best = greedy_scores(model, tokens, labels, metric=each, beam=beam, longest=longest, batch_size=batch_size)
    return faithfulness(model, tokens, [best], labels, metrics=[each], batch_size=batch_size)[0][each.name]


def greedy_scores(
    model: nn.Module,
    tokens: Tokens | Nodes,
    labels: Any = None,
    *,
    metric: str | Plan = "auac",
    beam: int = 4,
    longest: int = 24,
    batch_size: int = 32,
) -> Floats:
    """Scores [texts, tokens] that put the tokens into the best order that the search finds, for one metric.

    `beam` sets of each size are kept. For n tokens that may be hidden this asks for about beam x n^2 inputs; texts with
    more than `longest` such tokens are refused.
    """
    if beam < 1:
        raise InputError(f"beam must be at least 1, got {beam}")
    each = plan(metric) if isinstance(metric, str) else metric
    texts = [_text(each, real, content) for real, content in zip(tokens.real, tokens.hideable, strict=True)]
    for i, text in enumerate(texts):
        if len(text.places) > longest:
            raise InputError(
                f"text {i} has {len(text.places)} tokens to put in order, the search takes up to longest={longest}: "
                "leave the text out, or wait for it with a larger number"
            )
    whole = answers_of(model, token_logits(model, tokens, whole_texts(tokens), batch_size=batch_size), labels)
    oracle = _Oracle(model, tokens, each, whole, [text.places for text in texts], batch_size)
    oracle.note([(i, 0) for i in range(len(texts))], whole)
    upwards, downwards = (_search(oracle, some, beam) for some in (texts, [text.mirrored() for text in texts]))
    scores = np.zeros(tokens.real.shape)
    for row, text, up, down in zip(scores, texts, upwards, downwards, strict=True):
        order = up.order if up.total >= down.total else down.order[::-1]
        row[text.places[list(order)]] = text.scores
    return scores


class _Text(NamedTuple):
    """The tokens of a text that a plan puts in order, and what it then asks."""

    places: Any  # [n], where they are
    scores: Any  # [n], that make a token come first, second, ...
    weights: list[float]  # [n + 1], in the metric: of the value with the first 0, 1, ..., n in their place
    keeps: bool  # the first stay and the others are hidden; else the other way round

    def hidden(self, first: Set) -> Set:
        return (1 << len(self.places)) - 1 ^ first if self.keeps else first

    def mirrored(self) -> _Text:
        """The same, the last in order first."""
        return self._replace(weights=self.weights[::-1], keeps=not self.keeps)


def _text(each: Plan, real: Tensor, content: Tensor) -> _Text:
    """How the plan orders rising scores tells which tokens take part, and what makes one of them come early."""
    rising = torch.arange(1.0, int(real.sum()) + 1)
    order = each.schedule.order(rising, content[real])
    weights = [0.0] * (len(order) + 1)
    counts = each.schedule.counts(len(rising), len(order), each.fractions)
    for count, weight in zip(counts, _weights(each), strict=True):
        weights[count] += weight
    places = real.nonzero().flatten()[order.sort().values]
    return _Text(places.numpy(), rising[order].numpy(), weights, each.schedule.keeps)


def _weights(each: Plan) -> list[float]:
    """What each fraction's value counts in the metric."""
    if each.by == "mean":
        return [1 / len(each.fractions)] * len(each.fractions)
    steps = np.diff(each.fractions, prepend=each.fractions[0], append=each.fractions[-1])
    weights: list[float] = ((steps[1:] + steps[:-1]) / 2).tolist()
    return weights


@dataclass(frozen=True)
class _Oracle:
    """What the metric reads when a set of a text's tokens is hidden, larger is better. Nothing is asked twice."""

    model: nn.Module
    tokens: Tokens | Nodes
    plan: Plan
    whole: Answers
    places: list[Any]
    batch_size: int
    known: dict[tuple[int, Set], float] = field(default_factory=dict)

    def values(self, asked: Sequence[tuple[int, Set]]) -> list[float]:
        """By text and hidden set."""
        new = [one for one in dict.fromkeys(asked) if one not in self.known]
        if new:
            questions = [self._question(text, hidden) for text, hidden in new]
            logits = token_logits(self.model, self.tokens, questions, batch_size=self.batch_size).double()
            rows, whole = [text for text, _ in new], self.whole
            self.note(new, Answers(logits[:, None], whole.whole[rows], whole.labels[rows], whole.several))
        return [self.known[one] for one in asked]

    def note(self, asked: Sequence[tuple[int, Set]], answers: Answers) -> None:
        sign = 1 if METRICS[self.plan.name].better == "higher" else -1
        self.known.update(zip(asked, (sign * self.plan.read(answers)[:, 0]).tolist(), strict=True))

    def _question(self, text: int, hidden: Set) -> Hidden:
        units = torch.zeros_like(self.tokens.real[text])
        units[[place for j, place in enumerate(self.places[text]) if hidden >> j & 1]] = True
        return Hidden(text, units)


class _Path(NamedTuple):
    """A way to a set: its tokens in order, and the metric so far."""

    first: Set
    order: tuple[int, ...]
    total: float


def _search(oracle: _Oracle, texts: Sequence[_Text], beam: int) -> list[_Path]:
    """The best path through all tokens of each text, from the empty set; all texts take their steps together."""
    beams = [[_Path(0, (), 0.0)] for _ in texts]
    for size in range(max(len(text.places) for text in texts) + 1):
        there = [i for i, text in enumerate(texts) if size <= len(text.places)]
        for i in there if size else []:
            beams[i] = _grown(beams[i], len(texts[i].places))
        values = iter(oracle.values([(i, texts[i].hidden(path.first)) for i in there for path in beams[i]]))
        for i in there:
            beams[i] = _best(beams[i], [next(values) for _ in beams[i]], texts[i].weights[size:], beam)
    return [paths[0] for paths in beams]


def _grown(paths: list[_Path], tokens: int) -> list[_Path]:
    """With one more token, whichever; of the paths to one set the best."""
    found: dict[Set, _Path] = {}
    for path in paths:
        for j in range(tokens):
            first = path.first | 1 << j
            if first != path.first and (first not in found or found[first].total < path.total):
                found[first] = _Path(first, (*path.order, j), path.total)
    return list(found.values())


def _best(paths: list[_Path], values: list[float], weights: list[float], beam: int) -> list[_Path]:
    """The best few. At a size that the metric does not look at, by what they would give where it looks next."""
    ahead = next((weight for weight in weights if weight), 0.0)
    ranked = sorted(zip(paths, values, strict=True), key=lambda one: one[0].total + ahead * one[1], reverse=True)
    return [path._replace(total=path.total + weights[0] * value) for path, value in ranked[:beam]]
