"""Do the scores say what the model uses? Tokens (or nodes) are hidden by their scores and the model is asked again.

All examples, fractions, metrics and sets of scores go through the model together: in full batches, sorted by length,
the same input only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from relprop.engine.wrappers import unwrapped
from relprop.errors import InputError
from relprop.metrics.curves import Curve
from relprop.metrics.hidden_units import Hidden
from relprop.metrics.hiding_plans import FAITHFULNESS, ClassAnswers, HidingPlan, Variant, plan
from relprop.metrics.nodes import Nodes
from relprop.metrics.score_arrays import Values, class_indices
from relprop.metrics.tokens import Tokens, token_logits
from relprop.model_config import config_value


@dataclass(frozen=True)
class TokenMetric:
    """A function of a model, inputs, scores [examples, units] and classes: one row of the table in `hiding_plans`."""

    name: str

    def __call__(
        self,
        model: nn.Module,
        tokens: Tokens | Nodes,
        scores: Values,
        labels: Values | None = None,
        *,
        fractions: Sequence[float] | None = None,
        variant: Variant = "paper",
        batch_size: int = 32,
    ) -> Curve:
        """The metric's curves, at other fractions than the paper's if given. See `faithfulness` for `labels`."""
        own = plan(self.name, fractions, variant)
        return faithfulness(model, tokens, [scores], labels, metrics=[own], batch_size=batch_size)[0][self.name]


auac = TokenMetric("auac")
"""Area under the activation curve, [Ali22] Table 1: p of the class while tokens return, most relevant first."""
au_mse = TokenMetric("au_mse")
"""Area under sum_c (logit_c - logit0_c)^2 while tokens go, smallest absolute score first, [Ali22] Table 2."""
aopc = TokenMetric("aopc")
"""Area over the perturbation curve, [Song24] Table 1: mean p0 - pk while the most relevant tokens go."""
log_odds = TokenMetric("log_odds")
"""LOdds, [Song24] Table 1: mean log(pk / p0) while the most relevant tokens go."""
comprehensiveness = TokenMetric("comprehensiveness")
"""ERASER, DeYoung et al. 2020: mean p0 - pk without the most relevant 1, 5, 10, 20, 50 % of the tokens."""
sufficiency = TokenMetric("sufficiency")
"""ERASER, DeYoung et al. 2020: mean p0 - pk with the most relevant 1, 5, 10, 20, 50 % of the tokens alone."""


def faithfulness(
    model: nn.Module,
    tokens: Tokens | Nodes,
    scores: Sequence[Values],
    labels: Values | None = None,
    *,
    metrics: Sequence[str | HidingPlan] = FAITHFULNESS,
    variant: Variant = "paper",
    batch_size: int = 32,
) -> list[dict[str, Curve]]:
    """Several metrics of several sets of scores [texts, tokens]: one dict of curves per set.

    `labels` are the classes whose probability is read; None takes the predicted ones. A metric is a name, or a `plan`
    with other fractions.
    """
    plans = [plan(metric, variant=variant) if isinstance(metric, str) else metric for metric in metrics]
    if len({each.name for each in plans}) < len(plans) or not plans:
        raise InputError(f"metrics are one or more, each once, got {[each.name for each in plans]}")
    score_sets = [torch.from_numpy(tokens.scores(one)) for one in scores]
    questions = nothing_hidden(tokens)
    if labels is not None:  # wrong labels are refused before the work begins: one text shows how many classes there are
        whole_answers(model, token_logits(model, tokens, questions[:1]).expand(len(tokens), -1), labels)
    questions += [question for one in score_sets for each in plans for question in _questions(tokens, one, each)]
    logits = token_logits(model, tokens, questions, batch_size=batch_size)
    whole = whole_answers(model, logits[: len(tokens)], labels)
    sizes = [len(tokens) * len(each.fractions) for each in plans]
    parts = iter(logits[len(tokens) :].double().split(sizes * len(score_sets)))
    return [{each.name: _curve(tokens, each, whole, next(parts)) for each in plans} for _ in score_sets]


def nothing_hidden(tokens: Tokens | Nodes) -> list[Hidden]:
    """One question per text, with the whole text."""
    nothing = torch.zeros_like(tokens.real[0])
    return [Hidden(i, nothing) for i in range(len(tokens))]


def whole_answers(model: nn.Module, logits: Tensor, labels: Values | None) -> ClassAnswers:
    """The answers to whole texts, logits [texts, classes]; without labels, the predicted classes are read."""
    given = class_indices(labels, *logits.shape)
    classes = logits.argmax(-1) if given is None else torch.from_numpy(given)
    multi_label = config_value(unwrapped(model), "problem_type") == "multi_label_classification"
    return ClassAnswers(logits.double()[:, None], logits.double(), classes, multi_label)


def _questions(tokens: Tokens | Nodes, scores: Tensor, each: HidingPlan) -> Iterator[Hidden]:
    """By text and fraction."""
    for i, (row, real, content) in enumerate(zip(scores, tokens.real, tokens.hideable, strict=True)):
        masks = real.new_zeros(len(each.fractions), len(real))
        masks[:, real] = each.hidden(row[real], content[real])
        yield from (Hidden(i, mask) for mask in masks.unbind())


def _curve(tokens: Tokens | Nodes, each: HidingPlan, whole: ClassAnswers, logits: Tensor) -> Curve:
    answers = whole._replace(logits=logits.unflatten(0, (len(tokens), len(each.fractions))))
    values = each.read(answers)
    values[tokens.real.sum(1) < each.shortest] = float("nan")
    return Curve(each.name, each.fractions, each.by, values.numpy(), answers.labels.numpy())
