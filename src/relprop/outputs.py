"""The outputs of a model: its logits, and what their rows stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from relprop.errors import TargetError


def output_field(outputs: object, name: str) -> Tensor | None:
    """The output tensor of this name, if there is one."""
    value = outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
    return value if isinstance(value, Tensor) else None


def logits_of(outputs: object) -> Tensor:
    """The logits: the output of that name, or the only float tensor. Raises if that is a hidden state."""
    if isinstance(outputs, Tensor):
        return outputs
    logits = output_field(outputs, "logits")
    if logits is not None:
        return logits
    kind = type(outputs).__name__
    tensors = {name: value for name, value in _fields(outputs) if isinstance(value, Tensor) and _one_per_example(value)}
    listed = ", ".join(f"{name} {list(value.shape)}" for name, value in tensors.items()) or "no tensor of numbers"
    if len(tensors) != 1:
        raise TargetError(f"the model returned {kind} without logits ({listed}); pass target=function of outputs")
    if any(word in listed for word in _HIDDEN):
        raise TargetError(
            f"the model returned {kind} without logits, only hidden states ({listed}): add a head, or pass "
            "target=function of outputs"
        )
    (logits,) = tensors.values()
    return logits


_HIDDEN = ("hidden", "pooler", "embed")


def _fields(outputs: object) -> Iterable[tuple[str, object]]:
    """Names and values of the outputs; items of a plain tuple or list are named by their index."""
    if isinstance(outputs, Mapping):
        return list(outputs.items())
    if isinstance(outputs, tuple | list):
        names = getattr(outputs, "_fields", None) or [f"[{index}]" for index in range(len(outputs))]
        return zip(names, outputs, strict=True)
    return getattr(outputs, "__dict__", {}).items()


def _one_per_example(value: Tensor) -> bool:
    """Whether a tensor may hold scores: floats with a batch axis. (A loss is a single number.)"""
    return value.is_floating_point() and value.dim() > 0


def ambiguous_row_message(logits: Tensor, outputs: object, inputs: Mapping[str, object], classes: int | None) -> str:
    """The error message for logits with one row per token, box or frame: what to pass as target."""
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


def _unit(outputs: object, inputs: Mapping[str, object]) -> str:
    """The name of what the rows of the logits stand for, judged by the model's outputs and inputs."""
    if output_field(outputs, "pred_boxes") is not None:
        return "box"
    if "input_values" in inputs or "input_features" in inputs:
        return "frame"
    return "token" if "input_ids" in inputs or "pixel_values" not in inputs else "row"
