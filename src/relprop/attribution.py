"""Tensors in, tensors out: any registered method on any torch model."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import relprop.methods  # noqa: F401  (fills the registry)
from relprop.engine.propagation import Propagation
from relprop.errors import InputError, ModelError
from relprop.registry import METHODS
from relprop.rulebook.rulesets import RuleSet, ruleset
from relprop.types import Attribution

DEFAULT_METHOD = "lrp_conservative"


def attribute(
    model: nn.Module,
    inputs: Mapping[str, Any] | Tensor,
    target: Any = None,
    method: str = DEFAULT_METHOD,
    **options: Any,
) -> Attribution:
    """Explain a batch: scores [batch, units] and value [batch].

    `inputs` are the model's keyword arguments, or its one tensor. `target` is a class index or name, None for the
    prediction, a pair for a difference, a list with one an example, or a function of the outputs. `relprop methods`
    lists the methods; `options` are the method's own.
    """
    record = METHODS[method]
    record.check(options)
    named = _named(model, inputs)
    check_model(model)
    _check_inputs(model, named)
    result: Attribution = record.function(model, named, target, **options)
    return result


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


def check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise ModelError(f"a model is a torch.nn.Module, got {type(model).__name__}")
    if any(parameter.is_meta for parameter in model.parameters()):
        raise ModelError("the model has no weights yet (meta device); load them before explaining")


def _named(model: nn.Module, inputs: Mapping[str, Any] | Tensor) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if not isinstance(inputs, Tensor):
        raise InputError(f"inputs are a tensor or a dict of the model's arguments, got {type(inputs).__name__}")
    return {next(iter(inspect.signature(model.forward).parameters)): inputs}


def _check_inputs(model: nn.Module, inputs: dict[str, Any]) -> None:
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InputError("there is no tensor among the inputs")
    for name, value in tensors.items():
        if value.numel() == 0:
            raise InputError(f'input "{name}" is empty: its shape is {tuple(value.shape)}')
    mask = tensors.get("attention_mask")
    if mask is not None and mask.dim() == 2:
        empty = torch.nonzero((mask != 0).sum(1) == 0).flatten().tolist()
        if empty:
            raise InputError(f"row {empty[0]} of the batch is all padding: there is nothing to explain in it")
    ids, table = tensors.get("input_ids"), _table(model)
    if ids is not None and table is not None and not 0 <= int(ids.min()) <= int(ids.max()) < table:
        raise InputError(f"token ids run from {int(ids.min())} to {int(ids.max())}, the model knows 0 to {table - 1}")


def _table(model: nn.Module) -> int | None:
    size = getattr(getattr(model, "config", None), "vocab_size", None)
    return size if isinstance(size, int) else None
