"""Every rule against a slow second writing of it: loops, explicit matrices, and the paper's formula."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relprop import ops
from relprop.engine.observer import Observer
from relprop.engine.propagation import Propagation
from relprop.errors import UnruledOpError
from relprop.rulebook import attention, elementwise
from relprop.rulebook.rulesets import RULESETS, RuleSet, gamma_rules, ruleset

INF = math.inf
GRADIENT_CARRYING = [name for name, rules in RULESETS.items() if rules.carries == "gradient"]


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def back(
    rules: str | RuleSet, f: Callable[..., Tensor], *xs: Tensor, seed: Tensor | None = None, observe: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """f(*xs) under the rules, and what flows back to each x from `seed` (default: a fixed random tensor)."""
    leaves = [x.detach().clone().requires_grad_() for x in xs]
    with Propagation(ruleset(rules), [Observer()] if observe else []):
        y = f(*(leaf.clone() for leaf in leaves))
    assert y.requires_grad, "nothing flows back"
    grads = torch.autograd.grad(y, leaves, rand(*y.shape, seed=99) if seed is None else seed, allow_unused=True)
    return y.detach(), [torch.zeros_like(x) if g is None else g for x, g in zip(xs, grads, strict=True)]


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> bool:
    assert a.shape == b.shape
    return bool(torch.allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, b.abs().max().item())))


# AH-rule: the attention weights are constant.


def slow_weights(q: Tensor, k: Tensor, visible: Tensor, bias: Tensor, scale: float) -> Tensor:
    """Softmax over the visible keys, one row at a time; a row that sees nothing is 0."""
    weights = torch.zeros(*q.shape[:-1], k.shape[-2], dtype=q.dtype)
    for b, h, i in itertools.product(*map(range, q.shape[:-1])):
        seen = [j for j in range(k.shape[-2]) if visible[b, h, i, j]]
        exps = [math.exp(float(q[b, h, i] @ k[b, h, j]) * scale + float(bias[b, h, i, j])) for j in seen]
        for j, e in zip(seen, exps, strict=True):
            weights[b, h, i, j] = e / sum(exps)
    return weights


B, H, N, D = 2, 4, 5, 3
BLIND = torch.rand(B, 1, N, N, generator=torch.Generator().manual_seed(3)) > 0.4
BLIND[1, 0, 2] = False
ATTENTION: dict[str, dict[str, Any]] = {
    "plain": {},
    "bool mask": {"attn_mask": torch.ones(N, N, dtype=torch.bool).tril().flip(0).roll(1, 0)},
    "bool mask with a blind row": {"attn_mask": BLIND},
    "padding mask": {"attn_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)[:, None, None]},
    "float mask": {"attn_mask": rand(B, H, N, N, seed=4)},
    "float mask with a blind row": {"attn_mask": torch.zeros(B, 1, N, N).double().masked_fill(~BLIND, -INF)},
    "causal": {"is_causal": True},
    "causal, more queries": {"is_causal": True, "queries": N + 3},
    "causal, more keys": {"is_causal": True, "keys": N + 3},
    "scale": {"scale": 1.7},
    "grouped queries": {"enable_gqa": True, "kv_heads": 2},
    "grouped queries, causal, wide values": {"enable_gqa": True, "kv_heads": 2, "is_causal": True, "value_dim": 7},
    "wide values": {"value_dim": 7},
    "cross attention": {"keys": 9, "attn_mask": rand(B, 1, N, 9, seed=6)},
}


def attention_case(name: str) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
    sizes = dict(ATTENTION[name])
    queries, keys, kv = sizes.pop("queries", N), sizes.pop("keys", N), sizes.pop("kv_heads", H)
    value_dim = sizes.pop("value_dim", D)
    return rand(B, H, queries, D, seed=1), rand(B, kv, keys, D, seed=2), rand(B, kv, keys, value_dim, seed=3), sizes


def slow_attention(q: Tensor, k: Tensor, options: dict[str, Any]) -> Tensor:
    rows, columns = q.shape[-2], k.shape[-2]
    shape = (B, H, rows, columns)
    visible, bias = torch.ones(shape, dtype=torch.bool), torch.zeros(shape, dtype=q.dtype)
    mask = options.get("attn_mask")
    if options.get("is_causal"):
        visible = torch.tensor([[j <= i for j in range(columns)] for i in range(rows)]).expand(shape)
    elif mask is not None and mask.dtype == torch.bool:
        visible = mask.expand(shape)
    elif mask is not None:
        visible, bias = (mask != -INF).expand(shape), mask.expand(shape)
    wide = torch.stack([k[:, h * k.shape[1] // H] for h in range(H)], 1)
    return slow_weights(q, wide, visible, bias, options.get("scale") or 1 / math.sqrt(D))


@pytest.mark.parametrize("chunk", [None, 1, 50])
@pytest.mark.parametrize("name", ATTENTION)
def test_fused_attention_with_constant_weights(name: str, chunk: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """AH: dV = A^T dO with A from loops, nothing to q and k; the output is torch's own; chunks change nothing."""
    if chunk is not None:
        monkeypatch.setattr(attention, "_CHUNK", chunk)
    q, k, v, options = attention_case(name)
    seed = rand(B, H, q.shape[-2], v.shape[-1], seed=7)
    y, (to_q, to_k, to_v) = back("lrp_ah", lambda *x: F.scaled_dot_product_attention(*x, **options), q, k, v, seed=seed)
    weights = slow_attention(q, k, options)
    per_head = torch.zeros(B, H, *v.shape[-2:], dtype=v.dtype)
    for i, j in itertools.product(range(weights.shape[-2]), range(weights.shape[-1])):
        per_head[:, :, j] += weights[:, :, i, j, None] * seed[:, :, i]
    expected = torch.zeros_like(v)
    for h in range(H):
        expected[:, h * v.shape[1] // H] += per_head[:, h]
    assert close(y, F.scaled_dot_product_attention(q, k, v, **options))
    assert close(to_v, expected)
    assert not to_q.any()
    assert not to_k.any()


@pytest.mark.parametrize("name", ATTENTION)
def test_spelled_out_attention_is_attention(name: str) -> None:
    """The expansion that shows the maps: torch's output and gradients, and weights as from the loops."""
    q, k, v, options = attention_case(name)
    y, grads = back(ruleset("gradient").with_maps(), lambda *x: F.scaled_dot_product_attention(*x, **options), q, k, v)
    plain, expected = back("gradient", lambda *x: F.scaled_dot_product_attention(*x, **options), q, k, v)
    assert close(y, plain)
    assert all(close(a, b, 1e-10) for a, b in zip(grads, expected, strict=True))
    repeated = ops.repeat_heads(k, H)
    plain_options = {"mask": options.get("attn_mask"), "is_causal": options.get("is_causal", False)}
    weights = ops.attention_weights(q, repeated, **plain_options, scale=options.get("scale"))
    assert close(weights, slow_attention(q, k, options))


def test_attention_of_three_dimensions() -> None:
    """Without a head dimension the rule is the same."""
    q, k, v = rand(H, N, D, seed=1), rand(H, N, D, seed=2), rand(H, N, D, seed=3)
    _, fused = back("lrp_ah", F.scaled_dot_product_attention, q, k, v)
    _, spelled = back("lrp_ah", ops.plain_attention, q, k, v)
    assert close(fused[2], spelled[2])
    assert not fused[0].any()


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("rules", ["lrp_ah", "lrp_conservative", "lrp_softmax", "lrp_gamma", "attn_lrp", "gim"])
def test_fused_equals_eager(rules: str, name: str) -> None:
    """A model gets the same relevance whether its attention is fused or written out."""
    q, k, v, options = attention_case(name)
    _, fused = back(rules, lambda *x: F.scaled_dot_product_attention(*x, **options), q, k, v)
    _, eager = back(rules, lambda *x: ops.plain_attention(*x, **options), q, k, v)
    assert all(close(a, b, 1e-10) for a, b in zip(fused, eager, strict=True))


@pytest.mark.parametrize("rules", ["attn_lrp", "lrp_softmax", "gim"])
@pytest.mark.parametrize("dead", ["query", "key", "value", "query, key", "key, value"])
def test_fused_equals_eager_where_a_part_is_constant(dead: str, rules: str) -> None:
    """Learned queries (Perceiver) or a constant memory: a constant factor takes no share, fused or not."""
    parts = {"query": rand(1, 2, N, D, seed=1), "key": rand(1, 2, N, D, seed=2), "value": rand(1, 2, N, D, seed=3)}
    constant = {name: parts.pop(name) for name in dead.split(", ")}

    def attend(function: Callable[..., Tensor]) -> list[Tensor]:
        live = list(parts)
        return back(rules, lambda *x: function(**constant, **dict(zip(live, x, strict=True))), *parts.values())[1]

    fused, eager = attend(F.scaled_dot_product_attention), attend(ops.plain_attention)
    assert all(close(a, b, 1e-10) for a, b in zip(fused, eager, strict=True))


@pytest.mark.parametrize("rules", ["lrp_ah", "lrp_ah_ln", "lrp_conservative", "lrp_carried"])
@pytest.mark.parametrize("softmax", [F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax])
def test_every_softmax_is_a_gate(rules: str, softmax: Callable[..., Tensor]) -> None:
    """Softmax(x) v: all to v, in every spelling of softmax."""
    x, v = rand(4, 5), rand(5, 3, seed=1)
    seed = rand(4, 3, seed=2)
    _, (to_x, to_v) = back(rules, lambda x, v: softmax(x, -1) @ v, x, v, seed=seed)
    assert not to_x.any()
    assert close(to_v, torch.softmax(x, -1).T @ seed)


# LN-rule: 1/std is constant, the mean is not.


def norm_matrix(x: Tensor, eps: float, centred: bool) -> Tensor:
    """The linear map that a norm over the vector x is, once its divisor is held constant."""
    n = len(x)
    mean = sum(x) / n if centred else 0.0
    divisor = math.sqrt(sum(float(one - mean) ** 2 for one in x) / n + eps)
    identity = torch.eye(n, dtype=x.dtype)
    return (identity - 1 / n if centred else identity) / divisor


def slow_norm_back(x: Tensor, seed: Tensor, weight: Tensor | None, dims: int, eps: float, centred: bool) -> Tensor:
    size = math.prod(x.shape[-dims:])
    rows, seeds = x.reshape(-1, size), (seed if weight is None else seed * weight).reshape(-1, size)
    back = [norm_matrix(row, eps, centred).T @ one for row, one in zip(rows, seeds, strict=True)]
    return torch.stack(back).reshape(x.shape)


LN_SETS = ["lrp_ln", "lrp_ah_ln", "lrp_conservative", "attn_lrp"]


@pytest.mark.parametrize("rules", LN_SETS)
@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize(("weighted", "biased"), [(False, False), (True, False), (True, True)])
def test_layer_norm(rules: str, dims: int, weighted: bool, biased: bool) -> None:
    """R flows through (I - 11^T/n) / sqrt(eps + Var), row by row."""
    x, seed, shape = rand(2, 3, 4), rand(2, 3, 4, seed=1), (2, 3, 4)[-dims:]
    weight = rand(*shape, seed=2) if weighted else None
    bias = rand(*shape, seed=3) if biased else None
    y, (to_x,) = back(rules, lambda x: F.layer_norm(x, shape, weight, bias, 0.3), x, seed=seed)
    assert close(y, F.layer_norm(x, shape, weight, bias, 0.3))
    assert close(to_x, slow_norm_back(x, seed, weight, dims, 0.3, centred=True))


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize(("weighted", "biased"), [(False, False), (True, False), (True, True)])
def test_carrying_layer_norm(dims: int, weighted: bool, biased: bool) -> None:
    """What the bias takes elsewhere goes to x too, in proportion to (x - mean)^2: all of R is x's."""
    x, seed, shape = rand(2, 3, 4), rand(2, 3, 4, seed=1), (2, 3, 4)[-dims:]
    weight = rand(*shape, seed=2) if weighted else None
    bias = rand(*shape, seed=3) if biased else None
    y, (to_x,) = back("lrp_carried", lambda x: F.layer_norm(x, shape, weight, bias, 0.3), x, seed=seed)
    assert close(y, F.layer_norm(x, shape, weight, bias, 0.3))
    expected = x * slow_norm_back(x, seed, weight, dims, 0.3, centred=True)
    rows, shares = x.flatten(-dims), expected.flatten(-dims)
    taken = (seed * (0 if bias is None else bias)).flatten(-dims).sum(-1)
    for place in np.ndindex(*rows.shape[:-1]):
        z = rows[place] - rows[place].mean()
        shares[place] += taken[place] * rows[place] * z / (z @ z)
    assert close(x * to_x, shares.reshape(x.shape))
    assert close((x * to_x).flatten(-dims).sum(-1), (y * seed).flatten(-dims).sum(-1))


def test_carrying_layer_norm_of_equal_numbers_makes_nothing_up() -> None:
    x, bias = torch.ones(1, 4).double(), rand(4)
    _, (to_x,) = back("lrp_carried", lambda x: F.layer_norm(x, (4,), None, bias), x, seed=rand(1, 4, seed=1))
    assert torch.isfinite(to_x).all()


@pytest.mark.parametrize("rules", LN_SETS)
@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("eps", [0.3, None])
def test_rms_norm(rules: str, dims: int, weighted: bool, eps: float | None) -> None:
    """R is divided by the root mean square and nothing else."""
    x, seed, shape = rand(2, 3, 4), rand(2, 3, 4, seed=1), (2, 3, 4)[-dims:]
    weight = rand(*shape, seed=2) if weighted else None
    y, (to_x,) = back(rules, lambda x: F.rms_norm(x, shape, weight, eps), x, seed=seed)
    assert close(y, F.rms_norm(x, shape, weight, eps))
    used = torch.finfo(x.dtype).eps if eps is None else eps
    assert close(to_x, slow_norm_back(x, seed, weight, dims, used, centred=False))


@pytest.mark.parametrize("rules", LN_SETS)
@pytest.mark.parametrize(("weighted", "biased"), [(False, False), (True, True)])
@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 6, 2, 3), (2, 6)])
def test_group_norm(rules: str, weighted: bool, biased: bool, shape: tuple[int, ...]) -> None:
    """Each group of channels is a LayerNorm of its own."""
    x, seed = rand(*shape), rand(*shape, seed=1)
    weight, bias = (rand(6, seed=2) if weighted else None), (rand(6, seed=3) if biased else None)
    y, (to_x,) = back(rules, lambda x: F.group_norm(x, 3, weight, bias, 0.3), x, seed=seed)
    assert close(y, F.group_norm(x, 3, weight, bias, 0.3))
    seed = seed if weight is None else seed * weight.reshape(-1, *(1,) * (len(shape) - 2))
    expected = slow_norm_back(x.reshape(2, 3, -1), seed.reshape(2, 3, -1), None, 1, 0.3, centred=True)
    assert close(to_x, expected.reshape(shape))


def _mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


RMS_BY_HAND: dict[str, Callable[[Tensor], Tensor]] = {
    "rsqrt": lambda x: x * torch.rsqrt(_mean(x.pow(2)) + 0.3),
    "power -0.5": lambda x: x * (_mean(x * x) + 0.3) ** -0.5,
    "torch.pow": lambda x: x * torch.pow(_mean(x.square()) + 0.3, -0.5),
    "over sqrt": lambda x: x / torch.sqrt(_mean(x**2) + 0.3),
    "over power 0.5": lambda x: x / (_mean(x**2) + 0.3) ** 0.5,
}
LN_BY_HAND: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt of var": lambda x: (x - _mean(x)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 0.3),
    "rsqrt of squares": lambda x: (x - _mean(x)) * torch.rsqrt(_mean((x - _mean(x)).pow(2)) + 0.3),
    "var_mean": lambda x: (
        (x - torch.var_mean(x, -1, unbiased=False, keepdim=True)[1])
        / (torch.var_mean(x, -1, unbiased=False, keepdim=True)[0] + 0.3).sqrt()
    ),
}


@pytest.mark.parametrize("rules", ["lrp_ln", "lrp_ah_ln", "lrp_conservative"])
@pytest.mark.parametrize("norm", RMS_BY_HAND)
def test_rms_norm_by_hand(rules: str, norm: str) -> None:
    """A norm that a model writes out gets the rule too (Llama and T5 do so)."""
    x, seed = rand(2, 3, 4), rand(2, 3, 4, seed=1)
    _, (to_x,) = back(rules, RMS_BY_HAND[norm], x, seed=seed)
    assert close(to_x, slow_norm_back(x, seed, None, 1, 0.3, centred=False))


@pytest.mark.parametrize("rules", ["lrp_ln", "lrp_ah_ln", "lrp_conservative"])
@pytest.mark.parametrize("norm", LN_BY_HAND)
def test_layer_norm_by_hand(rules: str, norm: str) -> None:
    """The mean stays on the way, whatever it is written with."""
    x, seed = rand(2, 3, 4), rand(2, 3, 4, seed=1)
    _, (to_x,) = back(rules, LN_BY_HAND[norm], x, seed=seed)
    assert close(to_x, slow_norm_back(x, seed, None, 1, 0.3, centred=True))


@pytest.mark.parametrize("rules", ["lrp_ln", "lrp_conservative"])
@pytest.mark.parametrize(
    "norm",
    [
        lambda x: F.normalize(x, dim=-1),
        lambda x: x / x.norm(dim=-1, keepdim=True),
        lambda x: x / torch.linalg.vector_norm(x, dim=-1, keepdim=True),
        lambda x: x / torch.linalg.norm(x, dim=-1, keepdim=True),
    ],
)
def test_unit_length(rules: str, norm: Callable[[Tensor], Tensor]) -> None:
    """x / |x| with the length constant."""
    x, seed = rand(2, 3, 4), rand(2, 3, 4, seed=1)
    _, (to_x,) = back(rules, norm, x, seed=seed)
    assert close(to_x, seed / x.square().sum(-1, keepdim=True).sqrt())


# Activations, gates, quotients, products.


EXTRA: dict[str, tuple[Any, ...]] = {
    "prelu": (torch.tensor([0.3], dtype=torch.float64),),
    "threshold": (0.4, 0.0),
    "clamp": (-0.5, 0.5),
    "clamp_min": (0.0,),
    "clamp_max": (0.0,),
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    homes: list[Any] = [F, torch, Tensor]
    function = next(getattr(home, name) for home in homes if hasattr(home, name))
    return lambda x: function(x, *EXTRA.get(name, ()))


@pytest.mark.parametrize("name", [name for name in elementwise.ACTIVATIONS if name not in {"sqrt", "log1p"}])
@pytest.mark.parametrize("rules", ["lrp_conservative", "attn_lrp"])
def test_activations_keep_their_relevance(rules: str, name: str) -> None:
    """x * (f(x)/x): the share of x is exactly seed * f(x); at x = 0 it is 0, never NaN."""
    f = activation(name)
    x = torch.cat([rand(40), torch.zeros(3, dtype=torch.float64), torch.tensor([1e-300, -1e-300]).double()])
    seed = rand(len(x), seed=1)
    y, (to_x,) = back(rules, f, x, seed=seed)
    assert torch.equal(y, f(x))
    assert to_x.isfinite().all()
    assert close(x * to_x, torch.where(x == 0, 0, seed * f(x)))
    assert not to_x[x == 0].any()


@pytest.mark.parametrize("rules", GRADIENT_CARRYING[:4])
def test_ali_leaves_activations_alone(rules: str) -> None:
    """GI and the rules of [Ali22] differentiate the activation: f'(x), not f(x)/x."""
    x = rand(40)
    _, (to_x,) = back(rules, F.gelu, x)
    _, (plain,) = back("gradient", F.gelu, x)
    assert torch.equal(to_x, plain)
    assert not close(to_x, rand(40, seed=99) * F.gelu(x) / x, 1e-3)


GATE_CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid, "softplus": F.softplus, "exp": torch.exp, "log": lambda x: x.abs().log(),
    "cos": torch.cos, "reciprocal": torch.reciprocal, "1 / x": lambda x: 1 / x, "2 ** x": lambda x: 2**x,
    "x ** -2": lambda x: x**-2, "rsqrt": lambda x: x.square().rsqrt(), "std": lambda x: x.std(-1, keepdim=True),
    "cumprod": lambda x: x.cumprod(-1), "hardsigmoid": F.hardsigmoid,
    "logaddexp": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
}  # fmt: skip


@pytest.mark.parametrize("name", GATE_CALLS)
def test_gates_take_nothing(name: str) -> None:
    """v * gate(x): all to v, as if the gate were a number."""
    x, v, seed = rand(3, 4), rand(3, 4, seed=1), rand(3, 4, seed=2)
    gate = GATE_CALLS[name]
    _, (to_x, to_v) = back("lrp_conservative", lambda x, v: v * gate(x), x, v, seed=seed)
    assert not to_x.any()
    assert close(to_v, seed * gate(x))


@pytest.mark.parametrize("rules", GRADIENT_CARRYING)
def test_soft_maxima(rules: str) -> None:
    """log(sum(exp(x))) = sum(p x) + H(p) with p constant; a log-probability is x minus that."""
    x, p = rand(3, 4), rand(3, 4).softmax(-1)
    entropy = -(p * p.log()).sum(-1)
    y, (to_x,) = back(rules, lambda x: x.logsumexp(-1), x, seed=torch.ones(3).double())
    assert close(to_x, p)
    assert close(y - (x * to_x).sum(-1), entropy)
    seed = rand(3, 4, seed=1)
    y, (to_x,) = back(rules, lambda x: F.log_softmax(x, -1), x, seed=seed)
    assert close(to_x, seed - p * seed.sum(-1, keepdim=True))
    assert close((y * seed - x * to_x).sum(-1), -entropy * seed.sum(-1))
    _, (to_a, to_b) = back(rules, torch.logaddexp, x, rand(3, 4, seed=2), seed=seed)
    assert close(to_a + to_b, seed)


def test_soft_maxima_share_relevance_under_zplus() -> None:
    x, r = rand(3, 4), rand(3, seed=1)
    _, (to_x,) = back("zplus", lambda x: x.logsumexp(-1), x, seed=r)
    assert close(to_x, r[:, None] * x.softmax(-1))


@pytest.mark.parametrize("rules", GRADIENT_CARRYING)
def test_a_distance_is_of_degree_one(rules: str) -> None:
    """Both points get their share of the length, and the shares sum to it."""
    a, b = rand(2, 3, 5), rand(2, 4, 5, seed=1)
    y, (to_a, to_b) = back(rules, torch.cdist, a, b, seed=torch.ones(2, 3, 4).double())
    assert close((a * to_a).sum() + (b * to_b).sum(), y.sum())


def sampled_by_hand(x: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
    """`grid_sample` as a matrix [outputs, pixels] per example, loop by loop; and its value."""
    batch, channels, height, width = x.shape
    points = grid.reshape(batch, -1, 2)
    weights = torch.zeros(batch, points.shape[1], height * width, dtype=x.dtype)
    for n, k in itertools.product(range(batch), range(points.shape[1])):
        column, row = (((points[n, k, i] + 1) * size - 1) / 2 for i, size in enumerate((width, height)))
        for i, j in itertools.product(range(height), range(width)):
            weights[n, k, i * width + j] = max(0, 1 - abs(row - i)) * max(0, 1 - abs(column - j))
    return weights, torch.einsum("nkp,ncp->nck", weights, x.flatten(2)).reshape(batch, channels, *grid.shape[1:3])


def test_sampling_a_map() -> None:
    """`grid_sample`: all to the sampled map by its weights, nothing to the positions; under z+ to positive products."""
    x, grid, seed = rand(2, 3, 4, 5), rand(2, 2, 3, 2, seed=1).tanh(), rand(2, 3, 2, 3, seed=2)
    weights, value = sampled_by_hand(x, grid)

    def sample(x: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(x, grid, align_corners=False)

    for rules in ("lrp_conservative", "lrp_carried", "attn_lrp"):
        y, (to_x, to_grid) = back(rules, sample, x, grid, seed=seed)
        assert close(y, value)
        assert close(to_x.flatten(2), torch.einsum("nkp,nck->ncp", weights, seed.flatten(2)))
        assert not to_grid.any()
    _, (to_x, to_grid) = back("zplus", sample, x, grid, seed=seed)
    products = (weights[:, None] * x.flatten(2)[:, :, None]).clamp_min(0)  # [n, c, outputs, pixels]
    total = products.sum(-1, keepdim=True)
    shares = torch.where(total > 0, products / total.where(total > 0, torch.ones(1).double()), 0)
    assert close(to_x.flatten(2), (shares * seed.flatten(2)[..., None]).sum(2))
    assert not to_grid.any()


def test_zplus_refuses_bicubic_sampling() -> None:
    with pytest.raises(UnruledOpError, match="bicubic"):
        back("zplus", lambda x, g: F.grid_sample(x, g, mode="bicubic", align_corners=False), rand(1, 1, 4, 4),
             rand(1, 2, 2, 2))  # fmt: skip


@pytest.mark.parametrize("live", ["both", "first", "second"])
def test_bilinear(live: str) -> None:
    """x1 W x2 + b: half to each of two live inputs, in proportion to the products; the bias takes nothing."""
    a, b, weight, bias, seed = (
        rand(3, 4),
        rand(3, 5, seed=1),
        rand(2, 4, 5, seed=2),
        rand(2, seed=3),
        rand(3, 2, seed=4),
    )
    product = torch.einsum("ni,oij,nj->noij", a, weight, b)
    half = 0.5 if live == "both" else 1.0

    def call(*xs: Tensor) -> Tensor:
        first, second = {"both": xs, "first": (*xs, b), "second": (a, *xs)}[live]
        return F.bilinear(first, second, weight, bias)

    own = {"both": (a, b), "first": (a,), "second": (b,)}[live]
    expected = {"first": product.sum(-1), "second": product.sum(-2)}
    sides = ["first", "second"] if live == "both" else [live]
    for rules in ("lrp_conservative", "attn_lrp"):
        _, found = back(rules, call, *own, seed=seed)
        for x, flow, side in zip(own, found, sides, strict=True):
            assert close(x * flow, half * (expected[side] * seed[..., None]).sum(1))
    _, found = back("zplus", call, *own, seed=seed)
    for flow, side in zip(found, sides, strict=True):
        z = expected[side] if live == "both" else expected[side].clamp_min(0)
        s = torch.where(z.sum(-1) == 0, 0, seed / z.sum(-1))
        assert close(flow, half * torch.where(z == 0, 0, z * s[..., None]).sum(1), 1e-9)


@pytest.mark.parametrize("exponent", [2, 3, 0.5, 1.5])
def test_positive_power(exponent: float) -> None:
    """x ** p is an activation: x gets x ** (p - 1), not p times it."""
    x, seed = rand(20).abs(), rand(20, seed=1)
    _, (to_x,) = back("lrp_conservative", lambda x: x**exponent, x, seed=seed)
    assert close(to_x, seed * x ** (exponent - 1))


@pytest.mark.parametrize("divide", [torch.div, torch.true_divide, Tensor.div, Tensor.__truediv__])
def test_quotient(divide: Callable[..., Tensor]) -> None:
    """a / b: all to a."""
    a, b, seed = rand(3, 4), rand(3, 4, seed=1), rand(3, 4, seed=2)
    _, (to_a, to_b) = back("lrp_conservative", divide, a, b, seed=seed)
    assert close(to_a, seed / b)
    assert not to_b.any()


PRODUCTS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "mul": (torch.mul, [(3, 4), (3, 4)]),
    "mul, broadcast": (lambda a, b: a * b, [(3, 4), (4,)]),
    "matmul": (torch.matmul, [(2, 3, 4), (2, 4, 5)]),
    "matmul, broadcast": (lambda a, b: a @ b, [(2, 3, 4), (4, 5)]),
    "bmm": (torch.bmm, [(2, 3, 4), (2, 4, 5)]),
    "mm": (torch.mm, [(3, 4), (4, 5)]),
    "matrix times vector": (torch.mv, [(3, 4), (4,)]),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), [(2, 3, 4), (2, 4, 5)]),
    "einsum of three": (lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), [(2, 3), (3, 4), (4, 5)]),
    "einsum of a list": (lambda a, b: torch.einsum("ij,kj->ik", [a, b]), [(2, 3), (4, 3)]),
    "outer": (torch.outer, [(3,), (4,)]),
    "live linear": (F.linear, [(2, 3), (4, 3)]),
    "live convolution": (F.conv1d, [(1, 2, 5), (3, 2, 2)]),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), [(2, 3), (3, 4)]),
    "baddbmm": (lambda a, b: torch.baddbmm(torch.zeros(1).double(), a, b, alpha=0.5), [(2, 3, 4), (2, 4, 5)]),
}


@pytest.mark.parametrize("rules", ["lrp_conservative", "attn_lrp"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_share_equally(rules: str, name: str) -> None:
    """n live factors: each gets 1/n of its plain gradient, so that the shares sum to seed * product."""
    f, shapes = PRODUCTS[name]
    factors = [rand(*shape, seed=i) for i, shape in enumerate(shapes)]
    y, shares = back(rules, f, *factors)
    _, plain = back("gradient", f, *factors)
    assert close(y, f(*factors))
    assert all(close(share, grad / len(factors)) for share, grad in zip(shares, plain, strict=True))
    total = (y * rand(*y.shape, seed=99)).sum()
    for factor, share in zip(factors, shares, strict=True):
        assert close((factor * share).sum(), total / len(factors), 1e-10)


def test_square_by_multiplication() -> None:
    """x * x is x ** 2: both factors are the same tensor, its two halves add."""
    x, seed = rand(10), rand(10, seed=1)
    _, (to_x,) = back("lrp_conservative", lambda x: x * x, x, seed=seed)
    assert close(to_x, seed * x)


@pytest.mark.parametrize("live", ["a", "ab", "xa", "xab"])
def test_addcmul_is_a_sum_and_a_product(live: str) -> None:
    """addcmul(x, a, b) flows back as x + value * a * b does, whichever of them are live."""
    parts = {"x": rand(3, 4), "a": rand(3, 4, seed=1), "b": rand(3, 4, seed=2)}

    def run(f: Callable[..., Tensor]) -> list[Tensor]:
        moving = [parts[name] for name in live]
        return back("lrp_conservative", lambda *given: f(**{**parts, **dict(zip(live, given, strict=True))}), *moving)[
            1
        ]

    fused = run(lambda x, a, b: torch.addcmul(x, a, b, value=0.7))
    spelled = run(lambda x, a, b: x + 0.7 * (a * b))
    assert all(close(one, other) for one, other in zip(fused, spelled, strict=True))


# Softmax rules, and the gamma rule.


def slow_secant(x: list[float], g: list[float]) -> list[float]:
    """The gradient of one row of logits: (p - u) / (log p - log u) in place of p, number by number."""
    total, n = sum(map(math.exp, x)), len(x)
    p = [math.exp(one) / total for one in x]
    mean = [(one - 1 / n) / (math.log(one) - math.log(1 / n)) for one in p]
    centre = sum(a * b for a, b in zip(mean, g, strict=True)) / sum(mean)
    return [a * (b - centre) for a, b in zip(mean, g, strict=True)]


def slow_tempered(x: list[float], g: list[float]) -> list[float]:
    """[GIM]: twice the gradient of softmax(x / 2)."""
    p = torch.tensor(x).double().requires_grad_()
    (found,) = torch.autograd.grad((p / 2).softmax(-1), p, torch.tensor(g).double())
    return [2 * float(one) for one in found]


@pytest.mark.parametrize(("rules", "slow"), [("lrp_softmax", slow_secant), ("gim", slow_tempered)])
@pytest.mark.parametrize("dim", [0, -1])
def test_softmax_rules(rules: str, slow: Callable[..., list[float]], dim: int) -> None:
    x, seed = 3 * rand(4, 5), rand(4, 5, seed=1)
    y, (to_x,) = back(rules, lambda x: x.softmax(dim), x, seed=seed)
    rows, seeds = (one.movedim(dim, -1).tolist() for one in (x, seed))
    expected = torch.tensor([slow(row, one) for row, one in zip(rows, seeds, strict=True)]).double().movedim(-1, dim)
    assert torch.equal(y, x.softmax(dim))
    assert close(to_x, expected, 1e-6)
    _, (of_softmin,) = back(rules, lambda x: F.softmin(-x, dim), x, seed=seed)
    assert close(of_softmin, to_x)


def test_a_softmax_gives_its_logits_what_it_adds_to_equal_weights() -> None:
    """sum x dx = sum g (p - u), whatever is added to the logits; hidden ones take no part."""
    x, g = 4 * rand(3, 6), rand(3, 6, seed=1)
    hidden = torch.zeros(6).double().masked_fill(torch.tensor([0, 0, 1, 0, 1, 0]).bool(), -INF)
    for shift in (0.0, 100.0):
        p, (to_x,) = back("lrp_softmax", lambda x, shift=shift: (x + shift + hidden).softmax(-1), x, seed=g)
        assert close((x * to_x).sum(-1), (g * (p - (p > 0) / 4.0)).sum(-1), 1e-10)
        assert not to_x[:, hidden < 0].any()
    equal = torch.zeros(1, 6).double()
    assert not (equal * back("lrp_softmax", lambda x: x.softmax(-1), equal)[1][0]).any()


SOFTMAX_WRITTEN_OUT: dict[str, Callable[[Tensor], Tensor]] = {
    "log_softmax": lambda x: x.log_softmax(-1).exp(),
    "quotient": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
    "same exponential": lambda x: (e := (x - x.amax(-1, keepdim=True)).exp()) / e.sum(-1, keepdim=True),
    "normalize": lambda x: F.normalize(x.exp(), p=1, dim=-1),
    "norm": lambda x: (e := x.exp()) / e.norm(p=1, dim=-1, keepdim=True),
}


@pytest.mark.parametrize("rules", ["lrp_softmax", "gim"])
@pytest.mark.parametrize("spelled", SOFTMAX_WRITTEN_OUT)
def test_a_softmax_in_several_calls_is_refused(spelled: str, rules: str) -> None:
    """Its logits are not at hand."""
    x = rand(3, 4)
    with pytest.raises(UnruledOpError, match="written out in several calls"):
        back(rules, lambda x: x * SOFTMAX_WRITTEN_OUT[spelled](x), x)


ATTENTION_SPELLED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "fused": F.scaled_dot_product_attention,
    "written out": ops.plain_attention,
    "einsum": lambda q, k, v: torch.einsum("bhij,bhjd->bhid", torch.softmax(q @ k.mT / D**0.5, -1), v),
    "transposed": lambda q, k, v: (v.mT @ torch.softmax(k @ q.mT / D**0.5, -2)).mT,
    "three dimensions": lambda q, k, v: torch.bmm(
        torch.softmax(q @ k.mT / D**0.5, -1).flatten(0, 1), v.flatten(0, 1)
    ).view_as(q),
}


@pytest.mark.parametrize("spelled", ATTENTION_SPELLED)
def test_attention_by_the_softmax_rule(spelled: str) -> None:
    """Values get what they give under equal weights, and half of the rest; queries and keys a quarter of that each."""
    q, k, v, seed = (rand(B, H, N, D, seed=i) for i in range(4))
    y, shares = back("lrp_softmax", ATTENTION_SPELLED[spelled], q, k, v, seed=seed)
    p = slow_weights(q, k, torch.ones(B, H, N, N), torch.zeros(B, H, N, N), D**-0.5)
    to_v, to_q, to_k = torch.zeros_like(v), torch.zeros_like(q), torch.zeros_like(k)
    for b, h, i in itertools.product(range(B), range(H), range(N)):
        logits = [float(q[b, h, i] @ k[b, h, j]) * D**-0.5 for j in range(N)]
        s = slow_secant(logits, [float(seed[b, h, i] @ v[b, h, j]) for j in range(N)])
        for j in range(N):
            to_v[b, h, j] += (p[b, h, i, j] + 1 / N) / 2 * seed[b, h, i]
            to_q[b, h, i] += s[j] * D**-0.5 / 4 * k[b, h, j]
            to_k[b, h, j] += s[j] * D**-0.5 / 4 * q[b, h, i]
    assert close(y, p @ v)
    assert all(close(a, b, 1e-10) for a, b in zip(shares, (to_q, to_k, to_v), strict=True))
    relevance = sum((x * share).sum() for x, share in zip((q, k, v), shares, strict=True))
    assert close(relevance, (seed * y).sum(), 1e-10)  # nothing is lost


def test_a_product_without_weights_is_in_equal_shares() -> None:
    a, b = rand(3, 4), rand(4, 5, seed=1)
    for product in (torch.matmul, lambda a, b: torch.einsum("ij,jk->ik", a, b)):
        found = back("lrp_softmax", product, a, b)[1]
        assert all(
            close(one, other) for one, other in zip(found, back("lrp_conservative", product, a, b)[1], strict=True)
        )


def slow_gamma(x: Tensor, w: Tensor, g: Tensor, gamma: float) -> Tensor:
    """Relevance x * gradient of one linear layer, product by product. x [n], w [m, n], g [m]."""
    relevance = torch.zeros_like(x)
    for i in range(len(w)):
        products = [float(x[j] * w[i, j]) for j in range(len(x))]
        z = sum(products)
        raised = [one * (1 + gamma) if one * z > 0 else one for one in products]
        for j in range(len(x)):
            relevance[j] += raised[j] / sum(raised) * z * float(g[i])
    return relevance


GAMMA_LINEAR: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "linear": F.linear,
    "matmul": lambda x, w, b: x @ w.T,
    "addmm": lambda x, w, b: torch.addmm(b, x.flatten(0, -2), w.T).unflatten(0, x.shape[:-1]),
}


@pytest.mark.parametrize("gamma", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("name", GAMMA_LINEAR)
def test_gamma_linear(name: str, gamma: float) -> None:
    x, w, b, g = rand(2, 3, 12), rand(5, 12, seed=1), rand(5, seed=2), rand(2, 3, 5, seed=3)
    f = GAMMA_LINEAR[name]
    y, (to_x,) = back(gamma_rules(gamma), lambda x: f(x, w, b), x, seed=g)
    expected = [slow_gamma(row, w, one, gamma) for row, one in zip(x.flatten(0, 1), g.flatten(0, 1), strict=True)]
    assert torch.equal(y, f(x, w, b))
    assert close(x * to_x, torch.stack(expected).view_as(x), 1e-10)
    assert close((x * to_x).sum(), (g * (x @ w.T)).sum(), 1e-10)  # the bias keeps its own share


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"padding": 1}, {"groups": 2}])
@pytest.mark.parametrize("dimensions", [1, 2])
def test_gamma_convolution(options: dict[str, int], dimensions: int) -> None:
    conv = {1: F.conv1d, 2: F.conv2d}[dimensions]
    x = rand(2, 2, *(4,) * dimensions)
    w = rand(4, 2 // options.get("groups", 1), *(2,) * dimensions, seed=1)
    y, (to_x,) = back(gamma_rules(0.3), lambda x: conv(x, w, rand(4, seed=2), **options), x)
    g = rand(*y.shape, seed=99)
    units = torch.eye(x[0].numel(), dtype=x.dtype).view(-1, *x.shape[1:])
    matrix = conv(units, w, None, **options).flatten(1).T
    for i in range(2):
        found = (x[i] * to_x[i]).flatten()
        assert close(found, slow_gamma(x[i].flatten(), matrix, g[i].flatten(), 0.3), 1e-10)


def test_gamma_of_an_output_of_zero_gives_nothing() -> None:
    x = torch.tensor([[1.0, -1.0]]).double()
    assert not back(gamma_rules(0.5), lambda x: F.linear(x, torch.ones(1, 2).double()), x)[1][0].any()


# The relevance-carrying rules of [Chefer21].


def slow_zplus(x: Tensor, w: Tensor, r: Tensor) -> Tensor:
    """R_j = sum_i (x_j w_ij)+ / sum_k (x_k w_ik)+ R_i, product by product. x [n], w [m, n], r [m]."""
    to_x = torch.zeros_like(x)
    for i in range(w.shape[0]):
        z = [max(0.0, float(x[j] * w[i, j])) for j in range(len(x))]
        if sum(z):
            for j in range(len(x)):
                to_x[j] += z[j] / sum(z) * r[i]
    return to_x


ZPLUS_LINEAR: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "linear": F.linear,
    "matmul": lambda x, w, b: x @ w.T,
    "matmul from the left": lambda x, w, b: (w @ x.transpose(-2, -1)).transpose(-2, -1),
    "addmm": lambda x, w, b: torch.addmm(b, x.flatten(0, -2), w.T).unflatten(0, x.shape[:-1]),
}


@pytest.mark.parametrize("name", ZPLUS_LINEAR)
def test_zplus_linear(name: str) -> None:
    """Only the nonnegative products count; the bias takes nothing, so the total is kept."""
    x, w, b, r = rand(2, 3, 12), rand(5, 12, seed=1), rand(5, seed=2), rand(2, 3, 5, seed=3)
    f = ZPLUS_LINEAR[name]
    y, (to_x,) = back("zplus", lambda x: f(x, w, b), x, seed=r)
    expected = [slow_zplus(row, w, one) for row, one in zip(x.flatten(0, 1), r.flatten(0, 1), strict=True)]
    assert close(y, f(x, w, b))
    assert close(to_x, torch.stack(expected).view_as(x))
    assert close(to_x.sum(), r.sum(), 1e-10)


def test_zplus_linear_without_a_positive_product() -> None:
    """An output that no product supports has nobody to give to: 0, never NaN."""
    _, (to_x,) = back("zplus", lambda x: F.linear(x, -torch.ones(2, 3).double()), torch.ones(1, 3).double())
    assert not to_x.any()


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"padding": 1}, {"groups": 2}])
@pytest.mark.parametrize("dimensions", [1, 2])
def test_zplus_convolution(options: dict[str, int], dimensions: int) -> None:
    """A convolution is a linear layer: its matrix, built one unit input at a time, gives the same shares."""
    conv = {1: F.conv1d, 2: F.conv2d}[dimensions]
    x = rand(2, 2, *(4,) * dimensions)
    w = rand(4, 2 // options.get("groups", 1), *(2,) * dimensions, seed=1)
    y, (to_x,) = back("zplus", lambda x: conv(x, w, rand(4, seed=2), **options), x, seed=None)
    r = rand(*y.shape, seed=99)
    units = torch.eye(x[0].numel(), dtype=x.dtype).view(-1, *x.shape[1:])
    matrix = conv(units, w, None, **options).flatten(1).T
    for i in range(2):
        assert close(to_x[i].flatten(), slow_zplus(x[i].flatten(), matrix, r[i].flatten()), 1e-10)


def slow_add(u: Tensor, v: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """One example: shares in proportion, then each side's total rescaled to |A| / (|A| + |B|) of sum R."""
    a, b = u * r / (u + v), v * r / (u + v)
    total, big_a, big_b = float(r.sum()), float(a.sum()), float(b.sum())
    size = abs(big_a) + abs(big_b)
    return a * (abs(big_a) / size) * (total / big_a), b * (abs(big_b) / size) * (total / big_b)


@pytest.mark.parametrize("add", [torch.add, lambda u, v: u + v, lambda u, v: u - (-v), lambda u, v: u.clone().add_(v)])
def test_zplus_add(add: Callable[..., Tensor]) -> None:
    """The Add rule per example: in a batch of two each gets its own normalisation, and keeps its total."""
    u, v, r = rand(2, 3, 4), rand(2, 3, 4, seed=1), rand(2, 3, 4, seed=2)
    y, (to_u, to_v) = back("zplus", add, u, v, seed=r)
    assert close(y, u + v)
    for i in range(2):
        expected_u, expected_v = slow_add(u[i], v[i], r[i])
        assert close(to_u[i], expected_u, 1e-9)
        assert close(to_v[i], expected_v, 1e-9)
        assert close(to_u[i].sum() + to_v[i].sum(), r[i].sum(), 1e-10)


def test_zplus_add_of_a_constant() -> None:
    """A constant takes nothing (masks, positions)."""
    x, r = rand(2, 3), rand(2, 3, seed=1)
    for f in (lambda x: x + 2.0, lambda x: rand(3, seed=4) + x, lambda x: x - 1, lambda x: 1 - x):
        assert torch.equal(back("zplus", f, x, seed=r)[1][0], r)


def test_zplus_matmul() -> None:
    """The z-rule to both factors, each halved: product by product."""
    a, b, r = rand(2, 3, 4), rand(2, 4, 5, seed=1), rand(2, 3, 5, seed=2)
    _, (to_a, to_b) = back("zplus", torch.matmul, a, b, seed=r)
    expected_a, expected_b = torch.zeros_like(a), torch.zeros_like(b)
    for n, i, j, k in itertools.product(range(2), range(3), range(4), range(5)):
        share = a[n, i, j] * b[n, j, k] / (a[n, i] @ b[n, :, k]) * r[n, i, k] / 2
        expected_a[n, i, j] += share
        expected_b[n, j, k] += share
    assert close(to_a, expected_a, 1e-9)
    assert close(to_b, expected_b, 1e-9)
    assert close(to_a.sum(), r.sum() / 2, 1e-9)


UNCHANGED: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(-1), "layer_norm": lambda x: F.layer_norm(x, (4,)), "gelu": F.gelu,
    "tanh": torch.tanh, "scale": lambda x: x * 3, "per feature": lambda x: x * rand(4, seed=5),
    "divide": lambda x: x / 7, "neg": lambda x: -x,
    "rms_norm": lambda x: F.rms_norm(x, (4,)), "sigmoid": torch.sigmoid, "dropout": lambda x: F.dropout(x, 0.5, False),
}  # fmt: skip


@pytest.mark.parametrize("name", UNCHANGED)
def test_zplus_unchanged(name: str) -> None:
    """R passes as it is."""
    x, r = rand(3, 4), rand(3, 4, seed=1)
    y, (to_x,) = back("zplus", UNCHANGED[name], x, seed=r)
    assert close(y, UNCHANGED[name](x))
    assert torch.equal(to_x, r)


def test_zplus_product_of_two_live_tensors() -> None:
    """Half each, summed where one was broadcast."""
    a, b, r = rand(3, 4), rand(4, seed=1), rand(3, 4, seed=2)
    _, (to_a, to_b) = back("zplus", torch.mul, a, b, seed=r)
    assert close(to_a, r / 2)
    assert close(to_b, r.sum(0) / 2)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: x.mean(1),
        lambda x: x.sum(1),
        lambda x: x.mean((1, 2)),
        lambda x: F.adaptive_avg_pool1d(x, 1),
        lambda x: x.mean(),
    ],
)
def test_zplus_pool(pool: Callable[[Tensor], Tensor]) -> None:
    """A mean or sum shares R by magnitude and keeps its total."""
    x = rand(2, 3, 4)
    y, (to_x,) = back("zplus", pool, x)
    r = rand(*y.shape, seed=99)
    assert close(to_x.sum(), r.sum(), 1e-10)
    if y.dim() == 0:
        assert close(to_x, x.abs() / x.abs().sum() * r)


@pytest.mark.parametrize("f", [lambda x: x[:, 1:], lambda x: x.transpose(0, 1), lambda x: torch.cat([x, x]).flip(0)])
def test_zplus_moves(f: Callable[[Tensor], Tensor]) -> None:
    """Slicing, transposing and copying: as the gradient does."""
    x = rand(3, 4)
    assert torch.equal(back("zplus", f, x)[1][0], back("gradient", f, x)[1][0])


# Expansions and spellings: the same output, whatever rule set is on.


def _mha(**options: Any) -> Callable[[Tensor], Tensor]:
    torch.manual_seed(0)
    sizes = {name: options.pop(name) for name in ("kdim", "vdim", "batch_first", "bias") if name in options}
    layer = nn.MultiheadAttention(8, 2, dtype=torch.float64, **sizes).eval()
    memory = rand(5, 2, sizes["kdim"], seed=8) if "kdim" in sizes else None

    def run(x: Tensor) -> Tensor:
        key = x if memory is None else memory * x.mean()
        y, weights = layer(x, key, key, **options)
        return y if weights is None else y + weights.sum(-1).sum(-1).mean()

    return run


HIDE = torch.tensor([[False] * 5, [False, False, False, True, True]])
CAUSAL = torch.ones(5, 5).triu(1).bool()
OPS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "normalize": (lambda x: F.normalize(x), [(3, 4)]),
    "normalize, p = 1": (lambda x: F.normalize(x, 1.0, -1), [(2, 3, 4)]),
    "normalize of zero": (lambda x: F.normalize(x * 0, dim=-1) + x, [(3, 4)]),
    "glu": (lambda x: F.glu(x), [(3, 4)]),
    "glu, dim": (lambda x: F.glu(x, dim=0), [(4, 3)]),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), [(3, 4), (3, 4)]),
    "lerp, tensor": (lambda a, b, w: a.lerp(b, w), [(3, 4), (3, 4), (4,)]),
    "addmm": (torch.addmm, [(5,), (3, 4), (4, 5)]),
    "addmm, beta and alpha": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), [(5,), (3, 4), (4, 5)]),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2), [(2, 3, 5), (2, 3, 4), (2, 4, 5)]),
    "baddbmm, beta = 0": (
        lambda a, b: torch.baddbmm(torch.full((1,), INF).double(), a, b, beta=0),
        [(2, 3, 4), (2, 4, 5)],
    ),
    "attention, weights": (_mha(), [(5, 2, 8)]),
    "attention, no weights": (_mha(need_weights=False), [(5, 2, 8)]),
    "attention, one example": (_mha(need_weights=False), [(5, 8)]),
    "attention, one example with weights": (_mha(), [(5, 8)]),
    "attention, batch first": (_mha(batch_first=True, key_padding_mask=HIDE), [(2, 5, 8)]),
    "attention, weights per head": (_mha(average_attn_weights=False), [(5, 2, 8)]),
    "attention, no bias": (_mha(bias=False), [(5, 2, 8)]),
    "attention, padding": (_mha(key_padding_mask=HIDE), [(5, 2, 8)]),
    "attention, causal": (_mha(attn_mask=CAUSAL, is_causal=True, need_weights=False), [(5, 2, 8)]),
    "attention, float mask": (_mha(attn_mask=rand(5, 5, seed=6)), [(5, 2, 8)]),
    "attention, mask per head": (_mha(attn_mask=CAUSAL.expand(4, 5, 5).clone()), [(5, 2, 8)]),
    "attention, both masks": (_mha(attn_mask=CAUSAL, key_padding_mask=HIDE), [(5, 2, 8)]),
    "attention, own key size": (_mha(kdim=6, vdim=6), [(5, 2, 8)]),
}


@pytest.mark.parametrize("rules", RULESETS)
@pytest.mark.parametrize("name", OPS)
@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask and attn_mask")
def test_expansions_do_not_change_the_output(rules: str, name: str) -> None:
    """What is run in place of a torch call gives what torch gives."""
    f, shapes = OPS[name]
    xs = [rand(*shape, seed=i) for i, shape in enumerate(shapes)]
    with torch.no_grad():
        plain = f(*xs)
    if (rules, name) == ("gim", "lerp, tensor"):  # an activation, or a gate
        with pytest.raises(UnruledOpError, match="use lrp_conservative"):
            back(rules, f, *xs)
        return
    assert close(back(rules, f, *xs)[0], plain)


KEYWORDS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "layer_norm": (
        lambda x: F.layer_norm(input=x, normalized_shape=(4,), eps=0.3),
        lambda x: F.layer_norm(x, (4,), eps=0.3),
    ),
    "rms_norm": (lambda x: F.rms_norm(input=x, normalized_shape=(4,)), lambda x: F.rms_norm(x, (4,))),
    "gelu": (lambda x: F.gelu(input=x), F.gelu),
    "relu": (lambda x: F.relu(input=x), F.relu),
    "linear": (
        lambda x: F.linear(input=x, weight=rand(3, 4), bias=rand(3)),
        lambda x: F.linear(x, rand(3, 4), rand(3)),
    ),
    "softmax": (lambda x: x * F.softmax(input=x, dim=-1), lambda x: x * F.softmax(x, -1)),
    "add": (lambda x: torch.add(x, other=x * 2), lambda x: x + x * 2),
    "mul": (lambda x: torch.mul(x, other=x), lambda x: x * x),
    "matmul": (lambda x: torch.matmul(x, other=x.mT), lambda x: x @ x.mT),
    "div": (lambda x: torch.div(x, other=x.exp()), lambda x: x / x.exp()),
    "pow": (lambda x: torch.pow(input=x, exponent=2), lambda x: x**2),
    "normalize": (lambda x: F.normalize(input=x, dim=-1), lambda x: F.normalize(x, dim=-1)),
    "glu": (lambda x: F.glu(input=x), F.glu),
    "mean": (lambda x: torch.mean(input=x, dim=1), lambda x: x.mean(1)),
}


@pytest.mark.parametrize("rules", ["lrp_ah_ln", "lrp_conservative", "attn_lrp", "zplus"])
@pytest.mark.parametrize("name", KEYWORDS)
def test_keyword_arguments_meet_the_same_rule(rules: str, name: str) -> None:
    """`F.gelu(input=x)` is `F.gelu(x)`: how a model spells its arguments changes nothing."""
    spelled, plain = KEYWORDS[name]
    y, (to_x,) = back(rules, spelled, rand(3, 4))
    z, (expected,) = back(rules, plain, rand(3, 4))
    assert torch.equal(y, z)
    assert torch.equal(to_x, expected)


@pytest.mark.parametrize("rules", RULESETS)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True", "ignore:The PyTorch API of nested tensors")
def test_transformer_encoder_with_padding(rules: str, norm_first: bool, frozen: bool) -> None:
    """torch's own encoder in eval mode, which would take fused shortcuts, gives its own output under every rule set."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first, dtype=torch.float64)
    encoder = nn.TransformerEncoder(layer, 2).eval().requires_grad_(not frozen)
    x = rand(2, 5, 8)
    plain = encoder(x, src_key_padding_mask=HIDE).detach()
    y, (to_x,) = back(rules, lambda x: encoder(x, src_key_padding_mask=HIDE)[:, 0], x)
    assert close(y, plain[:, 0], 1e-10)
    assert to_x[1, :3].any()
    assert not to_x[1, 3:].any()


# In-place operations: (as written, the same without writing to anything).

InPlace = tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]


def _written(*lines: str) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of x and y from its body, so that the table below reads as a model would."""
    space: dict[str, Any] = {"torch": torch, "F": F}
    body = "\n    ".join(lines)
    exec(f"def f(x, y):\n    {body}", space)
    function: Callable[[Tensor, Tensor], Tensor] = space["f"]
    return function


IN_PLACE: dict[str, InPlace] = {
    "x += y": (_written("x += y", "return x * x"), lambda x, y: (x + y) * (x + y)),
    "x -= y": (_written("x -= y", "return x.tanh()"), lambda x, y: (x - y).tanh()),
    "x *= y": (_written("x *= y", "return x.tanh()"), lambda x, y: (x * y).tanh()),
    "x /= y": (_written("x /= y", "return x.tanh()"), lambda x, y: (x / y).tanh()),
    "add_ with alpha": (_written("x.add_(y, alpha=0.5)", "return x * y"), lambda x, y: (x + 0.5 * y) * y),
    "mul_": (_written("x.mul_(y)", "return x + y"), lambda x, y: x * y + y),
    "mul_ of what was used before": (
        _written("z = x.tanh()", "x.mul_(2)", "return z * x"), lambda x, y: x.tanh() * (x * 2)),
    "mul_ twice": (_written("x.mul_(y)", "x.mul_(y)", "return x"), lambda x, y: (x * y) * y),
    "mul_ through two names": (
        _written("z = x.mul_(y)", "z.mul_(y)", "return x + 0"), lambda x, y: (x * y) * y),
    "div_ of a square": (_written("x.div_(y.square() + 1)", "return x"), lambda x, y: x / (y.square() + 1)),
    "pow_": (_written("x.pow_(2)", "return x + y"), lambda x, y: x**2 + y),
    "tanh_": (_written("x.tanh_()", "return x * y"), lambda x, y: x.tanh() * y),
    "sigmoid_": (_written("x.sigmoid_()", "return x * y"), lambda x, y: x.sigmoid() * y),
    "clamp_": (_written("x.clamp_(-0.5, 0.5)", "return x * y"), lambda x, y: x.clamp(-0.5, 0.5) * y),
    "relu in place": (_written("F.relu(x, inplace=True)", "return x * y"), lambda x, y: F.relu(x) * y),
    "relu in place, by position": (_written("F.relu(x, True)", "return x * y"), lambda x, y: F.relu(x) * y),
    "torch.relu_": (_written("torch.relu_(x)", "return x * y"), lambda x, y: F.relu(x) * y),
    "relu in place, then +=": (
        _written("z = F.relu(x, inplace=True)", "z += y", "return x * 1"), lambda x, y: F.relu(x) + y),
    "silu in place": (_written("F.silu(x, inplace=True)", "return x + y"), lambda x, y: F.silu(x) + y),
    "elu in place": (_written("F.elu(x, 1.0, True)", "return x + y"), lambda x, y: F.elu(x) + y),
    "leaky_relu in place": (
        _written("F.leaky_relu(x, 0.1, inplace=True)", "return x + y"), lambda x, y: F.leaky_relu(x, 0.1) + y),
    "setitem": (
        _written("x[:, 1] = y[:, 0]", "return x * y"),
        lambda x, y: torch.stack([x[:, 0], y[:, 0], x[:, 2], x[:, 3]], 1) * y),
    "setitem of a mask": (
        _written("x[x > 0] = 0.0", "return x * y"), lambda x, y: x.masked_fill(x > 0, 0.0) * y),
    "setitem into an empty tensor": (
        _written("z = torch.zeros_like(x)", "z[:, :2] = y[:, :2]", "z[:, 2:] = x[:, 2:]", "return z * y"),
        lambda x, y: torch.cat([y[:, :2], x[:, 2:]], 1) * y),
    "setitem of a row of a row": (
        _written("x[0][1] = y[0, 0]", "return x * y"),
        lambda x, y: torch.cat([torch.stack([x[0, 0], y[0, 0], x[0, 2], x[0, 3]])[None], x[1:]]) * y),
    "+= through a slice": (
        _written("x[:, :2] += y[:, :2]", "return x * y"),
        lambda x, y: torch.cat([x[:, :2] + y[:, :2], x[:, 2:]], 1) * y),
    "mul_ through a view": (
        _written("x.view(-1)[:2].mul_(3)", "return x * y"),
        lambda x, y: (x * torch.tensor([3.0, 3, *[1] * 10], dtype=x.dtype).view(3, 4)) * y),
    "relu in place through a view": (
        _written("F.relu(x[0], inplace=True)", "return x * y"), lambda x, y: torch.cat([F.relu(x[:1]), x[1:]]) * y),
    "mul_ after a view was taken": (
        _written("z = x[0]", "x.mul_(3)", "return z * y[0]"), lambda x, y: (x * 3)[0] * y[0]),
    "relu in place after a view was taken": (
        _written("z = x.view(-1)", "F.relu(x, inplace=True)", "return z.tanh()"),
        lambda x, y: F.relu(x).view(-1).tanh()),
    "index_add_": (
        _written("x.index_add_(0, torch.tensor([0, 0, 2]), y)", "return x * y"),
        lambda x, y: torch.stack([x[0] + y[0] + y[1], x[1], x[2] + y[2]]) * y),
    "index_copy_": (
        _written("x.index_copy_(0, torch.tensor([1]), y[:1])", "return x * y"),
        lambda x, y: torch.stack([x[0], y[0], x[2]]) * y),
    "masked_fill_": (
        _written("x.masked_fill_(y > 0, -1.0)", "return x * y"), lambda x, y: x.masked_fill(y > 0, -1.0) * y),
    "copy_": (_written("z = torch.empty_like(x)", "z.copy_(x)", "return z * y"), lambda x, y: x * y),
    "zero_": (_written("x[1:].zero_()", "return x * y"), lambda x, y: torch.cat([x[:1], x[1:] * 0]) * y),
    "fill_": (_written("x[:1].fill_(2.0)", "return x * y"), lambda x, y: torch.cat([x[:1] * 0 + 2.0, x[1:]]) * y),
    "addcmul_": (_written("x.addcmul_(y, y, value=0.5)", "return x + y"), lambda x, y: x + 0.5 * (y * y) + y),
    "into a constant": (
        _written("z = torch.ones_like(x)", "z.mul_(x)", "z += y", "return z * z"), lambda x, y: (x + y) * (x + y)),
    "unbound rows": (
        _written("a, b, c = x.clone().unbind(0)", "a = a * 2", "a += b", "return a * c"),
        lambda x, y: (x[0] * 2 + x[1]) * x[2]),
}  # fmt: skip


@pytest.mark.parametrize("observe", [False, True], ids=["bare", "observed"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_gradients_are_autograds(name: str, observe: bool) -> None:
    """Without rules an in-place operation gives the output and gradients of its out-of-place writing."""
    written, plain = IN_PLACE[name]
    x, y = rand(3, 4), rand(3, 4, seed=1)
    out, grads = back("gradient", written, x, y, observe=observe)
    leaves = [x.clone().requires_grad_(), y.clone().requires_grad_()]
    expected = plain(*leaves)
    autograd = torch.autograd.grad(expected, leaves, rand(*expected.shape, seed=99), allow_unused=True)
    assert close(out, expected.detach())
    for found, grad in zip(grads, autograd, strict=True):
        assert close(found, torch.zeros_like(found) if grad is None else grad)


@pytest.mark.parametrize("observe", [False, True], ids=["bare", "observed"])
@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("rules", ["lrp_ah_ln", "lrp_conservative", "attn_lrp"])
def test_in_place_meets_the_same_rules(rules: str, name: str, observe: bool) -> None:
    """Under rules, an in-place operation flows back as its out-of-place writing does."""
    written, plain = IN_PLACE[name]
    x, y = rand(3, 4), rand(3, 4, seed=1)
    out, grads = back(rules, written, x, y, observe=observe)
    expected, wanted = back(rules, plain, x, y)
    assert close(out, expected)
    assert all(close(found, one) for found, one in zip(grads, wanted, strict=True))


ZPLUS_IN_PLACE: dict[str, InPlace] = {
    "over its own sum (a router's weights)": (
        _written("x /= x.sum(-1, keepdim=True)", "return x"), lambda x, y: x / x.sum(-1, keepdim=True)),
    "a layer's input": (
        _written("z = F.linear(x, y.detach())", "x += 1", "return z"), lambda x, y: F.linear(x, y.detach())),
    "a term of a sum": (_written("z = x + y", "x *= 2", "return z + x"), lambda x, y: (x + y) + x * 2),
    "a factor": (_written("z = x @ y.mT", "x *= 2", "return z @ x"), lambda x, y: (x @ y.mT) @ (x * 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", ZPLUS_IN_PLACE)
def test_zplus_over_writes(name: str) -> None:
    """A tensor that a rule has kept for the backward pass may be written to: the rule has its old value."""
    written, plain = ZPLUS_IN_PLACE[name]
    x, y = rand(3, 4).abs() + 0.1, rand(3, 4, seed=1)
    out, grads = back("zplus", written, x, y)
    expected, wanted = back("zplus", plain, x, y)
    assert close(out, expected)
    assert all(close(found, one) for found, one in zip(grads, wanted, strict=True))


def test_parameters_get_no_gradient() -> None:
    """Weights are detached on the way in: the graph does not know them."""
    layer = nn.Linear(4, 3).double()
    x = rand(2, 4).requires_grad_()
    with Propagation(ruleset("lrp_ah_ln")):
        y = layer(x)
    assert torch.autograd.grad(y.sum(), list(layer.parameters()), allow_unused=True) == (None, None)


def test_rule_sets_combine() -> None:
    """`|` lets the right side win, and refuses to mix gradients with relevance."""
    both = ruleset("lrp_ah") | ruleset("lrp_ln")
    assert set(both) == set(ruleset("lrp_ah")) | set(ruleset("lrp_ln"))
    changed = ruleset("lrp_ah") | RuleSet("mine", {"softmax": elementwise.constant_ratio})
    assert changed["softmax"] is elementwise.constant_ratio
    assert ruleset("lrp_ah")["softmax"] is elementwise.gate
    with pytest.raises(ValueError, match="do not combine"):
        ruleset("lrp_ah") | ruleset("zplus")
