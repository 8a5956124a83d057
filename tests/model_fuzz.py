"""Small random Transformers that write one function in many ways, each with its plain twin."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, HEADS, INNER, WORDS, CLASSES = 8, 2, 12, 20, 3
Spelling = Callable[..., Tensor]

# Variants that concern where scores are read, all at the word embeddings here.
LAYOUTS = ("batch first", "sequence first", "rows in four dimensions", "forward", "plain attributes")


def _norm_in_place(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    x /= (x.pow(2).mean(-1, keepdim=True) + 1e-3).sqrt_()
    return x.mul_(w).add_(b)


def _norm_out(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    z = torch.empty_like(x)
    torch.sub(x, torch.mean(x, -1, keepdim=True), out=z)
    y = torch.mul(z, torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-3), out=torch.empty_like(x))
    return torch.add(torch.mul(y, w), b)


def _by_var(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return w * ((x - mean) / torch.sqrt(var + 1e-3)) + b


def _by_power(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    z = x - x.sum(-1, keepdim=True) / x.shape[-1]
    return z * ((z * z).mean(-1, keepdim=True) + 1e-3) ** -0.5 * w + b


def _rms_out(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    size = torch.empty(0, dtype=x.dtype)
    torch.mean(x.pow(2), -1, True, out=size)
    return x * torch.rsqrt(size.add_(1e-3)) * w


def _by_batch_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Every row is a channel, normalised by its own statistics."""
    rows = x.reshape(1, -1, x.shape[-1])
    return F.batch_norm(rows, None, None, training=True, eps=1e-3).reshape(x.shape) * w + b


def _by_logarithm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    z = x - x.mean(-1, keepdim=True)
    return z * torch.exp(-torch.log((z * z).mean(-1, keepdim=True) + 1e-3) / 2) * w + b


LAYER_NORM: dict[str, Spelling] = {
    "plain": lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b, 1e-3),
    "keywords": lambda x, w, b: F.layer_norm(input=x, normalized_shape=[WIDTH], weight=w, bias=b, eps=1e-3),
    "torch": lambda x, w, b: torch.layer_norm(x, (WIDTH,), w, b, 1e-3),
    "native": lambda x, w, b: torch.native_layer_norm(x, [WIDTH], w, b, 1e-3)[0],
    "bias after": lambda x, w, b: F.layer_norm(x, (WIDTH,), eps=1e-3) * w + b,
    "addcmul": lambda x, w, b: torch.addcmul(b, F.layer_norm(x, (WIDTH,), eps=1e-3), w),
    "group norm": lambda x, w, b: F.group_norm(x.reshape(-1, WIDTH), 1, w, b, 1e-3).view_as(x),
    "in place": _norm_in_place,
    "out": _norm_out,
    "var": _by_var,
    "power": _by_power,
    "batch norm": _by_batch_norm,
    "logarithm": _by_logarithm,
}
RMS_NORM: dict[str, Spelling] = {
    "plain": lambda x, w, b: F.rms_norm(x, (WIDTH,), w, 1e-3),
    "rsqrt": lambda x, w, b: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)),
    "sqrt": lambda x, w, b: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-3) * w,
    "power": lambda x, w, b: x * torch.pow(torch.mean(x**2, -1, keepdim=True) + 1e-3, exponent=-0.5) * w,
    "norm": lambda x, w, b: x / (x.norm(dim=-1, keepdim=True).square() / WIDTH + 1e-3).sqrt() * w,
    "in place": lambda x, w, b: x.clone().div_((x.square().mean(-1, keepdim=True) + 1e-3) ** 0.5).mul_(w),
    "out": _rms_out,
    "tensor power": lambda x, w, b: x * (x.square().mean(-1, keepdim=True) + 1e-3) ** torch.tensor(-0.5).to(x) * w,
    "logarithm": lambda x, w, b: x * torch.exp2(x.square().mean(-1, keepdim=True).add(1e-3).log2().mul_(-0.5)) * w,
}


def _gelu_in_place(x: Tensor) -> Tensor:
    t = (x / math.sqrt(2)).erf_()
    t += 1
    t *= 0.5
    return t.mul_(x)


def _gelu_out(x: Tensor) -> Tensor:
    t = torch.erf(x * 0.5**0.5, out=torch.empty_like(x))
    torch.add(t, 1.0, out=t)
    return torch.mul(x.mul(0.5), t, out=torch.empty_like(x))


ACTIVATIONS: dict[str, dict[str, Spelling]] = {
    "gelu": {
        "plain": F.gelu,
        "module": nn.GELU(),
        "erf": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
        "halves": lambda x: x * (0.5 + 0.5 * torch.special.erf(x / math.sqrt(2))),
        "in place": _gelu_in_place,
        "out": _gelu_out,
        "ndtr": lambda x: x * torch.special.ndtr(x),
        "addcmul": lambda x: torch.addcmul(x * 0.5, x, torch.erf(x / math.sqrt(2)), value=0.5),
    },
    "tanh": {
        "plain": lambda x: F.gelu(x, approximate="tanh"),
        "tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3)))),
        "tanh_": lambda x: (x * 0.5).mul_((math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).tanh_().add_(1)),
    },
    "silu": {
        "plain": F.silu,
        "in place": lambda x: F.silu(x.clone(), inplace=True),
        "sigmoid": lambda x: x * torch.sigmoid(x),
        "powers of two": lambda x: x / (1 + 2.0 ** (-x / math.log(2))),
        "sigmoid_": lambda x: x.clone().sigmoid_().mul_(x),
        "quotient": lambda x: x / (1 + torch.exp(-x)),
        "operator": lambda x: x.sigmoid().__rmul__(x),
    },
    "relu": {
        "plain": F.relu,
        "clamp": lambda x: x.clamp(min=0),
        "relu_": lambda x: x.clone().relu_(),
        "mask": lambda x: x * (x > 0),
        "where": lambda x: torch.where(x > 0, x, 0.0),
    },
}


def _softmax_in_place(x: Tensor) -> Tensor:
    e = x - x.amax(-1, keepdim=True)
    e.exp_()
    e /= e.sum(-1, keepdim=True)
    return e


def _softmax_by_hand(x: Tensor) -> Tensor:
    e = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return torch.div(e, e.sum(dim=-1, keepdim=True))


def _softmax_by_norm(x: Tensor) -> Tensor:
    e = torch.exp(x)
    return e / e.norm(p=1, dim=-1, keepdim=True)


def _softmax_by_powers(x: Tensor) -> Tensor:
    e = torch.exp2((x - x.amax(-1, keepdim=True)) / math.log(2))
    return e * e.abs().sum(-1, keepdim=True).reciprocal()


SOFTMAX: dict[str, Spelling] = {
    "plain": lambda x: F.softmax(x, -1),
    "method": lambda x: x.softmax(dim=-1),
    "out": lambda x: torch.softmax(x, -1, out=torch.empty_like(x)),
    "by hand": _softmax_by_hand,
    "in place": _softmax_in_place,
    "normalize": lambda x: F.normalize(torch.exp(x - x.amax(-1, keepdim=True)), p=1, dim=-1),
    "norm": _softmax_by_norm,
    "powers of two": _softmax_by_powers,
    "log_softmax": lambda x: x.log_softmax(-1).exp(),
    "softmin": lambda x: F.softmin(-x, -1),
}
PRODUCT: dict[str, Spelling] = {
    "plain": torch.matmul,
    "operator": lambda a, b: a @ b,
    "einsum": lambda a, b: torch.einsum("bhij,bhjk->bhik", a, b),
    "bmm": lambda a, b: torch.bmm(a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, a.shape[:2]),
    "out": lambda a, b: torch.matmul(a, b, out=torch.empty(0, dtype=a.dtype)),
    "reflected": lambda a, b: b.__rmatmul__(a),
    "sum of products": lambda a, b: (a[..., None] * b[..., None, :, :]).sum(-2),
}


def _add_in_place(x: Tensor, h: Tensor) -> Tensor:
    x += h
    return x


def _add_through_view(x: Tensor, h: Tensor) -> Tensor:
    y = x.clone()
    y.view(-1).add_(h.reshape(-1))
    return y


def _add_slices(x: Tensor, h: Tensor) -> Tensor:
    y = torch.empty_like(x)
    y[..., :3] = x[..., :3]
    y[..., 3:] = x[..., 3:]
    return y + h


RESIDUAL: dict[str, Spelling] = {
    "plain": lambda x, h: x + h,
    "function": lambda x, h: torch.add(input=x, other=h),
    "in place": _add_in_place,
    "add_": lambda x, h: x.add_(h),
    "out": lambda x, h: torch.add(x, h, out=torch.empty_like(x)),
    "alpha": lambda x, h: torch.add(x, h * 2, alpha=0.5),
    "sub": lambda x, h: x - (-h),
    "rsub": lambda x, h: torch.rsub(-h, x),
    "slices": _add_slices,
    "reflected": lambda x, h: h.__radd__(x),
}
LINEAR: dict[str, Spelling] = {
    "plain": F.linear,
    "keywords": lambda x, w, b: F.linear(bias=b, weight=w, input=x),
    "matmul": lambda x, w, b: x @ w.t() + b,
    "in place": lambda x, w, b: (x @ w.T).add_(b),
    "addmm": lambda x, w, b: torch.addmm(b, x.reshape(-1, x.shape[-1]), w.t()).view(*x.shape[:-1], -1),
    "aten": lambda x, w, b: torch.ops.aten.linear(x, w, b),
    "einsum": lambda x, w, b: torch.einsum("...i,oi->...o", x, w) + b,
    "weights on the left": lambda x, w, b: (w.expand(*x.shape[:-2], -1, -1) @ x.mT).mT + b,
    "convolution": lambda x, w, b: F.conv1d(x.reshape(-1, x.shape[-1], 1), w[..., None], b).view(*x.shape[:-1], -1),
    "batched weights": lambda x, w, b: torch.baddbmm(
        b, x.reshape(len(x), -1, x.shape[-1]), w.t().expand(len(x), -1, -1)
    ).view(*x.shape[:-1], -1),
    "sum of products": lambda x, w, b: (x[..., None, :] * w).sum(-1) + b,
}


def _by_unbind(qkv: Tensor) -> Any:
    return qkv.unflatten(-1, (3, -1)).unbind(-2)


PARTS: dict[str, Callable[[Tensor], Any]] = {
    "plain": lambda qkv: (qkv[..., :WIDTH], qkv[..., WIDTH : 2 * WIDTH], qkv[..., 2 * WIDTH :]),
    "chunk": lambda qkv: qkv.chunk(3, dim=-1),
    "split": lambda qkv: torch.split(qkv, WIDTH, -1),
    "unbind": _by_unbind,
    "narrow": lambda qkv: [qkv.narrow(-1, i * WIDTH, WIDTH) for i in range(3)],
    "tensor_split": lambda qkv: torch.tensor_split(qkv, 3, dim=-1),
}


def _heads_in_place(x: Tensor) -> Tensor:
    y = x.reshape(*x.shape[:-1], HEADS, -1).clone()
    y.transpose_(1, 2)
    return y


SPLIT_HEADS: dict[str, Spelling] = {
    "plain": lambda x: x.unflatten(-1, (HEADS, -1)).transpose(1, 2),
    "permute": lambda x: x.reshape(*x.shape[:-1], HEADS, -1).permute(0, 2, 1, 3),
    "transpose_": _heads_in_place,
    "contiguous": lambda x: x.reshape(*x.shape[:-1], HEADS, -1).swapaxes(1, 2).contiguous(),
}


def _scaled_in_place(scores: Tensor, mask: Tensor) -> Tensor:
    scores /= math.sqrt(WIDTH // HEADS)
    scores += mask
    return scores


SCALED: dict[str, Spelling] = {
    "plain": lambda scores, mask: scores / math.sqrt(WIDTH // HEADS) + mask,
    "mul": lambda scores, mask: torch.add(scores * (WIDTH // HEADS) ** -0.5, mask),
    "in place": _scaled_in_place,
    "masked_fill": lambda scores, mask: scores.div(math.sqrt(WIDTH // HEADS)).masked_fill_(mask < 0, -1e4),
}
GATED: dict[str, Spelling] = {
    "plain": lambda a, b: a * b,
    "mul": lambda a, b: torch.mul(other=b, input=a),
    "mul_": lambda a, b: a.mul_(b),
    "out": lambda a, b: torch.mul(a, b, out=torch.empty_like(a)),
    "reflected": lambda a, b: b.__rmul__(a),
}
POOL: dict[str, Spelling] = {
    "plain": lambda x: x.mean(1),
    "sum": lambda x: x.sum(1) / x.shape[1],
    "keywords": lambda x: torch.mean(input=x, dim=1),
    "keepdim": lambda x: x.mean(1, keepdim=True)[:, 0],
}


@dataclass(frozen=True)
class Spec:
    """What is computed (the first five), and how each part of it is spelled."""

    seed: int = 0
    norm_kind: str = "layer"
    activation_kind: str = "gelu"
    gated: bool = False
    shared: bool = False  # both blocks are one
    first: bool = False  # the norm comes first, in each half of a block
    fused: bool = True  # attention in one call
    norm: str = "plain"
    activation: str = "plain"
    softmax: str = "plain"
    product: str = "plain"
    residual: str = "plain"
    linear: str = "plain"
    parts: str = "plain"
    heads: str = "plain"
    scaled: str = "plain"
    gate: str = "plain"
    pool: str = "plain"
    buffer: bool = False  # values pass through a buffer that is written to
    wrapped: bool = False
    layout: str = "batch first"

    def plain(self) -> Spec:
        """The same function, spelled plainly."""
        same = ("seed", "norm_kind", "activation_kind", "gated", "shared", "first")
        return Spec(**{name: getattr(self, name) for name in same})

    def __str__(self) -> str:
        odd = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        return f"Spec({', '.join(f'{name}={value!r}' for name, value in odd.items())})"


TABLES: dict[str, dict[str, Any]] = {
    "softmax": SOFTMAX, "product": PRODUCT, "residual": RESIDUAL, "linear": LINEAR, "parts": PARTS,
    "heads": SPLIT_HEADS, "scaled": SCALED, "gate": GATED, "pool": POOL,
}  # fmt: skip


@st.composite
def specs(draw: Any, layouts: tuple[str, ...] = LAYOUTS) -> Spec:
    norm_kind = draw(st.sampled_from(("layer", "rms")))
    kind = draw(st.sampled_from(tuple(ACTIVATIONS)))
    spellings = {name: draw(st.sampled_from(tuple(table))) for name, table in TABLES.items()}
    flags = {name: draw(st.booleans()) for name in ("gated", "shared", "first", "fused", "buffer", "wrapped")}
    return Spec(
        draw(st.integers(0, 9)),
        norm_kind,
        kind,
        norm=draw(st.sampled_from(tuple(LAYER_NORM if norm_kind == "layer" else RMS_NORM))),
        activation=draw(st.sampled_from(tuple(ACTIVATIONS[kind]))),
        layout=draw(st.sampled_from(layouts)),
        **flags,
        **spellings,
    )


class Norm(nn.Module):
    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(1 + 0.3 * torch.randn(WIDTH)), nn.Parameter(0.3 * torch.randn(WIDTH))
        self.function = (LAYER_NORM if spec.norm_kind == "layer" else RMS_NORM)[spec.norm]

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight, self.bias)


class Layer(nn.Module):
    def __init__(self, spec: Spec, inner: int, outer: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(outer, inner) / 2), nn.Parameter(torch.randn(outer) / 4)
        self.function = LINEAR[spec.linear]

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight, self.bias)


class Wrapper(nn.Module):
    """A module that only hands on."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


class Block(nn.Module):
    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.norms = nn.ModuleList([Norm(spec), Norm(spec)])
        self.qkv, self.out = Layer(spec, WIDTH, 3 * WIDTH), Layer(spec, WIDTH, WIDTH)
        self.up, self.other, self.down = Layer(spec, WIDTH, INNER), Layer(spec, WIDTH, INNER), Layer(spec, INNER, WIDTH)
        self.register_buffer("kept", torch.zeros(2, 6, WIDTH), persistent=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.spec.layout == "sequence first":
            return self.batch_first(x.transpose(0, 1).contiguous(), mask).transpose(0, 1).contiguous()
        rows = x.shape
        return self.batch_first(x.flatten(1, -2) if x.dim() == 4 else x, mask).reshape(rows)

    def batch_first(self, x: Tensor, mask: Tensor) -> Tensor:
        add = RESIDUAL[self.spec.residual]
        if self.spec.first:
            x = add(x.clone(), self.attend(self.norms[0](x), mask))
            x = add(x.clone(), self.feed(self.norms[1](x)))
        else:
            x = self.norms[0](add(x.clone(), self.attend(x, mask)))
            x = self.norms[1](add(x.clone(), self.feed(x)))
        return x

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        spec = self.spec
        q, k, v = (SPLIT_HEADS[spec.heads](part) for part in PARTS[spec.parts](self.qkv(x)))
        if spec.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            product = PRODUCT[spec.product]
            weights = SOFTMAX[spec.softmax](SCALED[spec.scaled](product(q, k.transpose(-2, -1)), mask))
            mixed = product(weights, v)
        mixed = mixed.transpose(1, 2).flatten(2)
        if spec.buffer:
            self.kept[:, : mixed.shape[1]] = mixed
            mixed = self.kept[:, : mixed.shape[1]] * 1
        return self.out(mixed)

    def feed(self, x: Tensor) -> Tensor:
        h = ACTIVATIONS[self.spec.activation_kind][self.spec.activation](self.up(x))
        if self.spec.gated:
            h = GATED[self.spec.gate](h, self.other(x))
        return self.down(h)


class Model(nn.Module):
    """Word and position embeddings, two blocks, a head that reads the mean row."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        torch.manual_seed(spec.seed)
        self.spec = spec
        self.table, self.positions = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.randn(6, WIDTH))
        made: list[nn.Module] = [Block(spec) for _ in range(2)]
        made = [made[0]] * 2 if spec.shared else made
        self.head = nn.Linear(WIDTH, CLASSES)
        made = [Wrapper(one) for one in made] if spec.wrapped else made
        if spec.layout == "plain attributes":
            self.held = made  # a plain list: no module of this one
        else:
            self.layers = nn.ModuleList(made)
        self.register_buffer("mask", torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), -1e4))

    def get_input_embeddings(self) -> nn.Module:
        return self.table

    def blocks(self) -> list[nn.Module]:
        return self.held if self.spec.layout == "plain attributes" else list(self.layers)

    def forward(self, input_ids: Tensor) -> Tensor:
        length = input_ids.shape[1]
        mask = self.mask[:length, :length]
        x = self.table(input_ids) + self.positions[:length]
        if self.spec.layout == "sequence first":
            x = x.transpose(0, 1).contiguous()
        if self.spec.layout == "rows in four dimensions":
            x = x.unflatten(1, (2, -1))
        for block in self.blocks():
            x = block.forward(x, mask) if self.spec.layout == "forward" else block(x, mask)
        x = x.flatten(1, -2) if x.dim() == 4 else x
        x = x.transpose(0, 1).contiguous() if self.spec.layout == "sequence first" else x
        return self.head(POOL[self.spec.pool](x))


def model(spec: Spec, dtype: torch.dtype = torch.float64) -> Model:
    made = Model(spec).to(dtype).eval()
    for block in made.blocks():
        block.to(dtype)
    return made


def plain_model(spec: Spec) -> Model:
    return model(spec.plain())
