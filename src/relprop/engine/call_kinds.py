"""Kinds of torch calls, by what they do to the notes on tensors (`lineage`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from relprop.engine.tensor_notes import NOTE, Origin
from relprop.ops import Op
from relprop.rulebook.elementwise import ACTIVATIONS, GATES

CASTS = {"to", "float", "double", "half", "bfloat16", "type", "type_as", "clone", "contiguous", "dropout", "positive",
          "rounding"}  # fmt: skip
MOVES = {"view", "reshape", "expand", "expand_as", "unsqueeze", "squeeze", "flatten", "unflatten", "transpose", "T",
          "mT", "permute", "broadcast_to", "view_as", "repeat_interleave", "repeat"}  # fmt: skip
NOT_POINTWISE = {"softmax", "log_softmax", "softmin", "gumbel_softmax", "cumprod", "prod", "logsumexp", "logcumsumexp",
                  "var", "std", "norm", "cdist", "cosine_similarity"}  # fmt: skip
REDUCTIONS = {"sum": "sum", "mean": "sum", "var_mean": "sum", "std_mean": "sum", "max": "max", "amax": "max",
              "logsumexp": "logsumexp"}  # fmt: skip
LINEAR = {"add", "sub", "neg", *CASTS}
COMPARES = {"gt", "lt", "ge", "le", "eq", "ne", "greater", "less", "logical_not", "logical_and", "logical_or"}
CLOSES = {"add", "sub", "mul", "div", "where", "log", "maximum", "minimum", "activation"}
POINTWISE = {
    *ACTIVATIONS, *(name for name in GATES if name not in NOT_POINTWISE), *CASTS, *COMPARES, "add", "sub", "mul",
    "div", "neg", "pow", "where", "maximum", "minimum", "ndtr", "log_ndtr", "erfcx", "sinh", "tan", "erfinv", "sinc",
    "logit", "logaddexp", "gate_sum", "activation", "same_root_sum",
    "same_root_product",
}  # fmt: skip


FOLLOWED = {*POINTWISE, *REDUCTIONS, *MOVES, "masked_fill", "tril", "triu", "log_softmax", "layer_norm", "centre",
             "shift", "softmax", "matmul", "einsum", "norm", "batch_norm", "cumsum", "inverse_sum"}  # fmt: skip
PRODUCTS = {"matmul", "einsum"}
SUMS = {"sum", "mean", "cumsum", *PRODUCTS}
EXPONENTIALS = {"exp", "exp2"}
LOGARITHMS = {"log", "log2"}
ZERO_AT_ZERO = {"mul", "neg", "gelu", "relu", "silu", "tanh", "erf", "square", "abs", *CASTS}


def normalises_rows(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a BatchNorm of a single example, without weight and bias, gives each row mean 0 and variance 1."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "training")
    given = dict(zip(names, args, strict=False)) | kwargs
    own = given.get("training") or given.get("running_var") is None
    return (
        bool(own)
        and given.get("weight") is None
        and given.get("bias") is None
        and args[0].dim() == 3
        and len(args[0]) == 1
    )


def summed_product(
    op: Op, args: tuple[Any, ...], before: str | None, result: Tensor, is_derived: Callable[[Tensor], bool]
) -> str | None:
    """What a sum of the result is, where the result is a product: a matrix product or a layer."""
    if op.name in CASTS or op.name in MOVES:
        return before
    factors = list(tensors(args)) if op.name == "mul" else []
    live = {id(one): one for one in factors if one.requires_grad}
    if len(live) > 1:
        return "sum_of_products"
    # In a layer, each number of x is multiplied by several weights; where it is by one, the sum is a weighted mean.
    repeated = any(one.shape != result.shape or 0 in one.stride() for one in live.values())
    weights = [one for one in factors if one.dim() and id(one) not in live]
    return "weighted_sum" if repeated and weights and not any(map(is_derived, weights)) else None


def masks(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether the call masks elements of its first tensor, or returns it unchanged."""
    constant = op.name == "mul" and sum(value.requires_grad for value in tensors(args)) < 2
    return constant or op.name in ("masked_fill", "tril", "triu", "where", "abs") or op.name in CASTS


def scalar(value: Any) -> float | None:
    """The value of a number or of a constant 0-d tensor; else None."""
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, Tensor) and value.dim() == 0 and not value.requires_grad and not hasattr(value, NOTE):
        number = float(value)
        return number if math.isfinite(number) else None
    return None


def tensors(values: tuple[Any, ...]) -> Iterator[Tensor]:
    return (value for value in values if isinstance(value, Tensor))


def log_scale(op: Op, args: tuple[Any, ...], scale: float | None) -> float | None:
    """c, if the result is c log(x); `scale` is that of the argument."""
    if op.name in LOGARITHMS:
        return 1.0
    if scale is None or op.name in CASTS or op.name in MOVES:
        return scale
    if op.name == "neg":
        return -scale
    factor = next((one for value in args if (one := scalar(value)) is not None), None)
    if not factor or op.name not in ("mul", "div") or (op.name == "div" and scalar(args[0]) is not None):
        return None
    return scale * factor if op.name == "mul" else scale / factor


def value_at_zero(op: Op, operands: list[Any], origins: list[Origin | None], kwargs: dict[str, Any]) -> float | None:
    """f(0), computed by the operation on single numbers; None if a constant tensor makes f differ by element."""
    if op.name in ZERO_AT_ZERO and any(one is not None and one.at_zero == 0 for one in origins):
        return 0.0
    numbers: list[Any] = []
    for index, (value, origin) in enumerate(zip(operands, origins, strict=True)):
        if origin is not None:
            numbers.append(torch.tensor(origin.at_zero, dtype=torch.float64))
        elif isinstance(value, Tensor):
            number = scalar(value)
            if number is None:
                others = [one for one in origins if one is not None]
                factor = op.name == "mul" or (op.name == "div" and index == 1)
                if not factor or any(one.at_zero for one in others):
                    return None
                number = 1.0
            numbers.append(torch.tensor(number, dtype=torch.float64))
        else:
            numbers.append(value)
    if op.name in CASTS:
        return float(numbers[0])
    if op.name == "where" and numbers:
        numbers[0] = numbers[0].bool() if isinstance(numbers[0], Tensor) else numbers[0]
    try:
        with torch.no_grad():
            value = op.function(*numbers, **{k: v for k, v in kwargs.items() if not isinstance(v, Tensor)})
        return float(value)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None
