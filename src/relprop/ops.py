"""What is known of torch calls: one name per operation, which ones add constants, and expansions. No relevance here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.nn import functional as F

from relprop.errors import ModelError

Function = Callable[..., Any]

# Properties that return a tensor; every other property (shape, dtype, device, ...) is a question, not an operation.
TENSOR_PROPERTIES = {"T", "mT", "H", "mH", "real", "imag"}

ALIASES = {
    "radd": "add", "rmul": "mul", "multiply": "mul", "true_divide": "div", "truediv": "div", "divide": "div",
    "subtract": "sub", "rtruediv": "rdiv", "absolute": "abs", "clip": "clamp", "concat": "cat", "concatenate": "cat",
    "mm": "matmul", "bmm": "matmul", "mv": "matmul", "dot": "matmul", "negative": "neg", "special_erf": "erf",
    "special_expit": "sigmoid", "special_softmax": "softmax", "vector_norm": "norm", "linalg_norm": "norm",
    "linalg_vector_norm": "norm", "native_layer_norm": "layer_norm", "setitem": "index_put", "iadd": "add",
    "isub": "sub", "imul": "mul", "itruediv": "div", "idiv": "div", "ipow": "pow", "float_power": "pow",
}  # fmt: skip

IN_PLACE = {"setitem", "iadd", "isub", "imul", "itruediv", "idiv", "ipow"}

# Position of a positional `inplace` argument in torch.nn.functional signatures (x, ..., inplace).
INPLACE_ARGUMENT = {
    "relu": 1, "relu6": 1, "silu": 1, "mish": 1, "hardswish": 1, "hardsigmoid": 1, "selu": 1, "elu": 2, "celu": 2,
    "leaky_relu": 2, "threshold": 3, "hardtanh": 3, "dropout": 3, "dropout1d": 3, "dropout2d": 3, "alpha_dropout": 3,
}  # fmt: skip

_OWN = {"aten", "prims", "prim"}  # namespaces of torch's own operations

SECOND_OPERAND = ("other", "mat2", "vec2", "exponent")

# Operations in which an operand that does not depend on the input adds a constant to the result.
AFFINE = {
    "add", "sub", "rsub", "cat", "stack", "hstack", "vstack", "where", "masked_fill", "masked_scatter", "pad",
    "index_put", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "slice_scatter",
    "select_scatter", "copy", "fill", "zero", "maximum", "minimum", "max", "min", "amax", "batch_norm", "addmm",
    "baddbmm", "addbmm", "addcmul", "lerp", "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "layer_norm", "group_norm", "index_reduce", "constant_pad_nd", "block_diag",
    "rounding",
}  # fmt: skip

# Where an additive bias stands among the positional arguments, and the dimension of the result that it spans.
BIAS = {
    "linear": (2, -1), "conv1d": (2, 1), "conv2d": (2, 1), "conv3d": (2, 1), "conv_transpose1d": (2, 1),
    "conv_transpose2d": (2, 1), "layer_norm": (3, -1), "group_norm": (3, 1), "addmm": (0, -1),
}  # fmt: skip


@dataclass(frozen=True)
class Op:
    """A torch call under its one name. `function` never writes to its arguments; `in_place` says the call would."""

    name: str
    function: Function
    in_place: bool = False
    query: bool = False
    custom: bool = False  # from outside of torch's own operations: it may have no gradient


_known: dict[Function, Op] = {}


def op_of(func: Function) -> Op:
    """The operation behind a torch callable, whatever spelling it came in."""
    op = _known.get(func)
    if op is None:
        op = _known[func] = _identify(func)
    return op


def _identify(func: Function) -> Op:
    spelled = getattr(func, "__name__", type(func).__name__)
    if isinstance(func, OpOverload | OpOverloadPacket):  # torch.ops.library.name.overload
        packet = func.overloadpacket if isinstance(func, OpOverload) else func
        spelled = packet.__name__
        if packet._qualified_op_name.split("::")[0] not in _OWN:
            return Op(packet._qualified_op_name, func, custom=True)
    if spelled == "__get__":
        name = getattr(func.__self__, "__name__", "")  # type: ignore[attr-defined]
        return Op(name, func, query=name not in TENSOR_PROPERTIES)
    if spelled in {"__set__", "__delete__", "requires_grad_", "register_hook", "retain_grad", "backward"}:
        return Op(spelled, func, query=True)
    name = spelled.strip("_") if spelled.startswith("__") else spelled.rstrip("_")
    in_place = name in IN_PLACE or (spelled.endswith("_") and not spelled.startswith("__"))
    canonical = ALIASES.get(name, name)
    return Op(canonical, _out_of_place(func, canonical) if in_place else func, in_place)


def _out_of_place(func: Function, name: str) -> Function:
    """The same computation on a copy of the first argument."""

    def compute(target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = target.clone()
        func(result, *args, **kwargs)
        return result

    plain = getattr(Tensor, name, None)
    return plain if name in {"add", "sub", "mul", "div", "pow"} and plain is not None else compute


def positional(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands given by name, put where they belong: `mul(x, other=y)` is `mul(x, y)`."""
    if not args and "input" in kwargs:
        args, kwargs = (kwargs["input"],), {name: value for name, value in kwargs.items() if name != "input"}
    if len(args) == 1:
        for name in SECOND_OPERAND:
            if name in kwargs:
                return (*args, kwargs[name]), {other: value for other, value in kwargs.items() if other != name}
    return args, kwargs


def take_inplace(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Op, tuple[Any, ...], dict[str, Any]]:
    """Turn `relu(x, inplace=True)` into the out-of-place call marked as in place."""
    position = INPLACE_ARGUMENT.get(op.name)
    if position is None or op.in_place:
        return op, args, kwargs
    if kwargs.get("inplace"):
        return Op(op.name, op.function, in_place=True), args, {**kwargs, "inplace": False}
    if len(args) > position and args[position] is True:
        return Op(op.name, op.function, in_place=True), (*args[:position], False, *args[position + 1 :]), kwargs
    return op, args, kwargs


def bias_of(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, int] | None:
    """The additive bias of a layer and the dimension of the result along which it lies."""
    place = BIAS.get(op.name)
    if place is None:
        return None
    position, dimension = place
    bias = args[position] if len(args) > position else kwargs.get("bias")
    return (bias, dimension) if isinstance(bias, Tensor) else None


def repeat_heads(tensor: Tensor, heads: int) -> Tensor:
    """Grouped-query attention: one key or value head serves several query heads."""
    if tensor.dim() < 3 or tensor.shape[-3] == heads:
        return tensor
    return tensor.repeat_interleave(heads // tensor.shape[-3], -3)


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """softmax(q k^T scale + mask); a row that sees nothing gets zeros, as in the fused kernels."""
    if is_causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * scale
    if mask is None:
        return scores.softmax(-1)
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -math.inf)
    blind = (mask == -math.inf).all(-1, keepdim=True)
    if not blind.any():
        return (scores + mask).softmax(-1)
    return (scores + mask.masked_fill(blind, 0.0)).softmax(-1).masked_fill(blind, 0.0)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`F.scaled_dot_product_attention` spelled out, without dropout."""
    heads = query.shape[-3] if query.dim() > 2 else 1
    weights = attention_weights(query, repeat_heads(key, heads), attn_mask, is_causal, scale)
    return torch.matmul(weights, repeat_heads(value, heads))


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    """`F.normalize` spelled out."""
    norm: Tensor = torch.linalg.vector_norm(x, p, dim, keepdim=True)
    return x / norm.clamp_min(eps).expand_as(x)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """`F.glu` spelled out."""
    a, b = x.chunk(2, dim)
    return a * torch.sigmoid(b)


def lerp(start: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    """`torch.lerp` spelled out."""
    return start + weight * (end - start)


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """`torch.addcmul` spelled out."""
    return input + tensor1 * tensor2 * value


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`torch.baddbmm` spelled out."""
    product = torch.matmul(batch1, batch2) * alpha
    return input * beta + product if beta else product


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`torch.addmm` spelled out."""
    return baddbmm(input, mat1, mat2, beta=beta, alpha=alpha)


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`F.multi_head_attention_forward` in eval mode, spelled out in calls that the rules can see (sequence first)."""
    if bias_k is not None or bias_v is not None or add_zero_attn or static_k is not None or static_v is not None:
        raise ModelError(
            "the rules do not cover nn.MultiheadAttention with bias_k, bias_v, add_zero_attn or static keys"
        )
    batched = query.dim() == 3
    if not batched:
        query, key, value = (tensor.unsqueeze(1) for tensor in (query, key, value))
    separate = use_separate_proj_weight or in_proj_weight is None
    weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight) if separate else in_proj_weight.chunk(3)  # type: ignore[union-attr]
    biases = in_proj_bias.chunk(3) if in_proj_bias is not None else (None, None, None)
    heads = []
    for tensor, weight, bias in zip((query, key, value), weights, biases, strict=True):
        projected = F.linear(tensor, weight, bias)
        heads.append(projected.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3))
    q, k, v = heads
    mask = _merged_mask(attn_mask, key_padding_mask, num_heads, query.dtype)
    result = F.scaled_dot_product_attention(q, k, v, mask)
    result = F.linear(result.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
    weights_out = None
    if need_weights:
        weights_out = attention_weights(q.detach(), k.detach(), mask)
        weights_out = weights_out.mean(1) if average_attn_weights else weights_out
    if not batched:
        result = result.squeeze(1)
        weights_out = weights_out.squeeze(0) if weights_out is not None else None
    return result, weights_out


def _merged_mask(attn_mask: Tensor | None, padding: Tensor | None, heads: int, dtype: torch.dtype) -> Tensor | None:
    """nn.MultiheadAttention's two masks (True or -inf hides) as one float mask [batch, heads or 1, queries, keys]."""

    def additive(mask: Tensor) -> Tensor:
        return mask if mask.is_floating_point() else torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)

    merged = None
    if attn_mask is not None:
        merged = additive(attn_mask)
        merged = merged.unflatten(0, (-1, heads)) if merged.dim() == 3 else merged
    if padding is not None:
        hidden = additive(padding)[:, None, None, :]
        merged = hidden if merged is None else merged + hidden
    return merged
