"""Facts about torch calls: one name per operation, which operations add constants, expansions into simpler calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.nn import functional as F

from relprop.errors import ModelError

Function = Callable[..., Any]
Args = tuple[Any, ...]  # of a torch call
Kwargs = dict[str, Any]

# Properties that return a tensor; every other property (shape, dtype, device, ...) is a query, not an operation.
TENSOR_PROPERTIES = {"T", "mT", "H", "mH", "real", "imag", "data"}

ALIASES = {
    "radd": "add", "rmul": "mul", "multiply": "mul", "true_divide": "div", "truediv": "div", "divide": "div",
    "subtract": "sub", "absolute": "abs", "clip": "clamp", "concat": "cat", "concatenate": "cat",
    "mm": "matmul", "bmm": "matmul", "mv": "matmul", "dot": "matmul", "vdot": "matmul", "linalg_matmul": "matmul",
    "negative": "neg", "expit": "sigmoid", "_softmax": "softmax", "_log_softmax": "log_softmax",
    "vector_norm": "norm", "linalg_norm": "norm", "linalg_vector_norm": "norm", "linalg_matrix_norm": "norm",
    "frobenius_norm": "norm", "setitem": "index_put", "iadd": "add",
    "isub": "sub", "imul": "mul", "itruediv": "div", "idiv": "div", "ipow": "pow", "float_power": "pow",
    "arctan": "atan", "arcsinh": "asinh", "fix": "trunc", "ger": "outer", "moveaxis": "movedim",
}  # fmt: skip

# Swapped operands: `1 - x` is called as `x.__rsub__(1)`, and is `sub(1, x)`.
REFLECTED = {"rsub": "sub", "rdiv": "div", "rtruediv": "div", "rpow": "pow", "rmatmul": "matmul"}

IN_PLACE = {"setitem", "iadd", "isub", "imul", "itruediv", "idiv", "ipow"}

# In-place operations that change only the shape of a tensor, not its memory: these run unchanged.
RESHAPED_IN_PLACE = {
    "unsqueeze", "squeeze", "transpose", "t", "swapaxes", "swapdims", "as_strided", "resize", "resize_as"
}  # fmt: skip

# Position of the `inplace` argument in torch.nn.functional signatures (x, ..., inplace).
INPLACE_ARGUMENT = {
    "relu": 1, "relu6": 1, "silu": 1, "mish": 1, "hardswish": 1, "hardsigmoid": 1, "selu": 1, "elu": 2, "celu": 2,
    "leaky_relu": 2, "threshold": 3, "hardtanh": 3, "dropout": 3, "dropout1d": 3, "dropout2d": 3, "alpha_dropout": 3,
}  # fmt: skip

# Names of the leading arguments, in order, where they differ from (input, second operand).
SIGNATURES: dict[str, tuple[str, ...]] = {
    "where": ("condition", "input", "other"), "lerp": ("input", "end", "weight"), "linear": ("input", "weight", "bias"),
    "addcmul": ("input", "tensor1", "tensor2"), "addcdiv": ("input", "tensor1", "tensor2"),
    "addmm": ("input", "mat1", "mat2"), "addmv": ("input", "mat", "vec"), "addr": ("input", "vec1", "vec2"),
    "baddbmm": ("input", "batch1", "batch2"), "addbmm": ("input", "batch1", "batch2"),
    "scaled_dot_product_attention": ("query", "key", "value"),
    "multi_head_attention_forward": ("query", "key", "value"),
}  # fmt: skip
SECOND_OPERAND = ("other", "mat2", "vec", "vec2", "tensor", "exponent")

# The result does not depend on the values of the arguments.
VALUELESS = {
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros",
    "new_ones", "new_empty", "new_full", "new_tensor", "new_empty_strided", "empty_strided",
}  # fmt: skip
# Integers among the arguments are places, not values.
INDEXES = {"getitem", "index_select", "gather", "embedding", "take_along_dim", "index_put", "scatter", "index_add",
           "index_copy", "scatter_add", "one_hot"}  # fmt: skip
# The result depends on the values of the first tensor only.
LIKE = {"to", "type_as", "view_as", "reshape_as", "expand_as"}

_OWN = {"aten", "prims", "prim"}  # namespaces of torch's own operations

# log(sum(exp(x))) = sum(p x) + H(p) with p = softmax(x). Where p is held constant, as in every softmax under the rules,
# this is linear in x, with the gradient of the operation itself, and the entropy H(p) is a constant that it adds.
SOFT_MAXIMA = ("logsumexp", "log_softmax", "logcumsumexp", "logaddexp")

# A gate that ends a model, opened: it adds to its value at rest, which is a constant (`rulebook.output_gates`).
OPENED = "opened_gate"

# Operations where an operand that does not depend on the input adds a constant to the result.
AFFINE = {
    "add", "sub", "rsub", "cat", "stack", "hstack", "vstack", "where", "masked_fill", "masked_scatter", "pad",
    "index_put", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "slice_scatter",
    "select_scatter", "copy", "fill", "zero", "maximum", "minimum", "max", "min", "amax", "batch_norm", "addmm",
    "baddbmm", "addbmm", "addcmul", "lerp", "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "layer_norm", "group_norm", "index_reduce", "constant_pad_nd", "block_diag",
    "rounding", "addcdiv", "addmv", "addr", "norm_bias", OPENED, *SOFT_MAXIMA,
}  # fmt: skip

# Position of an additive bias among the arguments, and the dimension of the result that it spans.
BIAS = {
    "linear": (2, -1), "conv1d": (2, 1), "conv2d": (2, 1), "conv3d": (2, 1), "conv_transpose1d": (2, 1),
    "conv_transpose2d": (2, 1), "layer_norm": (3, -1), "group_norm": (3, 1), "addmm": (0, -1),
}  # fmt: skip


@dataclass(frozen=True)
class Op:
    """A torch call under its canonical name. `function` never writes to its arguments; `in_place`: the call does."""

    name: str
    function: Function
    in_place: bool = False
    query: bool = False
    reshapes: bool = False  # in place, and changes only the shape
    reflected: bool = False  # its operands are swapped
    custom: bool = False  # not one of torch's own operations: it may have no gradient


_ops: dict[Function, Op] = {}


def op_of(func: Function) -> Op:
    """The operation of a torch callable: function, method, operator or in-place form."""
    op = _ops.get(func)
    if op is None:
        op = _ops[func] = _identify(func)
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
    if spelled in {"__set__", "__delete__", "requires_grad_", "register_hook", "retain_grad", "backward", "grad"}:
        return Op(spelled, func, query=True)
    name = spelled.strip("_") if spelled.startswith("__") else spelled.rstrip("_")
    in_place = name in IN_PLACE or (spelled.endswith("_") and not spelled.startswith("__"))
    if in_place and name in RESHAPED_IN_PLACE:
        return Op(name, func, in_place=True, reshapes=True)
    if name in REFLECTED:
        return Op(REFLECTED[name], lambda a, b, **kwargs: func(b, a, **kwargs), reflected=True)
    name = name.removeprefix("special_")
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


def positional(op: Op, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The call with named operands made positional: `mul(x, other=y)` becomes `mul(x, y)`."""
    names: tuple[str, ...] = SIGNATURES.get(op.name, ())
    if not names:
        second = next((name for name in SECOND_OPERAND if name in kwargs), None)
        names = ("input",) if second is None else ("input", second)
    for name in names[len(args) :]:
        if name not in kwargs:
            break
        args, kwargs = (*args, kwargs[name]), {other: value for other, value in kwargs.items() if other != name}
    return args, kwargs


def exponential(op: Op, args: Args) -> Op:
    """A power of a constant base, `2 ** x`, under the name of the exponential function."""
    of_constant = op.name == "pow" and len(args) > 1 and isinstance(args[1], Tensor) and args[1].requires_grad
    if of_constant and not (isinstance(args[0], Tensor) and args[0].requires_grad):
        return replace(op, name="exp")
    return op


def take_inplace(op: Op, args: Args, kwargs: Kwargs) -> tuple[Op, Args, Kwargs]:
    """`relu(x, inplace=True)` as the out-of-place call, marked as in place."""
    position = INPLACE_ARGUMENT.get(op.name)
    if position is None or op.in_place:
        return op, args, kwargs
    if kwargs.get("inplace"):
        return replace(op, in_place=True), args, {**kwargs, "inplace": False}
    if len(args) > position and args[position] is True:
        return replace(op, in_place=True), (*args[:position], False, *args[position + 1 :]), kwargs
    return op, args, kwargs


def bias_of(op: Op, args: Args, kwargs: Kwargs) -> tuple[Tensor, int] | None:
    """The additive bias of a layer and the dimension of the result along which it lies."""
    entry = BIAS.get(op.name)
    if entry is None:
        return None
    position, dimension = entry
    bias = args[position] if len(args) > position else kwargs.get("bias")
    return (bias, dimension) if isinstance(bias, Tensor) else None


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32; in its own dtype where that is wider."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def repeat_heads(tensor: Tensor, heads: int) -> Tensor:
    """Key or value heads repeated for grouped-query attention, to as many as there are query heads."""
    if tensor.dim() < 3 or tensor.shape[-3] == heads:
        return tensor
    return tensor.repeat_interleave(heads // tensor.shape[-3], -3)


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """softmax(q k^T scale + mask); rows whose mask hides every key are 0, as in the fused kernels."""
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


def plain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`F.scaled_dot_product_attention` written out, without dropout."""
    heads = query.shape[-3] if query.dim() > 2 else 1
    weights = attention_weights(query, repeat_heads(key, heads), attn_mask, is_causal, scale)
    return torch.matmul(weights, repeat_heads(value, heads))


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    """`F.normalize` written out."""
    norm: Tensor = torch.linalg.vector_norm(x, p, dim, keepdim=True)
    return x / norm.clamp_min(eps).expand_as(x)


def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """`torch.renorm` written out: slices along `dim` that are longer than `maxnorm` are scaled down to it."""
    others = [i for i in range(x.dim()) if i != dim % x.dim()]
    norm: Tensor = torch.linalg.vector_norm(x, p, others, keepdim=True)
    return x * torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """`F.glu` written out."""
    a, b = x.chunk(2, dim)
    return a * torch.sigmoid(b)


def lerp(start: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    """`torch.lerp` written out."""
    return start + weight * (end - start)


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """`torch.addcmul` written out."""
    product = tensor1 * tensor2
    return input + (product if value == 1 else product * value)


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """`torch.addcdiv` written out."""
    quotient = tensor1 / tensor2
    return input + (quotient if value == 1 else quotient * value)


def _plus_product(name: str, product: Callable[[Tensor, Tensor], Tensor]) -> Function:
    """`torch.addmm` and the like written out: beta times the input, and alpha times a product of the other two."""

    def written_out(input: Tensor, first: Tensor, second: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        term = product(first, second) if alpha == 1 else product(first, second) * alpha
        if beta == 0:  # `input` is ignored then, even if infinite
            return term
        return (input if beta == 1 else input * beta) + term

    written_out.__name__ = name
    return written_out


addmm, addmv, baddbmm = (_plus_product(name, torch.matmul) for name in ("addmm", "addmv", "baddbmm"))
addbmm = _plus_product("addbmm", lambda first, second: torch.matmul(first, second).sum(0))
addr = _plus_product("addr", lambda first, second: first[:, None] * second[None, :])


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
    """`F.multi_head_attention_forward` in eval mode, written out in calls to which the rules apply (sequence first)."""
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
