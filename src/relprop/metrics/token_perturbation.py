"""Do the scores say what the model uses? Tokens are hidden by their scores and the model is asked again.

All examples, fractions, metrics and sets of scores go through the model together: in full batches, sorted by length,
the same input only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from relprop.errors import InputError
from relprop.metrics.curves import Curve
from relprop.metrics.hiding import Hidden
from relprop.metrics.maps import true_classes
from relprop.metrics.nodes import Nodes
from relprop.metrics.plans import FAITHFULNESS, Answers, Plan, Variant, plan
from relprop.metrics.tokens import Tokens, token_logits


def auac(
    model: nn.Module,
    tokens: Tokens | Nodes,
    scores: Any,
    labels: Any = None,
    *,
    fractions: Sequence[float] | None = None,
    variant: Variant = "paper",
    batch_size: int = 32,
) -> Curve:
    """Area under the activation curve, Ali et al. 2022: p of the class while tokens return, most relevant first."""
    return _one(model, tokens, scores, labels, plan("auac", fractions, variant), batch_size)


def au_mse(
    model: nn.Module,
    tokens: Tokens | Nodes,
    scores: Any,
    labels: Any = None,
    *,
    fractions: Sequence[float] | None = None,
    variant: Variant = "paper",
    batch_size: int = 32,
) -> Curve:
    """Area under sum_c (logit_c - logit0_c)^2, Ali et al. 2022, while tokens go, smallest absolute score first."""
    return _one(model, tokens, scores, labels, plan("au_mse", fractions, variant), batch_size)


def aopc(
    model: nn.Module,
    tokens: Tokens | Nodes,
    scores: Any,
    labels: Any = None,
    *,
    fractions: Sequence[float] | None = None,
    variant: Variant = "paper",
    batch_size: int = 32,
) -> Curve:
    """Area over the perturbation curve, as in Song et al. 2024: mean p0 - pk while the most relevant tokens go."""
    return _one(model, tokens, scores, labels, plan("aopc", fractions, variant), batch_size)


def log_odds(
    model: nn.Module,
    tokens: Tokens | Nodes,
    scores: Any,
    labels: Any = None,
    *,
    fractions: Sequence[float] | None = None,
    variant: Variant = "paper",
    batch_size: int = 32,
) -> Curve:
    """LOdds, as in Song et al. 2024: mean log(pk / p0) while the most relevant tokens go."""
    return _one(model, tokens, scores, labels, plan("log_odds", fractions, variant), batch_size)


def comprehensiveness(
    model: nn.Module,
    tokens: Tokens | Nodes,
    scores: Any,
    labels: Any = None,
    *,
    fractions: Sequence[float] | None = None,
    batch_size: int = 32,
) -> Curve:
    """ERASER, DeYoung et al. 2020: mean p0 - pk without the most relevant 1, 5, 10, 20, 50 % of the tokens."""
    return _one(model, tokens, scores, labels, plan("comprehensiveness", fractions), batch_size)


def sufficiency(
    model: nn.Module,
    tokens: Tokens | Nodes,
    scores: Any,
    labels: Any = None,
    *,
    fractions: Sequence[float] | None = None,
    batch_size: int = 32,
) -> Curve:
    """ERASER, DeYoung et al. 2020: mean p0 - pk with the most relevant 1, 5, 10, 20, 50 % of the tokens alone."""
    return _one(model, tokens, scores, labels, plan("sufficiency", fractions), batch_size)


def faithfulness(
    model: nn.Module,
    tokens: Tokens | Nodes,
    scores: Sequence[Any],
    labels: Any = None,
    *,
    metrics: Sequence[str | Plan] = FAITHFULNESS,
    variant: Variant = "paper",
    batch_size: int = 32,
) -> list[dict[str, Curve]]:
    """Several metrics of several sets of scores [texts, tokens], one dict of curves a set.

    `labels` are the classes whose probability is read; None takes the predicted ones. A metric is a name, or a `plan`
    with fractions of its own.
    """
    plans = [plan(metric, variant=variant) if isinstance(metric, str) else metric for metric in metrics]
    if len({each.name for each in plans}) < len(plans) or not plans:
        raise InputError(f"metrics are one or more, each once, got {[each.name for each in plans]}")
    every = [torch.from_numpy(tokens.scores(one)) for one in scores]
    questions = whole_texts(tokens)
    if labels is not None:  # a mistake is told before the work begins: one text says how many classes there are
        answers_of(model, token_logits(model, tokens, questions[:1]).expand(len(tokens), -1), labels)
    questions += [question for one in every for each in plans for question in _questions(tokens, one, each)]
    logits = token_logits(model, tokens, questions, batch_size=batch_size)
    whole = answers_of(model, logits[: len(tokens)], labels)
    results, start = [], len(tokens)
    for _ in every:
        curves = {}
        for each in plans:
            stop = start + len(tokens) * len(each.fractions)
            part = logits[start:stop].unflatten(0, (len(tokens), len(each.fractions))).double()
            curves[each.name] = _curve(tokens, each, whole._replace(logits=part))
            start = stop
        results.append(curves)
    return results


def whole_texts(tokens: Tokens | Nodes) -> list[Hidden]:
    """The texts with nothing hidden."""
    nothing = torch.zeros_like(tokens.real[0])
    return [Hidden(i, nothing) for i in range(len(tokens))]


def answers_of(model: nn.Module, whole: Tensor, labels: Any) -> Answers:
    """What the model says of whole texts [texts, classes]; read are the labels or, without, the predicted classes."""
    true = true_classes(labels, *whole.shape)
    classes = whole.argmax(-1) if true is None else torch.from_numpy(true)
    several = getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification"
    return Answers(whole.double()[:, None], whole.double(), classes, several)


def _one(model: nn.Module, tokens: Tokens | Nodes, scores: Any, labels: Any, each: Plan, batch_size: int) -> Curve:
    return faithfulness(model, tokens, [scores], labels, metrics=[each], batch_size=batch_size)[0][each.name]


def _questions(tokens: Tokens | Nodes, scores: Tensor, each: Plan) -> Iterator[Hidden]:
    """By text and fraction."""
    for i, (row, real, content) in enumerate(zip(scores, tokens.real, tokens.hideable, strict=True)):
        masks = real.new_zeros(len(each.fractions), len(real))
        masks[:, real] = each.schedule.hidden(row[real], content[real], each.fractions)
        yield from (Hidden(i, mask) for mask in masks.unbind())


def _curve(tokens: Tokens | Nodes, each: Plan, answers: Answers) -> Curve:
    values = each.read(answers)
    values[tokens.real.sum(1) < each.schedule.shortest] = float("nan")
    return Curve(each.name, each.fractions, each.by, values.numpy(), answers.labels.numpy())
