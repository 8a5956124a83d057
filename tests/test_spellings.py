"""One function, many spellings: under every rule set the same scores and, to the bit, the same outputs."""

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.engine.propagation import Propagation
from relprop.errors import UnruledOpError
from relprop.rulebook.rulesets import RULESETS, ruleset

GRADIENT_CARRYING = [name for name, rules in RULESETS.items() if rules.carries == "gradient"]
Function = Callable[..., Tensor]
ROOT2, C = math.sqrt(2), math.sqrt(2 / math.pi)
MASK = torch.tensor([[1.0, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.float64)


def rand(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def flow(rules: str, f: Function, *xs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """f(*xs) under the rules, and what flows back to each x from a fixed random tensor."""
    leaves = [x.detach().clone().requires_grad_() for x in xs]
    with Propagation(ruleset(rules)):
        y = f(*(leaf.clone() for leaf in leaves))
    seed = rand(*y.shape, seed=99, dtype=y.dtype)
    grads = torch.autograd.grad(y, leaves, seed, allow_unused=True)
    return y.detach(), [torch.zeros_like(x) if g is None else g for x, g in zip(xs, grads, strict=True)]


def check_same(rules: str, written: Function, plain: Function, *xs: Tensor) -> None:
    y, found = flow(rules, written, *xs)
    z, expected = flow(rules, plain, *xs)
    torch.testing.assert_close(y, z, rtol=1e-10, atol=1e-10)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9 * max(1.0, other.abs().max().item()))


def check_refused(rules: str, written: Function, *xs: Tensor) -> None:
    with pytest.raises(UnruledOpError, match="use lrp_"):
        flow(rules, written, *xs)


def lines(*body: str) -> Function:
    """A function of x from its body, so that the tables below read as a model would."""
    space: dict[str, Any] = {"torch": torch, "F": F, "math": math, "ROOT2": ROOT2, "C": C, "MASK": MASK}
    exec("def f(x):\n    " + "\n    ".join(body), space)
    function: Function = space["f"]
    return function


# Activations.

GELU = {
    "erf": lines("return 0.5 * x * (1 + torch.erf(x / ROOT2))"),
    "x * 0.5": lines("return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))"),
    "times x last": lines("return (0.5 + 0.5 * torch.erf(x / ROOT2)) * x"),
    "erf_": lines("return 0.5 * x * (1 + (x / ROOT2).erf_())"),
    "all in place": lines("t = x / ROOT2", "t.erf_()", "t.add_(1)", "t.mul_(0.5)", "t.mul_(x)", "return t"),
    "in place on x": lines("t = torch.erf(x * 0.5 ** 0.5)", "t += 1", "x *= 0.5", "x *= t", "return x"),
    "torch.add(1, .)": lines("return torch.mul(x, 0.5) * torch.add(1, torch.erf(torch.div(x, ROOT2)))"),
    "keywords": lines("return torch.mul(input=x, other=torch.add(input=torch.erf(input=x / ROOT2), other=1) * 0.5)"),
    "out=": lines("t = torch.empty_like(x)", "torch.erf(x / ROOT2, out=t)", "torch.add(t, 1, out=t)",
                  "return torch.mul(x * 0.5, t, out=torch.empty_like(x))"),
    "addcmul": lines("return torch.addcmul(0.5 * x, x, torch.erf(x / ROOT2), value=0.5)"),
    "ndtr": lines("return x * torch.special.ndtr(x)"),
    "erfc": lines("return 0.5 * x * torch.special.erfc(-x / ROOT2)"),
    "sum of two": lines("return 0.5 * x + 0.5 * x * torch.erf(x / ROOT2)"),
    "a tensor of one": lines("return 0.5 * x * (torch.tensor(1.0).double() + torch.erf(x / ROOT2))"),
    "rsub": lines("return 0.5 * x * (1 - torch.erf(-x / ROOT2))"),
    "lerp": lines("return torch.lerp(torch.zeros_like(x), x, 0.5 + 0.5 * torch.erf(x / ROOT2))"),
}  # fmt: skip
TANH_GELU = {
    "tanh": lines("return 0.5 * x * (1 + torch.tanh(C * (x + 0.044715 * x**3)))"),
    "tanh_": lines("return 0.5 * x * (1 + (C * (x + 0.044715 * torch.pow(x, 3))).tanh_())"),
    "0.5 + 0.5 t": lines("return x * (0.5 + 0.5 * torch.tanh(C * (x + 0.044715 * x * x * x)))"),
    "sigmoid": lines("return x * torch.sigmoid(2 * C * (x + 0.044715 * x.pow(3)))"),
    "in place": lines(
        "u = x.pow(3)", "u.mul_(0.044715).add_(x).mul_(C)", "return x.mul(0.5).mul_(u.tanh_().add_(1.0))"
    ),
}
QUICK = {
    "sigmoid": lines("return x * torch.sigmoid(1.702 * x)"),
    "exp": lines("return x / (1 + torch.exp(-1.702 * x))"),
    "in place": lines("return x.mul_((x * 1.702).sigmoid_())"),
    "out": lines("return torch.mul(x, torch.sigmoid(1.702 * x), out=torch.empty(0).double())"),
    "tanh": lines("return x * (0.5 * torch.tanh(0.851 * x) + 0.5)"),
}
SILU = {
    "sigmoid": lines("return x * torch.sigmoid(x)"),
    "sigmoid first": lines("return torch.sigmoid(x) * x"),
    "sigmoid_": lines("return x * x.clone().sigmoid_()"),
    "exp": lines("return x * (1 / (1 + torch.exp(-x)))"),
    "reciprocal": lines("return x * (1 + (-x).exp()).reciprocal()"),
    "quotient": lines("return x / (1 + torch.exp(-x))"),
    "expit": lines("return x * torch.special.expit(x)"),
    "functional": lines("return x * F.sigmoid(x)"),
    "in place": lines("return F.silu(x, inplace=True)"),
    "torch": lines("return torch.nn.SiLU()(x)"),
    "in a wider type": lines("return x * torch.sigmoid(x.to(torch.float64)).to(x.dtype)"),
}
OTHER_ACTIVATIONS: dict[str, tuple[Function, dict[str, Function]]] = {
    "gelu": (F.gelu, GELU),
    "tanh gelu": (lambda x: F.gelu(x, approximate="tanh"), TANH_GELU),
    "silu": (F.silu, SILU),
    "quick gelu": (lambda x: F.silu(1.702 * x) / 1.702, QUICK),
    "tanh": (torch.tanh, {
        "sigmoid": lines("return 2 * torch.sigmoid(2 * x) - 1"),
        "exp": lines("return (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())"),
    }),
    "elu": (F.elu, {
        "where": lines("return torch.where(x > 0, x, torch.exp(x) - 1)"),
        "in place": lines("t = x.exp()", "t -= 1", "return torch.where(x > 0, x, t)"),
        "exp_": lines("return torch.where(x > 0, x, x.clone().exp_().sub_(1))"),
        "where, keywords": lines("return torch.where(condition=x > 0, input=x, other=torch.expm1(x))"),
    }),
    "relu": (F.relu, {
        "clamp": lines("return x.clamp(min=0)"),
        "mask": lines("return x * (x > 0)"),
        "relu_": lines("return torch.relu_(x)"),
        "maximum": lines("return torch.maximum(x, torch.zeros_like(x))"),
    }),
    "hardswish": (F.hardswish, {"relu6": lines("return x * F.relu6(x + 3) / 6")}),
    "mish": (F.mish, {"softplus": lines("return x * torch.tanh(F.softplus(x))"),
                      "log": lines("return x * torch.tanh(torch.log(1 + torch.exp(x)))")}),
    "softsign": (F.softsign, {"abs": lines("return x / (1 + x.abs())")}),
}  # fmt: skip
CASES = [(name, spelling) for name, (_, spellings) in OTHER_ACTIVATIONS.items() for spelling in spellings]


@pytest.mark.parametrize("rules", GRADIENT_CARRYING)
@pytest.mark.parametrize(("name", "spelling"), CASES)
def test_activations_by_hand(rules: str, name: str, spelling: str) -> None:
    """A function of one tensor with f(0) = 0 flows back as the fused one, whatever it is written with."""
    plain, spellings = OTHER_ACTIVATIONS[name]
    weight = rand(6, 5, seed=3)

    def model(activation: Function) -> Function:
        return lambda x: activation(x @ weight) @ weight.T

    if rules == "gim" and spelling == "lerp":  # whose weight may be a gate
        check_refused(rules, model(spellings[spelling]), rand(4, 6))
    else:
        check_same(rules, model(spellings[spelling]), model(plain), rand(4, 6))


@pytest.mark.parametrize(("name", "spelling"), CASES)
def test_activations_by_hand_under_zplus(name: str, spelling: str) -> None:
    """R passes unchanged through any function of one tensor."""
    x, r = rand(4, 6), rand(4, 6, seed=99)
    _, (to_x,) = flow("zplus", OTHER_ACTIVATIONS[name][1][spelling], x)
    dead = (to_x == 0) & (x < 0) & (name == "relu")  # `maximum` passes nothing there, and nothing arrives there
    torch.testing.assert_close(to_x, torch.where(dead, 0, r), rtol=1e-9, atol=1e-9)


# Softmax.

SOFTMAX = {
    "exp / sum": lines("e = torch.exp(x - x.amax(-1, keepdim=True))", "return e / e.sum(-1, keepdim=True)"),
    "max": lines("e = (x - x.max(-1, keepdim=True)[0]).exp()", "return e / e.sum(-1, keepdim=True)"),
    "max.values": lines("e = (x - x.max(dim=-1, keepdim=True).values).exp()", "return e / torch.sum(e, -1, True)"),
    "detached max": lines("e = (x - x.detach().amax(-1, keepdim=True)).exp()", "return e / e.sum(-1, keepdim=True)"),
    "no shift": lines("return torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)"),
    "in place": lines("e = x - x.amax(-1, keepdim=True)", "e.exp_()", "e /= e.sum(-1, keepdim=True)", "return e"),
    "div_": lines("e = x.exp()", "return e.div_(e.sum(-1, keepdim=True))"),
    "times 1 / sum": lines("e = x.exp()", "return e * (1 / e.sum(-1, keepdim=True))"),
    "times reciprocal": lines("e = x.exp()", "return e * e.sum(-1, keepdim=True).reciprocal()"),
    "unsqueezed sum": lines("e = x.exp()", "return e / e.sum(-1).unsqueeze(-1)"),
    "logsumexp": lines("return torch.exp(x - torch.logsumexp(x, -1, keepdim=True))"),
    "log_softmax": lines("return F.log_softmax(x, -1).exp()"),
    "softmin": lines("return F.softmin(-x, -1)"),
    "out=": lines("return torch.softmax(x, -1, out=torch.empty(0).double())"),
    "aten": lines("return torch.ops.aten._softmax(x, -1, False)"),
    "keywords": lines("return F.softmax(input=x, dim=-1)"),
}  # fmt: skip
IN_ONE_CALL = ("softmin", "out=", "aten", "keywords")


@pytest.mark.parametrize("rules", RULESETS)
@pytest.mark.parametrize("spelling", SOFTMAX)
def test_softmax_by_hand(rules: str, spelling: str) -> None:
    """exp(x) / sum(exp(x)) is a softmax."""
    written, q, v = SOFTMAX[spelling], rand(2, 4, 4), rand(2, 4, 3, seed=1)
    if rules in ("lrp_softmax", "gim") and spelling not in IN_ONE_CALL:  # its logits are lost
        check_refused(rules, lambda q, v: written(q) @ v, q, v)
    else:
        check_same(rules, lambda q, v: written(q) @ v, lambda q, v: torch.softmax(q, -1) @ v, q, v)


AGAIN: dict[str, Function] = {
    "/ sum": lines("p = x.softmax(-1) * MASK", "return p / p.sum(-1, keepdim=True)"),
    "masked_fill": lines("p = x.softmax(-1).masked_fill(MASK == 0, 0)", "return p / p.sum(-1, keepdim=True)"),
    "/=": lines("p = x.softmax(-1) * MASK", "p /= p.sum(-1, keepdim=True)", "return p"),
    "times 1 / sum": lines("p = x.softmax(-1) * MASK", "return p * (1 / p.sum(-1, keepdim=True))"),
    "normalize": lines("return F.normalize(x.softmax(-1) * MASK, p=1, dim=-1)"),
}


@pytest.mark.parametrize("rules", RULESETS)
@pytest.mark.parametrize("spelling", AGAIN)
def test_a_masked_softmax_normalised_again(rules: str, spelling: str) -> None:
    """It is the softmax of what the mask leaves."""
    written, q, v = AGAIN[spelling], rand(2, 4, 4), rand(2, 4, 3, seed=1)
    if rules in ("lrp_softmax", "gim"):  # its logits are lost
        check_refused(rules, lambda q, v: written(q) @ v, q, v)
    else:
        check_same(
            rules,
            lambda q, v: written(q) @ v,
            lambda q, v: q.masked_fill(MASK == 0, -torch.inf).softmax(-1) @ v,
            q,
            v,
        )


@pytest.mark.parametrize("rules", ["lrp_softmax", "attn_lrp", "gim", "zplus"])
def test_weights_divided_by_another_sum_are_told(rules: str) -> None:
    x = rand(2, 4, 4).requires_grad_()
    with Propagation(ruleset(rules)) as mode:
        _ = (x.clone().softmax(-1) * MASK) / (x.clone().softmax(-1) * MASK).sum(-1, keepdim=True)
    assert any("could not be recognised as that of a softmax" in one for one in mode.warnings)


LOGARITHMS: dict[str, tuple[Function, dict[str, Function]]] = {
    "log_softmax": (lambda x: F.log_softmax(x, -1), {
        "log": lines("return torch.log(torch.softmax(x, -1))"),
        "log_": lines("return x.softmax(-1).log_()"),
        "keywords": lines("return torch.log(input=F.softmax(x, dim=-1))"),
        "minus logsumexp": lines("return x - torch.logsumexp(x, -1, keepdim=True)"),
        "minus log": lines("return x - x.exp().sum(-1, keepdim=True).log()"),
        "special": lines("return torch.special.log_softmax(x, -1)"),
    }),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), {
        "log sum exp": lines("return torch.log(torch.exp(x).sum(-1))"),
        "keepdim": lines("return x.exp().sum(-1, keepdim=True).log().squeeze(-1)"),
        "dim=": lines("return torch.sum(torch.exp(x), dim=-1).log()"),
        "shifted": lines("m = x.detach().amax(-1)", "return (x - m[:, None]).exp().sum(-1).log() + m"),
        "out=": lines("return torch.logsumexp(x, -1, out=torch.empty(0).double())"),
    }),
}  # fmt: skip


@pytest.mark.parametrize("rules", GRADIENT_CARRYING)
@pytest.mark.parametrize(("name", "spelling"), [(name, one) for name, (_, each) in LOGARITHMS.items() for one in each])
def test_logarithms_by_hand(rules: str, name: str, spelling: str) -> None:
    """The logarithm of a softmax, or of a sum of exponentials, whatever it is written with."""
    plain, spellings = LOGARITHMS[name]
    mix = rand(6, 6, seed=3)
    check_same(rules, lambda x: spellings[spelling](x @ mix), lambda x: plain(x @ mix), rand(3, 6))


def test_other_logarithms_stay_gates() -> None:
    """A scaled or masked sum of exponentials is no softmax: nothing flows, and nothing is made up."""
    for f in (lambda x: (2 * x.exp().sum(-1)).log(), lambda x: (x.softmax(-1) + 1e-3).log()):
        with Propagation(ruleset("lrp_conservative")):
            assert not f(rand(3, 4).requires_grad_().clone()).requires_grad


# Norms.

MEAN = "m = x.mean(-1, keepdim=True)"
LAYER_NORM = {
    "var": lines("return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 0.1)"),
    "pow": lines(MEAN, "v = (x - m).pow(2).mean(-1, keepdim=True)", "return (x - m) / (v + 0.1).sqrt()"),
    "rsqrt": lines(MEAN, "z = x - m", "return z * torch.rsqrt((z * z).mean(-1, keepdim=True) + 0.1)"),
    "square": lines(MEAN, "z = x - m", "return z * (z.square().mean(-1, True) + 0.1).rsqrt_()"),
    "sum / n": lines(
        "m = x.sum(-1, keepdim=True) / 6", "z = x - m", "return z / (z**2).mean(-1, True).add(0.1) ** 0.5"
    ),
    "** -0.5": lines(MEAN, "z = x - m", "return z * ((z**2).mean(-1, keepdim=True) + 0.1) ** -0.5"),
    "1 / sqrt": lines(MEAN, "z = x - m", "return z * (1 / torch.sqrt(z.pow(2).mean(-1, True) + 0.1))"),
    "std": lines(MEAN, "return (x - m) / (x.var(-1, keepdim=True, correction=0) + 0.1).sqrt()"),
    "var_mean": lines("v, m = torch.var_mean(x, -1, correction=0, keepdim=True)", "return (x - m) / (v + 0.1).sqrt()"),
    "in place": lines(
        "x -= x.mean(-1, keepdim=True)", "x /= (x.pow(2).mean(-1, keepdim=True) + 0.1).sqrt_()", "return x"
    ),
    "norm": lines(MEAN, "z = x - m", "n = z.norm(dim=-1, keepdim=True)", "return z / (n * n / 6 + 0.1).sqrt()"),
    "native": lines("return torch.native_layer_norm(x, [6], None, None, 0.1)[0]"),
    "torch": lines("return torch.layer_norm(x, (6,), eps=0.1)"),
}
RMS_NORM = {
    "rsqrt": lines("return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 0.1)"),
    "sqrt": lines("return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 0.1)"),
    "pow": lines("return x * torch.pow(x.square().mean(-1, keepdim=True) + 0.1, -0.5)"),
    "div_": lines("return x.div_((x**2).mean(-1, keepdim=True).add_(0.1).sqrt_())"),
    "torch": lines("return torch.rms_norm(x, (6,), None, 0.1)"),
    "** 0.5": lines("return x / ((x**2).mean(-1, keepdim=True) + 0.1) ** 0.5"),
}
NORMS = {"layer_norm": (lambda x: F.layer_norm(x, (6,), eps=0.1), LAYER_NORM),
         "rms_norm": (lambda x: F.rms_norm(x, (6,), eps=0.1), RMS_NORM)}  # fmt: skip


@pytest.mark.parametrize("rules", RULESETS)
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize(("name", "spelling"), [(name, one) for name, (_, each) in NORMS.items() for one in each])
def test_norms_by_hand(rules: str, name: str, spelling: str, affine: bool) -> None:
    """1/std is constant under the LN-rule, and under z+ a norm passes R unchanged, however they are written."""
    plain, spellings = NORMS[name]
    weight, bias, mix = rand(6, seed=1), rand(6, seed=2), rand(6, 6, seed=3)
    bias = bias if name == "layer_norm" else torch.zeros(6).double()

    def fused(x: Tensor) -> Tensor:
        if name == "layer_norm" and affine:
            return F.layer_norm(x @ mix, (6,), weight, bias, 0.1) @ mix
        return (plain(x @ mix) * weight if affine else plain(x @ mix)) @ mix

    def written(x: Tensor) -> Tensor:
        y = spellings[spelling](x @ mix)
        return ((y * weight + bias) if affine and name == "layer_norm" else y * weight if affine else y) @ mix

    check_same(rules, written, fused, rand(3, 6))


# Operations.

W = rand(4, 4, seed=5)


def attention(x: Tensor) -> Tensor:
    return (x @ x.mT).softmax(-1)


OPERATIONS: dict[str, list[Function]] = {
    "add": [torch.add, operator.add, Tensor.add, Tensor.__add__, Tensor.__radd__, lambda x, y: torch.add(x, other=y),
            lambda x, y: torch.add(input=x, other=y), lambda x, y: x.clone().add_(y),
            lambda x, y: operator.iadd(x.clone(), y), torch.ops.aten.add.Tensor, torch.ops.aten.add,
            lambda x, y: torch.add(x, y, out=torch.empty_like(x)), lambda x, y: torch.add(x, y * 2, alpha=0.5)],
    "sub": [torch.sub, operator.sub, torch.subtract, Tensor.__sub__, lambda x, y: torch.rsub(y, x),
            lambda x, y: y.__rsub__(x), lambda x, y: x.clone().sub_(y), lambda x, y: torch.sub(input=x, other=y),
            lambda x, y: torch.sub(x, y, out=torch.empty(0).double()), lambda x, y: torch.add(x, y, alpha=-1)],
    "add, alpha": [lambda x, y: x + 0.5 * y, lambda x, y: torch.add(x, y, alpha=0.5), lambda x, y: x.add(y, alpha=0.5),
                   lambda x, y: x.clone().add_(y, alpha=0.5), lambda x, y: torch.sub(x, y, alpha=-0.5),
                   lambda x, y: torch.rsub(y, x, alpha=-0.5)],
    "mul": [torch.mul, operator.mul, torch.multiply, Tensor.__rmul__, lambda x, y: torch.mul(x, other=y),
            lambda x, y: x.clone().mul_(y), lambda x, y: operator.imul(x.clone(), y), torch.ops.aten.mul.Tensor,
            lambda x, y: torch.mul(x, y, out=torch.empty_like(x))],
    "div": [torch.div, operator.truediv, torch.divide, torch.true_divide, lambda x, y: x.clone().div_(y),
            lambda x, y: y.__rtruediv__(x), lambda x, y: torch.div(input=x, other=y),
            lambda x, y: torch.div(x, y, out=torch.empty_like(x))],
    "matmul": [torch.matmul, operator.matmul, torch.mm, lambda x, y: y.__rmatmul__(x), torch.linalg.matmul,
               lambda x, y: torch.matmul(input=x, other=y), lambda x, y: torch.mm(x, mat2=y),
               lambda x, y: torch.bmm(x[None], y[None])[0], lambda x, y: torch.matmul(x, y, out=torch.empty_like(x)),
               lambda x, y: torch.einsum("ij,jk->ik", x, y)],
    "live bias": [lambda x, y: y[None] @ W.mT + x[0], lambda x, y: F.linear(y[None], W, x[0]),
                  lambda x, y: F.linear(input=y[None], weight=W, bias=x[0]),
                  lambda x, y: F.conv1d(y.mT[None], W[:, :, None], x[0]).mT],
    "live weight": [lambda x, y: x @ y.mT + W[0], lambda x, y: F.linear(x, y) + W[0], lambda x, y: F.linear(x, y, W[0]),
                    lambda x, y: F.conv1d(x.mT[None], y[:, :, None], W[0])[0].mT],
    "live weight, constant input": [lambda x, y: W @ y.mT + x, lambda x, y: F.linear(W, y) + x],
    "weights on the left": [lambda x, y: (y.mT @ W).mT + x, lambda x, y: W.mT @ y + x,
                            lambda x, y: torch.einsum("ji,jk->ik", W, y) + x, lambda x, y: torch.addmm(x, W.mT, y)],
    "weights": [lambda x, y: y @ W + x, lambda x, y: torch.einsum("ij,jk->ik", y, W) + x,
                lambda x, y: torch.einsum("jk,ij->ik", [W, y]) + x, lambda x, y: torch.bmm(y[None], W[None])[0] + x,
                lambda x, y: F.conv1d(y.mT[None], W.mT[:, :, None])[0].mT + x,
                lambda x, y: (y[:, :, None] * W).sum(1) + x,
                lambda x, y: (W * y[:, :, None].expand(4, 4, 4)).sum(1) + x,
                lambda x, y: torch.einsum("bi,bij->bj", y, torch.stack([W, W])[(x.sum(1) > 0).long()]) + x],
    "weights of other kinds": [lambda x, y: y @ W + x, lambda x, y: torch.tensordot(y, W, 1) + x,
                               lambda x, y: torch.inner(y, W.mT) + x,
                               lambda x, y: torch.linalg.vecdot(y[:, None], W.mT) + x,
                               lambda x, y: F.conv_transpose1d(y.mT[None], W[:, :, None])[0].mT + x],
    "chain of weights": [lambda x, y: y @ W @ W + x, lambda x, y: torch.linalg.multi_dot([y, W, W]) + x],
    "attention": [lambda x, y: attention(x) @ y, lambda x, y: torch.einsum("ij,jk->ik", attention(x), y),
                  lambda x, y: (attention(x)[:, :, None] * y).sum(1),
                  lambda x, y: (y * attention(x)[..., None]).sum(-2),
                  lambda x, y: F.scaled_dot_product_attention(x[None], x[None], y[None], scale=1.0)[0]],
    "gated SiLU": [lambda x, y: y * F.silu(x), lambda x, y: y * x * torch.sigmoid(x),
                   lambda x, y: (x * y) * x.sigmoid(),
                   lambda x, y: torch.sigmoid(x) * (x * y), lambda x, y: (x * y).mul_(torch.sigmoid(x))],
    "gated GELU": [lambda x, y: F.gelu(x) * y, lambda x, y: y * x * 0.5 * (1 + torch.erf(x / ROOT2)),
                   lambda x, y: (x * y) / 2 * (1 + torch.erf(x / ROOT2)),
                   lambda x, y: (1 + torch.erf(x / ROOT2)) * (0.5 * (x * y))],
    "LayerNorm, live parameters": [lambda x, y: F.layer_norm(x, (4,)) * y[0] + y[1],
                                   lambda x, y: F.layer_norm(x, (4,), y[0], y[1]),
                                   lambda x, y: F.layer_norm(x, weight=y[0], normalized_shape=[4], bias=y[1]),
                                   lambda x, y: torch.layer_norm(x, (4,), y[0], y[1]),
                                   lambda x, y: torch.native_layer_norm(x, (4,), y[0], y[1], 1e-5)[0],
                                   lambda x, y: F.group_norm(x, 1, y[0], y[1])],
    "LayerNorm, live bias": [lambda x, y: F.layer_norm(x, (4,), W[0]) + y[1],
                             lambda x, y: F.layer_norm(x, (4,), W[0], y[1])],
    "LayerNorm of a constant": [lambda x, y: F.layer_norm(W, (4,)) * y[0] + y[1] + x,
                                lambda x, y: F.layer_norm(W, (4,), y[0], y[1]) + x],
    "RMSNorm, live weight": [lambda x, y: F.rms_norm(x, (4,), eps=1e-5) * y[0],
                             lambda x, y: F.rms_norm(x, (4,), y[0], 1e-5)],
    "BatchNorm, live parameters": [lambda x, y: F.batch_norm(x, W[0], W[1].abs()) * y[0] + y[1],
                                   lambda x, y: F.batch_norm(x, W[0], W[1].abs(), y[0], y[1])],
    "InstanceNorm, live parameters": [lambda x, y: F.instance_norm(x[None]) * y[0][:, None] + y[1][:, None],
                                      lambda x, y: F.instance_norm(x[None], weight=y[0], bias=y[1])],
    "PReLU, live weight": [lambda x, y: torch.where(x > 0, x, x * y[0, :1]), lambda x, y: F.prelu(x, y[0, :1])],
    "live bounds": [lambda x, y: torch.maximum(x, y), lambda x, y: torch.clamp(x, min=y), lambda x, y: x.clamp_min(y),
                    lambda x, y: x.clone().clamp_(y)],
    "live denominator": [lambda x, y: x / (y.abs() + 1), lambda x, y: x * (y.abs() + 1).reciprocal(),
                         lambda x, y: x * (y.abs() + 1) ** -1, lambda x, y: x * (1 / (y.abs() + 1))],
    "attention with a live mask": [
        lambda x, y: (x @ x.mT + y).softmax(-1) @ y,
        lambda x, y: F.scaled_dot_product_attention(x[None], x[None], y[None], y[None], scale=1.0)[0]],
    "detached attention": [lambda x, y: attention(x).detach() @ y + x,
                           lambda x, y: (attention(x).detach()[:, :, None] * y).sum(1) + x],
    "neg": [lambda x, y: -x + y, lambda x, y: torch.neg(x) + y, lambda x, y: torch.negative(x) + y,
            lambda x, y: x.clone().neg_() + y],
    "constant minus": [lambda x, y: 1 - x + y, lambda x, y: torch.rsub(x, 1) + y, lambda x, y: torch.sub(1, x) + y,
                       lambda x, y: (-x).add_(1) + y],
    "addmm": [lambda x, y: x + 0.5 * (y @ W), lambda x, y: torch.addmm(x, y, W, alpha=0.5),
              lambda x, y: x.addmm(y, W, alpha=0.5), lambda x, y: x.clone().addmm_(mat1=y, mat2=W, alpha=0.5),
              lambda x, y: torch.addmm(input=x, mat1=y, mat2=W, alpha=0.5),
              lambda x, y: torch.baddbmm(x[:, None], y[:, None], W.expand(4, 4, 4), alpha=0.5)[:, 0]],
    "addmm, beta": [lambda x, y: 0.3 * x + y @ W, lambda x, y: torch.addmm(x, y, W, beta=0.3),
                    lambda x, y: torch.baddbmm(x[:, None], y[:, None], W.expand(4, 4, 4), beta=0.3)[:, 0],
                    lambda x, y: torch.addbmm(x, y[None], W[None], beta=0.3)],
    "addcmul": [lambda x, y: x + 0.7 * (y * W), lambda x, y: torch.addcmul(x, y, W, value=0.7),
                lambda x, y: x.clone().addcmul_(y, W, value=0.7),
                lambda x, y: torch.addcmul(input=x, tensor1=y, tensor2=W, value=0.7)],
    "addcdiv": [lambda x, y: x + 0.7 * (y / W), lambda x, y: torch.addcdiv(x, y, W, value=0.7),
                lambda x, y: x.clone().addcdiv_(y, W, value=0.7)],
    "lerp": [lambda x, y: x + 0.3 * (y - x), lambda x, y: torch.lerp(x, y, 0.3), lambda x, y: x.clone().lerp_(y, 0.3),
             lambda x, y: torch.lerp(input=x, end=y, weight=0.3)],
    "pow": [lambda x, y: x**2 + y, lambda x, y: torch.pow(x, 2) + y, lambda x, y: x.square() + y,
            lambda x, y: x.clone().pow_(2) + y, lambda x, y: torch.pow(input=x, exponent=2) + y],
    "cat": [lambda x, y: torch.cat([x, y]), lambda x, y: torch.cat(tensors=(x, y)), lambda x, y: torch.concat([x, y]),
            lambda x, y: torch.vstack([x, y]), lambda x, y: torch.cat([x, y], out=torch.empty(8, 4).double())],
    "where": [lambda x, y: torch.where(W > 0, x, y), lambda x, y: torch.where(condition=W > 0, input=x, other=y),
              lambda x, y: x.where(W > 0, y)],
    "split": [lambda x, y: torch.cat([x[:2] + y[:2], x[2:]]), lambda x, y: torch.cat([x.chunk(2)[0] + y[:2], x[2:]]),
              lambda x, y: torch.cat([x.split(2)[0].add_(y[:2]), x[2:]]),
              lambda x, y: torch.cat([x.chunk(2, dim=0)[0].add_(y.split([2, 2])[0]), x[2:]])],
    "linear": [lambda x, y: F.linear(x, W) + y, lambda x, y: F.linear(input=x, weight=W) + y,
               lambda x, y: torch.ops.aten.linear(x, W) + y],
    "sigmoid": [lambda x, y: y * torch.sigmoid(x), lambda x, y: y * x.sigmoid(), lambda x, y: y * F.sigmoid(x),
                lambda x, y: y * torch.special.expit(x), lambda x, y: y * x.clone().sigmoid_(),
                lambda x, y: y * torch.sigmoid(x, out=torch.empty_like(x))],
}  # fmt: skip


@pytest.mark.parametrize("rules", RULESETS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_spelling_meets_the_same_rule(rules: str, name: str) -> None:
    """Function, method, operator, reflected operator, in place, out=, keyword, aten."""
    first, *others = OPERATIONS[name]
    if rules == "zplus" and name in ("weights of other kinds", "chain of weights"):
        for spelling in others:
            check_refused(rules, spelling, rand(4, 4), rand(4, 4, seed=1))
        return
    for spelling in others:
        check_same(rules, spelling, first, rand(4, 4), rand(4, 4, seed=1))


SAME_BITS: dict[str, Function] = {
    "rms_norm": lambda x: F.rms_norm(x, (8,), eps=1e-6),
    "rms_norm, weight": lambda x: F.rms_norm(x, (8,), rand(8, seed=1, dtype=x.dtype)),
    "layer_norm": lambda x: F.layer_norm(x, (8,), rand(8, seed=1, dtype=x.dtype), rand(8, seed=2, dtype=x.dtype)),
    "group_norm": lambda x: F.group_norm(x.mT.contiguous(), 2, rand(8, seed=1, dtype=x.dtype), rand(8, dtype=x.dtype)),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "glu": lambda x: F.glu(x),
    "log of softmax": lambda x: x.softmax(-1).log(),
    "log of sum of exp": lambda x: x.exp().sum(-1).log(),
    "bilinear": lambda x: F.bilinear(x[0], x[1], rand(3, 8, 8, seed=1, dtype=x.dtype), rand(3, seed=2, dtype=x.dtype)),
    "grid_sample": lambda x: F.grid_sample(x[None].float(), x[None, ..., :2].float().tanh(), align_corners=False),
    "lerp": lambda x: torch.lerp(x, x.tanh(), 0.7),
    "addcmul": lambda x: torch.addcmul(x, x, x.tanh(), value=0.3),
    "addcdiv": lambda x: torch.addcdiv(x, x, x.exp(), value=0.3),
    "baddbmm": lambda x: torch.baddbmm(x @ x.mT, x, x.mT, beta=0.7, alpha=0.3),
    "addmm": lambda x: torch.addmm(x[0] @ x[0].mT, x[0], x[1].mT, beta=0.7, alpha=0.3),
    "add, alpha": lambda x: torch.add(x, x.tanh(), alpha=0.3),
    "rsub": lambda x: 1 - x,
    "gelu by hand": lambda x: 0.5 * x * (1 + torch.tanh(C * (x + 0.044715 * x**3))),
    "silu by hand": lambda x: x * torch.sigmoid(x),
    "softmax by hand": lambda x: ((x.exp() / x.exp().sum(-1, keepdim=True)) * x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "grouped attention": lambda x: F.scaled_dot_product_attention(
        x.repeat(2, 1, 1)[None], x[None], x[None], enable_gqa=True
    ),
    "live linear": lambda x: F.linear(x[0], x[1], x[0, :, 0]),
    "multi-head attention": lambda x: F.multi_head_attention_forward(
        x, x, x, 8, 2, rand(24, 8, seed=1, dtype=x.dtype), rand(24, seed=2, dtype=x.dtype), None, None, False, 0.0,
        rand(8, 8, seed=3, dtype=x.dtype), None, training=False, need_weights=False)[0],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("rules", [*RULESETS, "maps"])
@pytest.mark.parametrize("name", SAME_BITS)
def test_outputs_to_the_bit(name: str, rules: str, dtype: torch.dtype) -> None:
    """A rule changes what flows back, never a value."""
    used = ruleset("lrp_ah_ln").with_maps() if rules == "maps" else ruleset(rules)
    f, x = SAME_BITS[name], rand(5, 5, 8, dtype=dtype)
    with torch.no_grad():
        plain = f(x.clone())
    if (name == "softmax by hand" and rules in ("lrp_softmax", "gim")) or (name, rules) == ("bilinear", "lrp_gamma"):
        check_refused(rules, f, x)
        return
    with Propagation(used):
        found = f(x.clone().requires_grad_().clone())
    assert found.dtype == plain.dtype
    assert torch.equal(found.detach(), plain)
