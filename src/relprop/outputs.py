"""What a model returned: where its logits are, and what their rows stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from relprop.errors import TargetError


def output_field(outputs: Any, name: str) -> Tensor | None:
    value = outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
    return value if isinstance(value, Tensor) else None


def logits_of(outputs: Any) -> Tensor:
    """The logits: what the model calls so, or the only tensor that it returns. Hidden states are no logits."""
    if isinstance(outputs, Tensor):
        return outputs
    logits = output_field(outputs, "logits")
    if logits is not None:
        return logits
    kind = type(outputs).__name__
    tensors: dict[str, Tensor] = {name: value for name, value in _fields(outputs) if _one_per_example(value)}
    found = ", ".join(f"{name} {list(value.shape)}" for name, value in tensors.items()) or "no tensor of numbers"
    if len(tensors) != 1:
        raise TargetError(f"the model returned {kind} without logits ({found}); pass target=function of outputs")
    if any(word in found for word in _HIDDEN):
        raise TargetError(
            f"the model returned {kind} without logits, only hidden states ({found}): add a head, or pass "
            "target=function of outputs"
        )
    (logits,) = tensors.values()
    return logits


_HIDDEN = ("hidden", "pooler", "embed")


def _fields(outputs: Any) -> Iterable[tuple[str, Any]]:
    """Names and values of what a model returned; items of a plain tuple or list are named by their index."""
    if isinstance(outputs, Mapping):
        return list(outputs.items())
    if isinstance(outputs, tuple | list):
        names = getattr(outputs, "_fields", None) or [f"[{index}]" for index in range(len(outputs))]
        return zip(names, outputs, strict=True)
    return getattr(outputs, "__dict__", {}).items()


def _one_per_example(value: Any) -> bool:
    """Numbers that may be scores. A loss is a single number for the whole batch."""
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 0


def ambiguous_row_message(logits: Tensor, outputs: Any, inputs: Mapping[str, Any], classes: int | None) -> str:
    """Why one row per token, box or frame has no target of its own, and what to pass."""
    count, columns = logits.shape[1:]
    unit = _unit(outputs, inputs)
    example = "target=lambda outputs: outputs.logits[:, 3, 1]"
    if columns == classes:
        return (
            f"the model gives each {unit} one of {columns} classes; say which {unit}'s with a function, for instance "
            f"{example}"
        )
    units = "boxes" if unit == "box" else f"{unit}s"
    language = "target=relprop.targets.TokenAt(-1, token) for the next token of a language model, "
    language += "target=relprop.targets.AtMask(tokenizer.mask_token_id) for a masked one, or "
    return (
        f"the model gives {columns} scores for each of {count} {units}, and nothing says which {unit} is meant; pass "
        f"{language if unit == 'token' else ''}a function, for instance {example}"
    )


def _unit(outputs: Any, inputs: Mapping[str, Any]) -> str:
    """What the rows of the logits are, as far as the model's outputs and inputs tell."""
    if output_field(outputs, "pred_boxes") is not None:
        return "box"
    if "input_values" in inputs or "input_features" in inputs:
        return "frame"
    return "token" if "input_ids" in inputs or "pixel_values" not in inputs else "row"
