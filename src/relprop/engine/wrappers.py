"""The user's own model inside what other packages wrap around it: one place for all that relprop takes a model for."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Mapping
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from relprop.engine.finite_weights import check_weights
from relprop.errors import ModelError
from relprop.outputs import output_field

_PASSING_ON = (nn.DataParallel, nn.parallel.DistributedDataParallel, AveragedModel)  # their forward is `module`'s
_PER_TOKEN = ("logits", "start_logits", "end_logits")  # outputs that may have a row per virtual token


def check_model(model: object) -> nn.Module:
    """The user's own model, unwrapped. Raises if it cannot be explained, or a weight of it is not a finite number."""
    if isinstance(model, torch.export.ExportedProgram):
        raise ModelError("an exported program cannot be explained; give the model that it was made from")
    if not isinstance(model, nn.Module):
        raise ModelError(f"a model is a torch.nn.Module, got {type(model).__name__}")
    own: nn.Module = unwrapped(model)
    check_visible(own)
    if any(parameter.is_meta for parameter in own.parameters()) and not is_dispatched(own):
        raise ModelError("the model has no weights yet (meta device); load them before explaining")
    check_weights(own)
    return own


def unwrapped(model: Any) -> Any:
    """The model without wrappers that only pass its calls on: torch.compile, data parallel, averaged, PEFT's layers."""
    while (inner := _inner(model)) is not None:
        model = inner
    return model


def _inner(model: object) -> nn.Module | None:
    compiled = getattr(model, "_orig_mod", None)
    if isinstance(compiled, nn.Module):
        return compiled
    return model.module if isinstance(model, _PASSING_ON) else _adapted(model)


def _adapted(model: object) -> nn.Module | None:
    """The model whose layers a PEFT adapter replaced, where calling it is all that the wrapper does.

    Virtual tokens, prefixes, and adapters that the wrapper switches by the input, exist in the wrapper alone: it is
    then explained itself.
    """
    peft = sys.modules.get("peft")
    if peft is None or not isinstance(model, peft.PeftModel | peft.PeftMixedModel):
        return None
    tuner, plain = model.base_model, peft.tuners.tuners_utils.BaseTuner
    if not isinstance(tuner, plain) or type(tuner).forward is not plain.forward:
        return None
    if any(map(_switches, tuner.peft_config.values())):
        return None
    inner: nn.Module = tuner.model
    return inner


def _switches(config: Any) -> bool:
    """Whether the wrapper itself decides, input by input, where or how much an adapter acts."""
    return config.peft_type == "XLORA" or getattr(config, "alora_invocation_tokens", None) is not None


def virtual_tokens(model: object) -> int:
    """How many rows of its own a PEFT wrapper puts before the tokens: of prompt tuning and the like."""
    config = getattr(model, "active_peft_config", None)
    return int(getattr(config, "num_virtual_tokens", 0)) if getattr(config, "is_prompt_learning", False) else 0


def rows_of_tokens(model: nn.Module, outputs: Any, inputs: Mapping[str, Any]) -> Any:
    """The outputs; without the rows of virtual tokens, where the model put such before its tokens."""
    virtual = virtual_tokens(model)
    ids = inputs.get("decoder_input_ids", inputs.get("input_ids"))
    if not virtual or not isinstance(ids, Tensor) or not isinstance(outputs, Mapping):
        return outputs
    own = {name: one for name in _PER_TOKEN if (one := output_field(outputs, name)) is not None and one.dim() > 1}
    kept = copy.copy(outputs)
    for name, one in own.items():
        if one.shape[1] == ids.shape[1] + virtual and (one.dim() == 3 or name != "logits"):
            kept[name] = one[:, virtual:]  # type: ignore[index]
    return kept


def arguments_of(model: nn.Module) -> set[str]:
    """The names of what the model's forward takes, and of what it passes on to the model inside."""
    names = set(inspect.signature(model.forward).parameters)
    if virtual_tokens(model):
        names |= set(inspect.signature(model.get_base_model().forward).parameters)  # type: ignore[operator]
    return names


def has_adapter(model: object) -> bool:
    """Whether layers of an adapter were built into the model: it is no longer the one that its name tells."""
    return getattr(model, "peft_config", None) is not None


def check_visible(model: nn.Module) -> None:
    """Raises if the torch calls of the model, or of a part of it, cannot be intercepted."""
    for name, module in model.named_modules():
        kind = None
        if isinstance(module, torch.jit.ScriptModule):
            kind = "traced or scripted by torch.jit"
        elif isinstance(module, torch.fx.GraphModule) and any(_is_exported(node) for node in module.graph.nodes):
            kind = "exported by torch.export"
        if kind is not None:
            where = f'its part "{name}"' if name else "it"
            raise ModelError(f"the model cannot be explained: {where} is {kind}; give the model that it was made from")


def _is_exported(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload)


def is_dispatched(model: nn.Module) -> bool:
    """Whether accelerate manages its weights, and loads offloaded ones for each module call."""
    return any(hasattr(module, "_hf_hook") for module in model.modules())
