"""Autograd functions of a model's own: opened where torch calls show all that they compute, else named as before."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from relprop.attribution import attribute
from relprop.engine import own_functions
from relprop.engine.propagation import Propagation
from relprop.rulebook.rulesets import ruleset
from test_never_silent import IDS, Model, noticed, same, scores

METHODS = ["lrp_ah_ln", "lrp_conservative", "lrp_carried", "attn_lrp", "lrp"]


def _curve(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.tanh(0.8 * x * (1 + 0.04 * x * x)))


def _masked_softmax(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    weights = torch.softmax(x.masked_fill(~mask, torch.finfo(x.dtype).min), dim)
    weights.masked_fill_(~mask, 0)
    return weights


def _mixed(x: Tensor, y: Tensor, config: dict[str, float]) -> tuple[Tensor, Tensor]:
    return x * y.tanh(), config["scale"] * y.relu()


def _kernel(x: Tensor, y: Tensor) -> Tensor:
    return (1 - torch.acos(0.9 * (F.normalize(x, dim=-1) @ F.normalize(x, dim=-1).mT)) / torch.pi) ** 3 @ y


class Function(torch.autograd.Function):
    """Its backward pass is no gradient at all: no rule but "gradient" may use it."""

    calls = 0

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return tuple(-7 * grad for grad in grads) + (None,) * (ctx.arguments - len(grads))  # type: ignore[return-value]


class Curve(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.arguments = 1
        Function.calls += 1
        return _curve(x)


class MaskedSoftmax(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *others: Any) -> Tensor:
        ctx.arguments = 3
        return _masked_softmax(x, *others)


class Mixed(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, config: dict[str, float]) -> tuple[Tensor, Tensor]:
        ctx.arguments = 3
        ctx.save_for_backward(x, y)
        return _mixed(x, y, config)


class Kernel(Function):
    """Weights that are no softmax: powers of an angle."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.arguments = 2
        return _kernel(x, y)


MASK = torch.tensor([True, True, False, True, True])


def curve(self: Any, x: Tensor, function: Any = Curve.apply) -> Tensor:
    return x + self.last(function(self.first(self.norm(x))))


def attention(self: Any, x: Tensor, function: Any = MaskedSoftmax.apply) -> Tensor:
    return x + function(self.first(x) @ x.transpose(-1, -2), MASK, -1) @ self.last(x)


def mixed(self: Any, x: Tensor, function: Any = Mixed.apply) -> Tensor:
    left, right = function(self.first(x), self.norm(x), {"scale": 2.0})
    right += x
    return x + self.last(left) + right


def kernel(self: Any, x: Tensor, function: Any = Kernel.apply) -> Tensor:
    return x + function(self.first(x), self.last(x))


def written_afterwards(self: Any, x: Tensor, function: Any = Curve.apply) -> Tensor:
    h = function(self.first(x))
    h *= 2
    h[:, 0] = x[:, 1]
    return x + self.last(h) + h


FORMS = {curve: _curve, attention: _masked_softmax, mixed: _mixed, kernel: _kernel, written_afterwards: _curve}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_function_of_torch_calls_meets_their_rules(form: Any, method: str) -> None:
    """The scores are those of the same calls without the function, and nothing is left to warn of."""
    model = Model(form)
    found = attribute(model, IDS, 1, method)
    same(found.scores, scores(lambda self, x: form(self, x, FORMS[form]), method))
    assert not found.warnings
    with torch.no_grad():
        same(found.value, model(IDS)[:, 1])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_its_ledger_closes(form: Any) -> None:
    (ledger,) = attribute(Model(form), IDS[:1], 1, "lrp_conservative", ledger=True).ledger or ()
    assert ledger.gap < 1e-10, ledger
    assert noticed(form) == []  # outputs are compared to the bit there


def test_a_gradient_is_what_the_backward_pass_of_the_function_says() -> None:
    found = attribute(Model(curve), IDS, 1, "gradient_x_input").scores
    plain = scores(lambda self, x: curve(self, x, _curve), "gradient_x_input")
    assert not torch.allclose(found, plain, rtol=0.1)


class Ending(Model):
    """Its output is a function's own result."""

    def forward(self, input_ids: Tensor) -> Tensor:
        out: Tensor = Curve.apply(super().forward(input_ids))
        return out


class PlainEnding(Model):
    def forward(self, input_ids: Tensor) -> Tensor:
        return _curve(super().forward(input_ids))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("target", [1, lambda out: out[:, 1]], ids=["class", "function"])
def test_a_function_that_ends_the_model(target: Any, method: str) -> None:
    found = attribute(Ending(curve), IDS, target, method)
    same(found.scores, attribute(PlainEnding(curve), IDS, target, method).scores)
    assert not found.warnings


def test_it_is_shown_once_per_shape() -> None:
    """A pass runs each of two calls twice; the first pass of a shape also shows that this may be done."""
    own_functions._proved.clear()
    model = Model(curve)

    def calls(ids: Tensor) -> int:
        Function.calls = 0
        attribute(model, ids, 1, "lrp_conservative")
        return Function.calls

    first, again, others = calls(IDS), calls(IDS.flip(1)), calls(IDS[:, :4])
    assert again < first
    assert calls(IDS[:, 1:]) < others


# What stays closed: it is noticed by its name, and its own backward pass is used.


class Closed(torch.autograd.Function):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class InPartHidden(Closed):
    """Torch calls show the half of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _: Any) -> Tensor:
        return x / 2 + torch.from_numpy(x.detach().numpy() / 2)


class Rounded(Closed):
    """Straight-through: flat, but for jumps, and a backward pass that passes on all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _: Any) -> Tensor:
        return (x * 16).round() / 16


class Writing(Closed):
    @staticmethod
    def forward(ctx: Any, x: Tensor, buffer: Tensor) -> Tensor:
        buffer += 1
        return x * 1.0


class OfAnotherFunction(Closed):
    @staticmethod
    def forward(ctx: Any, x: Tensor, inner: Any) -> Tensor:
        result: Tensor = inner(x)
        return result


@pytest.mark.parametrize(
    ("function", "other"),
    [(InPartHidden, None), (Rounded, None), (Writing, torch.zeros(3)), (OfAnotherFunction, lambda x: x * 1.0)],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_is_not_shown_stays_closed(function: Any, other: Any) -> None:
    def form(self: Any, x: Tensor) -> Tensor:
        return x + self.last(function.apply(self.first(x), other))

    def straight_through(self: Any, x: Tensor) -> Tensor:
        h = self.first(x)
        return x + self.last(h + (function.apply(h.detach(), other) - h).detach())

    found = attribute(Model(form), IDS, 1, "lrp_ah_ln")
    assert any(f'"{function.__name__}"' in one and "backward pass of its own" in one for one in found.warnings)
    same(found.scores, scores(straight_through, "lrp_ah_ln"))


def test_a_function_that_writes_runs_no_more_often_than_the_model() -> None:
    """What it writes to is the model's own: a second run would change it."""
    buffer = torch.zeros(3)

    def form(self: Any, x: Tensor) -> Tensor:
        return x + self.last(Writing.apply(self.first(x), buffer))

    model = Model(form)
    with torch.no_grad():
        model(IDS)
    once = buffer.clone()
    x = model.table(IDS).detach().requires_grad_()
    with Propagation(ruleset("lrp_conservative")):
        h = x.clone()
        for layer in model.layers:
            h = layer(h)
    assert torch.equal(buffer, 2 * once)


def test_random_numbers_of_the_model_are_left_as_they_are() -> None:
    """The proof's own random numbers are not the model's."""

    class Noisy(Closed):
        @staticmethod
        def forward(ctx: Any, x: Tensor, _: Any) -> Tensor:
            return x + 0.01 * torch.rand(x.shape, dtype=x.dtype)

    def form(self: Any, x: Tensor) -> Tensor:
        return F.gelu(Noisy.apply(self.first(x), None)) + torch.rand(x.shape, dtype=x.dtype)

    model = Model(form)
    torch.manual_seed(3)
    x = model.table(IDS).detach()
    with torch.no_grad():
        expected = model.layers[0](x)
    torch.manual_seed(3)
    with Propagation(ruleset("lrp_conservative")) as mode:
        found = model.layers[0](x.clone().requires_grad_())
    assert torch.equal(found.detach(), expected)
    assert any("Noisy" in one for one in mode.warnings)
