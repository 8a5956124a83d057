"""Dynamically quantised layers, which have no gradient: torch computes the value, the weights the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function


def linear_dynamic(x: Tensor, packed: Any, reduce_range: bool = False) -> Tensor:
    """A linear layer with int8 weights; its input is rounded too."""
    with torch.no_grad():
        result = torch.ops.quantized.linear_dynamic(x, packed, reduce_range)
    return _by_weights(x, packed, result)


def linear_dynamic_fp16(x: Tensor, packed: Any) -> Tensor:
    """A linear layer with float16 weights."""
    with torch.no_grad():
        result = torch.ops.quantized.linear_dynamic_fp16(x, packed)
    return _by_weights(x, packed, result)


def _by_weights(x: Tensor, packed: Any, result: Tensor) -> Tensor:
    weight, bias = packed.unpack()
    bias = None if bias is None else bias.detach()
    return rounding(F.linear(x, weight.detach().dequantize(), bias), result)


def rounding(y: Tensor, value: Tensor) -> Tensor:
    """y plus the constant `value - y`. A torch call of its own, so that the ledger lists it under its name."""
    if has_torch_function((y, value)):
        return handle_torch_function(rounding, (y, value), y, value)
    return with_value(y, value)


def with_value(y: Tensor, value: Tensor) -> Tensor:
    """A tensor with this value, whose gradient flows to y."""
    result: Tensor = _WithValue.apply(y, value)
    return result


class _WithValue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, flowing: Tensor) -> tuple[Tensor, None]:
        return flowing, None
