"""How good can scores be? A search for the order of a text's tokens that the metric itself rates best.

A metric that hides tokens depends on the scores only through the order of the tokens: each fraction takes a set, which
contains the sets of all smaller fractions. The search builds such a chain of sets token by token and keeps the best
few of each size, once from the empty set up and once from all tokens down; the better chain wins. It is exact if it
keeps as many sets as there are of one size, n over n/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from relprop.errors import InputError
from relprop.metrics.curves import Curve
from relprop.metrics.hidden_units import Hidden
from relprop.metrics.hiding_plans import ClassAnswers, HidingPlan, plan
from relprop.metrics.metric_table import METRICS
from relprop.metrics.nodes import Nodes
from relprop.metrics.score_arrays import Floats, Ints, Values
from relprop.metrics.token_perturbation import faithfulness, nothing_hidden, whole_answers
from relprop.metrics.tokens import Tokens, token_logits

TokenSet = int  # of a text's tokens, one bit per token


def ceiling(
    model: nn.Module,
    tokens: Tokens | Nodes,
    labels: Values | None = None,
    *,
    metric: str | HidingPlan = "auac",
    beam: int = 4,
    longest: int = 24,
    batch_size: int = 32,
) -> Curve:
    """The metric's curves for the best order that the search finds: close to what any scores can reach."""
    each = plan(metric) if isinstance(metric, str) else metric
    best = greedy_scores(model, tokens, labels, metric=each, beam=beam, longest=longest, batch_size=batch_size)
    return faithfulness(model, tokens, [best], labels, metrics=[each], batch_size=batch_size)[0][each.name]


def limits(
    model: nn.Module,
    tokens: Tokens | Nodes,
    labels: Values | None = None,
    *,
    metric: str | HidingPlan = "aopc",
    beam: int = 4,
    longest: int = 24,
    batch_size: int = 32,
) -> tuple[Floats, Floats]:
    """The lowest and the highest value [texts] of a metric that the search finds, whatever the scores.

    NAOPC of Edin et al. 2025 is (AOPC - lowest) / (highest - lowest): AOPC alone cannot be compared between models.
    """
    each = plan(metric) if isinstance(metric, str) else metric
    both = [
        greedy_scores(
            model, tokens, labels, metric=each, beam=beam, longest=longest, batch_size=batch_size, worst=worst
        )
        for worst in (False, True)
    ]
    found = faithfulness(model, tokens, both, labels, metrics=[each], batch_size=batch_size)
    values = np.stack([one[each.name].scores() for one in found])
    return values.min(0), values.max(0)


def greedy_scores(
    model: nn.Module,
    tokens: Tokens | Nodes,
    labels: Values | None = None,
    *,
    metric: str | HidingPlan = "auac",
    beam: int = 4,
    longest: int = 24,
    batch_size: int = 32,
    worst: bool = False,
) -> Floats:
    """Scores [texts, tokens] that put the tokens into the best order that the search finds, for one metric.

    `worst`: into the worst order instead. `beam` sets of each size are kept. For n tokens that may be hidden the model
    reads about beam x n^2 inputs; texts with more than `longest` such tokens are refused.
    """
    if beam < 1:
        raise InputError(f"beam must be at least 1, got {beam}")
    each = plan(metric) if isinstance(metric, str) else metric
    texts = [_ordered_tokens(each, real, content) for real, content in zip(tokens.real, tokens.hideable, strict=True)]
    for i, text in enumerate(texts):
        if len(text.positions) > longest:
            raise InputError(
                f"text {i} has {len(text.positions)} tokens to put in order, the search takes up to longest={longest}: "
                "leave the text out, or wait for it with a larger number"
            )
    whole = whole_answers(model, token_logits(model, tokens, nothing_hidden(tokens), batch_size=batch_size), labels)
    sign = (1 if METRICS[each.name].better == "higher" else -1) * (-1 if worst else 1)
    positions = [text.positions for text in texts]
    metric_values = _MetricValues(model, tokens, each, sign, whole, positions, batch_size)
    metric_values.note([(i, 0) for i in range(len(texts))], whole)
    upwards, downwards = (_search(metric_values, some, beam) for some in (texts, [text.mirrored() for text in texts]))
    scores = np.zeros(tokens.real.shape)
    for row, text, up, down in zip(scores, texts, upwards, downwards, strict=True):
        order = up.order if up.total >= down.total else down.order[::-1]
        row[text.positions[list(order)]] = text.scores
    return scores


class _OrderedTokens(NamedTuple):
    """The tokens of a text that a plan puts in order, and the weight of each prefix of the order."""

    positions: Ints  # [n], in the text
    scores: Floats  # [n], of the tokens that come first, second, ...
    weights: list[float]  # [n + 1], in the metric: of the value at which the first 0, 1, ..., n tokens are taken
    hides_rest: bool  # the tokens taken first stay and the others are hidden; else the reverse

    def hidden(self, taken: TokenSet) -> TokenSet:
        return (1 << len(self.positions)) - 1 ^ taken if self.hides_rest else taken

    def mirrored(self) -> _OrderedTokens:
        """The same with the order reversed."""
        return self._replace(weights=self.weights[::-1], hides_rest=not self.hides_rest)


def _ordered_tokens(each: HidingPlan, real: Tensor, content: Tensor) -> _OrderedTokens:
    """The plan is asked to order rising scores: this shows which tokens take part and which scores come early."""
    rising = torch.arange(1.0, int(real.sum()) + 1)
    order = each.order(rising, content[real])
    weights = [0.0] * (len(order) + 1)
    counts = each.counts(len(rising), len(order))
    for count, weight in zip(counts, _weights(each), strict=True):
        weights[count] += weight
    positions = real.nonzero().flatten()[order.sort().values]
    return _OrderedTokens(positions.numpy(), rising[order].double().numpy(), weights, each.hides == "rest")


def _weights(each: HidingPlan) -> list[float]:
    """The weight of each fraction's value in the metric."""
    if each.by == "mean":
        return [1 / len(each.fractions)] * len(each.fractions)
    steps = np.diff(each.fractions, prepend=each.fractions[0], append=each.fractions[-1])
    weights: list[float] = ((steps[1:] + steps[:-1]) / 2).tolist()
    return weights


@dataclass(frozen=True)
class _MetricValues:
    """The metric's value times `sign`, for hidden sets of a text's tokens. No set is asked for twice."""

    model: nn.Module
    tokens: Tokens | Nodes
    plan: HidingPlan
    sign: int
    whole: ClassAnswers
    positions: list[Ints]
    batch_size: int
    known: dict[tuple[int, TokenSet], float] = field(default_factory=dict)

    def of(self, asked: Sequence[tuple[int, TokenSet]]) -> list[float]:
        """One value per text and hidden set."""
        new = [one for one in dict.fromkeys(asked) if one not in self.known]
        if new:
            questions = [self._question(text, hidden) for text, hidden in new]
            logits = token_logits(self.model, self.tokens, questions, batch_size=self.batch_size).double()
            rows, whole = [text for text, _ in new], self.whole
            self.note(new, ClassAnswers(logits[:, None], whole.whole[rows], whole.labels[rows], whole.multi_label))
        return [self.known[one] for one in asked]

    def note(self, asked: Sequence[tuple[int, TokenSet]], answers: ClassAnswers) -> None:
        self.known.update(zip(asked, (self.sign * self.plan.read(answers)[:, 0]).tolist(), strict=True))

    def _question(self, text: int, hidden: TokenSet) -> Hidden:
        units = torch.zeros_like(self.tokens.real[text])
        units[[position for j, position in enumerate(self.positions[text]) if hidden >> j & 1]] = True
        return Hidden(text, units)


class _Path(NamedTuple):
    """A set of tokens, the order in which they were taken, and the metric so far."""

    taken: TokenSet
    order: tuple[int, ...]
    total: float


def _search(metric_values: _MetricValues, texts: Sequence[_OrderedTokens], beam: int) -> list[_Path]:
    """The best path through all tokens of each text, from the empty set; all texts take each step together."""
    beams = [[_Path(0, (), 0.0)] for _ in texts]
    for size in range(max(len(text.positions) for text in texts) + 1):
        active = [i for i, text in enumerate(texts) if size <= len(text.positions)]
        for i in active if size else []:
            beams[i] = _grown(beams[i], len(texts[i].positions))
        values = iter(metric_values.of([(i, texts[i].hidden(path.taken)) for i in active for path in beams[i]]))
        for i in active:
            beams[i] = _best(beams[i], [next(values) for _ in beams[i]], texts[i].weights[size:], beam)
    return [paths[0] for paths in beams]


def _grown(paths: list[_Path], tokens: int) -> list[_Path]:
    """Every path with one more token; of the paths to one set only the best."""
    best: dict[TokenSet, _Path] = {}
    for path in paths:
        for j in range(tokens):
            taken = path.taken | 1 << j
            if taken != path.taken and (taken not in best or best[taken].total < path.total):
                best[taken] = _Path(taken, (*path.order, j), path.total)
    return list(best.values())


def _best(paths: list[_Path], values: list[float], weights: list[float], beam: int) -> list[_Path]:
    """The best few paths; at a size that the metric does not read, by their value at the next size that it reads."""
    ahead = next((weight for weight in weights if weight), 0.0)
    ranked = sorted(zip(paths, values, strict=True), key=lambda one: one[0].total + ahead * one[1], reverse=True)
    return [path._replace(total=path.total + weights[0] * value) for path, value in ranked[:beam]]
