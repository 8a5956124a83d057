"""`attribute`: any registered method on any torch model, tensors in and tensors out. `rules`: the bare engine."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.model_call import answers_questions
from relprop.engine.prediction import predict
from relprop.engine.propagation import Propagation
from relprop.engine.restoring import restoring
from relprop.engine.wrappers import check_model
from relprop.errors import InputError, ModelError, RelpropWarning
from relprop.methods import DEFAULT
from relprop.methods.examples import explain_batch
from relprop.model_config import config_value
from relprop.padding import lets_through
from relprop.registry import METHODS
from relprop.rulebook.rulesets import RuleSet, ruleset
from relprop.targets import Several, is_sum, name_of, terms_of
from relprop.types import BIASES_AND_CONSTANTS, NOT_ITEMISED, Attribution, Entry, Ledger

DEFAULT_METHOD = DEFAULT


@restoring
def attribute(
    model: nn.Module,
    inputs: Mapping[str, object] | Tensor,
    target: object = None,
    method: str = DEFAULT_METHOD,
    **options: object,
) -> Attribution:
    """Explain a batch: per explained input scores [batch, units], and value [batch].

    `inputs` are the model's keyword arguments, or its one tensor. `target` is a class index or name, None for the
    prediction, a pair for a difference, a list with one per example, or a function of the outputs. `relprop methods`
    lists the methods; `options` are the method's own.
    """
    record = METHODS[method]
    record.check(options, attribute)
    if isinstance(target, Several) and not record.several:
        raise InputError(f'method "{record.name}" explains one target at a time')
    model = check_model(model)
    named = _named(model, inputs)
    _check_inputs(model, named)

    # Methods that take each unit's share of a gradient are proved to keep examples apart; others are tested.
    simple = tuple((name, value if isinstance(value, Hashable) else type(value)) for name, value in options.items())
    tested = (record.name, simple) if record.maps or not record.additive else None

    def explain(inputs: Mapping[str, Any], target: object) -> Attribution:
        found: Attribution = record.function(model, inputs, target, **options)
        return found

    def explained(target: object) -> Attribution:
        return _finite(explain_batch(explain, model, named, target, tested))

    if record.additive or not (answers_questions(model) or is_sum(target)):
        return explained(target)
    return _term_by_term(explained, predict(model, named, target).exact)


def _finite(result: Attribution) -> Attribution:
    """The attribution; raises if a score is not finite."""
    for name, scores in result.parts.items():
        for number in torch.nonzero(~scores.flatten(1).isfinite().all(1)).flatten().tolist():
            raise ModelError(
                f'"{result.method}" gives scores of "{name}" that are not finite for example {number}: a number on the '
                "way is too large for the model's dtype, or a row of the attention mask hides everything"
            )
    return result


def _term_by_term(explained: Callable[[object], Attribution], targets: Sequence[Any]) -> Attribution:
    """The terms of each target explained one by one and added, for methods that are not additive.

    So [Song24] treat the start and end of an answer. Examples with fewer terms than others count with weight 0.
    """
    every = [terms_of(one) for one in targets]
    per_term, signs = [], []
    for k in range(max(map(len, every))):
        own = [terms[k] if k < len(terms) else (0, terms[0][1]) for terms in every]
        per_term.append(explained([one for _, one in own]))
        signs.append(torch.tensor([sign for sign, _ in own]))

    def added(numbers: Sequence[Tensor]) -> Tensor:
        weighted = zip(signs, numbers, strict=True)
        terms = (sign.to(one).view(-1, *(1,) * (one.dim() - 1)) * one for sign, one in weighted)
        return sum(terms, start=torch.zeros_like(numbers[0]))

    baselines = [one.baseline for one in per_term if one.baseline is not None]
    return replace(
        per_term[0],
        parts={name: added([one.parts[name] for one in per_term]) for name in per_term[0].parts},
        value=added([one.value for one in per_term]),
        target=tuple(map(name_of, targets)),
        ledger=None,  # would be of the first term only
        baseline=added(baselines) if baselines else None,
    )


def with_warnings(found: Attribution, silent: Collection[str] = ()) -> Attribution:
    """The same attribution; what its numbers do not say becomes Python warnings.

    `silent`: parts that cannot speak for the number, so that no score of theirs is no news.
    """
    starts = tuple(f'nothing flows back to "{name}"' for name in silent)
    told = tuple(sentence for sentence in found.warnings if not sentence.startswith(starts))
    warn_of(told)
    return replace(found, warnings=told)


def warn_of(sentences: Iterable[str]) -> None:
    """What an explanation carries in `warnings`, as Python warnings."""
    for sentence in sentences:
        warnings.warn(sentence, RelpropWarning, stacklevel=5)


def ledger_of(found: Attribution, number: int, scored: float) -> Ledger | None:
    """An example's ledger; where it was not itemised, what is known all the same: inputs, baseline, and the rest."""
    if found.ledger:
        return found.ledger[number]
    record = METHODS[found.method]
    if not (record.complete or "ledger" in record.options):  # its scores are no shares of the value
        return None
    value, baseline = found.value[number].item(), 0.0 if found.baseline is None else found.baseline[number].item()
    entries = [Entry("", "inputs", "input", scored)]
    if found.baseline is not None:
        entries.append(Entry("", "baseline", "constant", baseline))
    rest = BIASES_AND_CONSTANTS if found.conserves else NOT_ITEMISED
    return Ledger(value, (*entries, Entry("", rest, "unexplained", value - scored - baseline)), itemised=False)


def rules(name: str | RuleSet) -> Propagation:
    """The bare engine: a context in which the model's output flows back by these rules.

    What should be explained must require grad, for instance `inputs_embeds`:

        x = model.get_input_embeddings()(ids).detach().requires_grad_()
        with relprop.rules("lrp_ah_ln"):
            logits = model(inputs_embeds=x).logits
        logits[0, 1].backward()
        scores = (x * x.grad).sum(-1)
    """
    return Propagation(ruleset(name))


def _named(model: nn.Module, inputs: Mapping[str, object] | Tensor) -> dict[str, object]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if not isinstance(inputs, Tensor):
        raise InputError(f"inputs are a tensor or a dict of the model's arguments, got {type(inputs).__name__}")
    return {next(iter(inspect.signature(model.forward).parameters)): inputs}


def _check_inputs(model: nn.Module, inputs: dict[str, object]) -> None:
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InputError("there is no tensor among the inputs")
    for name, value in tensors.items():
        if value.numel() == 0:
            raise InputError(f'input "{name}" is empty: its shape is {tuple(value.shape)}')
    mask = tensors.get("attention_mask")
    if mask is not None and mask.dim() > 1:
        empty = torch.nonzero(~lets_through(mask).flatten(1).any(1)).flatten().tolist()
        if empty:
            raise InputError(f"row {empty[0]} of the batch is all padding: there is nothing to explain in it")
    ids, table = tensors.get("input_ids"), config_value(model, "vocab_size")
    if ids is not None and isinstance(table, int) and not 0 <= int(ids.min()) <= int(ids.max()) < table:
        raise InputError(f"token ids run from {int(ids.min())} to {int(ids.max())}, the model knows 0 to {table - 1}")
