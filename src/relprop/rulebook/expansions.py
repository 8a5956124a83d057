"""Operations written as calls of simpler ones that have rules: norms as other norms, splits as single slices."""

from __future__ import annotations

from functools import reduce
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`F.instance_norm` as a GroupNorm with one group per channel; with running statistics it is linear."""
    if not use_input_stats:
        return F.batch_norm(x, running_mean, running_var, weight, bias, False, 0.0, eps)
    return F.group_norm(x, x.shape[1], weight, bias, eps)


def native_layer_norm(
    x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`torch.native_layer_norm`: the norm by its own rule, the returned mean and 1/std as constants."""
    _, mean, rstd = torch.native_layer_norm(x.detach(), shape, None, None, eps)
    return F.layer_norm(x, shape, weight, bias, eps), mean, rstd


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """`F.cosine_similarity` written out: a product divided by two lengths, which are gates."""
    first, second = (torch.linalg.vector_norm(x, 2, dim).clamp_min(eps) for x in (x1, x2))
    cosine: Tensor = (x1 * x2).sum(dim) / (first * second)
    return cosine


def bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.bilinear` as a product of three tensors and a bias."""
    product = torch.einsum("...i,oij,...j->...o", x1, weight, x2)
    return product if bias is None else product + bias


def chain(*tensors: Any) -> Any:
    """`torch.linalg.multi_dot` and `torch.chain_matmul` as products from left to right."""
    return reduce(torch.matmul, tensors[0] if isinstance(tensors[0], list | tuple) else tensors)


def softmin(x: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    """`F.softmin`: the softmax of -x."""
    return F.softmax(-x, dim, _stacklevel, dtype)


def split(x: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """`torch.split` as single slices: autograd lets a model write to these in place."""
    sizes = split_size_or_sections
    length = x.shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, length - start) for start in range(0, length, sizes)] or [0]
    ends = list(accumulate(sizes))
    return tuple(x.narrow(dim, end - size, size) for size, end in zip(sizes, ends, strict=True))


def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`torch.chunk` as single slices."""
    return split(x, max(1, -(-x.shape[dim] // chunks)), dim)


def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """`torch.unbind` as single slices."""
    return tuple(x.select(dim, index) for index in range(x.shape[dim]))
