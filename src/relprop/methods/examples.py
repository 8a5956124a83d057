"""A batch taken apart by examples: for what must be done, or checked, one example at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from relprop.engine.flow import Flow
from relprop.engine.forward_passes import forward_flow
from relprop.engine.leaves import batch_of, explained_parts
from relprop.engine.prediction import predict
from relprop.engine.survey import call_signature
from relprop.errors import InputError, ModelError, OneByOneError
from relprop.targets import ChosenTarget, is_own_function
from relprop.types import Attribution

Inputs = Mapping[str, Any]
Explain = Callable[[Inputs, Any], Attribution]


def explain_batch(explain: Explain, model: nn.Module, inputs: Inputs, target: Any, method: Hashable) -> Attribution:
    """`explain(inputs, target)`; one example at a time where a batch would change an example's scores.

    Whether it does is tested on the last example, once per model, `method`, call, batch size, and lengths equal to the
    batch size. For methods that read tensors as [batch, ...] without a proof: a model may order them otherwise. With
    None as `method` nothing is tested.
    """
    batch = batch_of(inputs)
    like = [size == batch for part in explained_parts(inputs).values() for size in part.shape[1:]]
    key = (method, call_signature(inputs, target), batch, *like)
    kept = _keeps_scores.setdefault(model, {})
    try:
        if not kept.get(key, True):
            raise OneByOneError("")
        found = explain(inputs, target)
        if method is not None and len(found.value) > 1 and key not in kept:
            kept[key] = _same_alone(explain, model, inputs, target, found)
            if not kept[key]:
                raise OneByOneError("")
        return found
    except OneByOneError:
        return _one_by_one(explain, model, inputs, target)


_keeps_scores: weakref.WeakKeyDictionary[nn.Module, dict[Hashable, bool]] = weakref.WeakKeyDictionary()
# How far scores in a batch may be from scores alone, relative to the largest: rounding, which relevance can amplify.
_ROUNDING = {torch.float64: 1e-7, torch.float32: 1e-3}
_COARSE_ROUNDING = 0.1


def _same_alone(explain: Explain, model: nn.Module, inputs: Inputs, target: Any, found: Attribution) -> bool:
    """Whether the last example alone has the scores that it has in the batch.

    For a function of the caller's, which may hold one number per example, the batch is kept and the other examples
    become copies of the last. Where the value itself differs a little (numbers rounded to a scale of the whole batch),
    scores cannot be compared.
    """
    count, axes = len(found.value), forward_flow(model, inputs, target).axes
    if any(axis < 0 for axis in axes.values()):  # packed: there is no tensor of one example
        return True
    whole = is_own_function(target)
    owner = torch.full((count if whole else 1,), count - 1)
    alone = explain(_taken(inputs, owner, axes, count), target if whole else one_target(target, count - 1))
    apart = float((alone.value[-1] - found.value[-1]).abs() / found.value.abs().max().clamp_min(1e-30))
    if apart > _COARSE_ROUNDING:
        check_same_value(alone.value[-1:], found.value[-1:], count - 1)
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    near = max((_ROUNDING.get(one, _COARSE_ROUNDING) for one in dtypes), default=_ROUNDING[torch.float32])
    if apart > near:
        return True
    for name, scores in found.parts.items():
        own, other = scores[-1], alone.parts[name][-1]
        if own.shape != other.shape or bool((own - other).abs().max() > near * own.abs().max()):
            return False
    return True


def _taken(inputs: Inputs, owner: Tensor, axes: Mapping[str, int], count: int) -> dict[str, Any]:
    """The examples `owner`, along the proved axis of each part."""
    parts = {name: inputs[name].index_select(axis, owner.to(inputs[name].device)) for name, axis in axes.items()}
    return {**select_examples(inputs, owner, count), **parts}


def _one_by_one(explain: Explain, model: nn.Module, inputs: Inputs, target: Any) -> Attribution:
    """Every example explained alone. Raises where the examples do not keep their values."""
    whole = forward_flow(model, inputs, target)
    count = examples_first(whole)
    if count == 1:
        raise InputError("the explained number is of the whole batch, which this method cannot explain")
    joined = join_examples([explain(one, one_target(target, i)) for i, one in enumerate(single_examples(inputs))])
    check_same_value(joined.value, whole.chosen.value)
    return joined


def examples_first(flow: Flow) -> int:
    """The number of examples. Raises unless all parts have them along the first axis."""
    count = len(flow.chosen.value)
    for source in flow.sources if count > 1 else ():
        if flow.axes.get(source.part, -1) != 0:
            raise InputError(
                f'"{source.part}" of shape {tuple(source.rows.shape)} does not have its {count} examples along the '
                "first axis, where this takes them apart: explain one example at a time"
            )
    return count


def single_example(inputs: Inputs, index: int) -> dict[str, Any]:
    """One example of a batch, as a batch of one."""
    return select_examples(inputs, torch.tensor([index]), batch_of(inputs))


def single_examples(inputs: Inputs) -> list[dict[str, Any]]:
    """Every example of a batch, as a batch of one."""
    return [single_example(inputs, i) for i in range(batch_of(inputs))]


def select_examples(inputs: Inputs, owner: Tensor, batch: int) -> dict[str, Any]:
    """The examples `owner` of a batch, in this order; indices may repeat.

    A tensor as long as the batch is taken to have one entry per example: `check_separable` shows it.
    """
    return {
        name: value[owner.to(value.device)]
        if isinstance(value, Tensor) and value.dim() and len(value) == batch
        else value
        for name, value in inputs.items()
    }


def check_same_value(found: Tensor, expected: Tensor, first: int = 0) -> None:
    """Raise if examples taken out of a batch (from number `first` on) have other values than in it."""
    eps = torch.finfo(expected.dtype).eps
    near = (1e-4 if eps < 1e-6 else 32 * eps) * expected.abs().max().clamp_min(1e-30)
    for number in torch.nonzero((found.to(expected) - expected).abs() > near).flatten().tolist()[:1]:
        alone, together = found[number].item(), expected[number].item()
        raise InputError(
            f"example {first + number} gives {together:.6g} in the batch and {alone:.6g} when it is taken out of it: "
            "an input cannot be taken apart by examples; explain one example at a time"
        )


def keeps_batch(chosen: ChosenTarget) -> bool:
    """Whether the target is a function of the caller's for a whole batch: it may hold one number per example."""
    alone = all(getattr(one, "per_example", False) for one in chosen.exact)
    return len(chosen.value) > 1 and is_own_function(list(chosen.exact)) and not alone


def check_separable(model: nn.Module, inputs: Inputs, chosen: ChosenTarget) -> None:
    """Raise unless all examples keep their values in a batch of another order and size."""
    if keeps_batch(chosen):
        return
    count = len(chosen.value)
    owner = torch.tensor([*range(count), count - 1]).flip(0)
    try:
        taken = predict(model, select_examples(inputs, owner, batch_of(inputs)), [chosen.exact[i] for i in owner])
    except ModelError as error:
        if count == 1:  # a model that takes one example at a time; the method's own batches may be of one too
            return
        raise InputError(f"the batch cannot be taken apart by examples ({error}): explain one at a time") from None
    check_same_value(taken.value[1:].flip(0), chosen.value)
    check_same_value(taken.value[:1], chosen.value[-1:], count - 1)


def example_copies(batch: int, copies: int, size: int, whole: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """Several copies of every example, in chunks of `size`: (index of the example, index of the copy).

    `whole`: every chunk is one copy of the whole batch, in its order.
    """
    if whole:
        for copy in range(copies):
            yield torch.arange(batch), torch.full((batch,), copy)
        return
    every = torch.arange(batch * copies)
    for chunk in every.split(max(1, size)):
        yield chunk // copies, chunk % copies


def one_target(target: Any, index: int) -> Any:
    """The target of one example: lists and tensors hold one per example, anything else applies to all."""
    if isinstance(target, list):
        return [target[index]]
    return target[index : index + 1] if isinstance(target, Tensor) else target


def join_examples(each: list[Attribution]) -> Attribution:
    """Attributions of single examples as one batch."""

    def joined(tensors: list[Tensor | None]) -> Tensor | None:
        present = [one for one in tensors if one is not None]
        return torch.cat(present) if len(present) == len(tensors) else None

    return Attribution(
        {name: torch.cat([one.parts[name] for one in each]) for name in each[0].parts},
        torch.cat([one.value for one in each]),
        tuple(name for one in each for name in one.target),
        each[0].method,
        joined([one.logits for one in each]),
        tuple(ledger for one in each for ledger in one.ledger or ()) or None,
        joined([one.baseline for one in each]),
        joined([one.pairs for one in each]),
        place=each[0].place,
        windows={name: torch.cat([one.windows[name] for one in each]) for name in each[0].windows},
        warnings=tuple(dict.fromkeys(warning for one in each for warning in one.warnings)),
        conserves=each[0].conserves,
    )
