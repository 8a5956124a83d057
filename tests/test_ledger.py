"""The books: what the output is made of, to the last bit, and what a method that does not conserve loses where."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from models import tiny
from relprop.attribution import attribute
from relprop.engine.propagation import Propagation
from relprop.registry import METHODS
from relprop.rulebook.rulesets import ruleset
from relprop.types import Entry, Ledger

# Gap allowed: rounding in float64, or in float32 where the model itself computes its norms or gates in float32.
ARCHITECTURES = {
    "BertForSequenceClassification": 1e-10,
    "AlbertForSequenceClassification": 1e-10,
    "DebertaV2ForSequenceClassification": 1e-10,
    "XLNetForSequenceClassification": 1e-10,
    "FunnelForSequenceClassification": 1e-10,
    "FNetForSequenceClassification": 1e-10,
    "GPT2ForSequenceClassification": 1e-10,
    "T5ForSequenceClassification": 1e-10,
    "BartForSequenceClassification": 1e-10,
    "BertForQuestionAnswering": 1e-10,
    "GPTNeoXForCausalLM": 1e-10,
    "RwkvForCausalLM": 1e-10,
    "ViTForImageClassification": 1e-10,
    "SwinForImageClassification": 1e-10,
    "ConvNextForImageClassification": 1e-10,
    "ResNetForImageClassification": 1e-10,
    "LlamaForSequenceClassification": 2e-6,
    "Qwen2MoeForSequenceClassification": 2e-6,
    "MixtralForCausalLM": 2e-6,
    "MambaForCausalLM": 2e-6,
    "Mamba2ForCausalLM": 2e-6,
}
LEDGER_METHODS = [record.name for record in METHODS if "ledger" in record.options]


def approx(value: float) -> Any:
    return pytest.approx(value, rel=1e-10, abs=1e-12)


def entries(ledger: Ledger, **wanted: str) -> list[Entry]:
    return [e for e in ledger.entries if all(getattr(e, name) == value for name, value in wanted.items())]


def amount(ledger: Ledger, **wanted: str) -> float:
    return sum(entry.value for entry in entries(ledger, **wanted))


@pytest.mark.sliced("architecture", "at")
@pytest.mark.parametrize("method", ["lrp_conservative", "lrp_carried", "lrp_softmax", "lrp_gamma"])
@pytest.mark.parametrize("at", ["default", "word_embeddings"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_books_close(architecture: str, at: str, method: str) -> None:
    """All of the output is traced, example by example, wherever the scores are read."""
    model, inputs = tiny(architecture)
    if at != "default" and "input_ids" not in inputs:
        at = "input"
    found = attribute(model, inputs, None, method, ledger=True, at=None if at == "default" else at)
    assert found.ledger is not None
    assert len(found.ledger) == len(found.value) == 2
    for i, ledger in enumerate(found.ledger):
        in_float32 = method == "lrp_softmax" and architecture.startswith("Funnel")  # its softmax is
        assert ledger.gap < (1e-7 if in_float32 else ARCHITECTURES[architecture]), ledger
        assert ledger.value == approx(found.value[i].item())
        assert ledger.inputs == pytest.approx(found.scores[i].sum().item(), rel=1e-9)
        assert abs(ledger.inputs) > 1e-6, "nothing reached the input"


@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "GPT2ForSequenceClassification",
                                          "ViTForImageClassification"])  # fmt: skip
@pytest.mark.parametrize("method", LEDGER_METHODS)
def test_every_method_keeps_full_books(method: str, architecture: str) -> None:
    """What a method loses has an entry: the parts sum to the value, and nothing is untraced."""
    model, inputs = tiny(architecture)
    plain = attribute(model, inputs, 1, method)
    found = attribute(model, inputs, 1, method, ledger=True)
    assert torch.allclose(found.scores, plain.scores, rtol=1e-10, atol=1e-12)
    for i, ledger in enumerate(found.ledger or ()):
        assert ledger.inputs + ledger.biases + ledger.constants + ledger.unexplained == approx(ledger.value)
        assert ledger.inputs == approx(plain.scores[i].sum().item())
        assert ledger.value == approx(plain.value[i].item())
        assert abs(amount(ledger, op="not traced")) < 1e-10


@pytest.mark.parametrize("method", LEDGER_METHODS)
def test_checkpointing_keeps_the_books(method: str) -> None:
    """Blocks that run twice are booked once."""
    model, inputs = tiny("BertForSequenceClassification")
    books = [attribute(model, inputs, 1, method, ledger=True, checkpoint=flag).ledger for flag in (False, True)]
    for plain, again in zip(*books, strict=True):
        assert len(plain.entries) == len(again.entries)
        for one, other in zip(plain.entries, again.entries, strict=True):
            assert (one.module, one.op, one.kind) == (other.module, other.op, other.kind)
            assert one.value == approx(other.value)


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


@pytest.mark.parametrize("method", [one for one in LEDGER_METHODS if one != "lrp_gamma"])  # which shares otherwise
def test_biases_are_booked_to_their_modules(method: str) -> None:
    """y = W2 (W1 x + b1) + b2: each term in its own account, exactly."""
    model, x = TwoLayers(), torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    w1, b1, w2, b2 = (p.detach() for p in model.parameters())
    found = attribute(model, x, [0, 2], method, ledger=True)
    for i, (target, ledger) in enumerate(zip([0, 2], found.ledger or (), strict=True)):
        assert amount(ledger, module="first", op="linear", kind="bias") == approx((w2[target] @ b1).item())
        assert amount(ledger, module="second", op="linear", kind="bias") == approx(b2[target].item())
        assert ledger.inputs == approx((w2[target] @ w1 @ x[i]).item())
        assert ledger.constants == 0
        assert ledger.gap < 1e-12


def test_biases_of_a_transformer_against_their_gradients() -> None:
    """A bias takes b * dy/db under the rules: made live one at a time, each linear layer's account is right."""
    model, inputs = tiny("BertForSequenceClassification")
    inputs = {name: value[:1] for name, value in inputs.items()}
    (ledger,) = attribute(model, inputs, 1, "lrp_ah_ln", ledger=True).ledger or ()
    checked = 0
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear) or ".query" in name or ".key" in name:
            continue
        bias = module.bias.detach().clone().requires_grad_()
        with Propagation(ruleset("lrp_ah_ln")):
            logits = functional_call(model, {f"{name}.bias": bias}, kwargs=inputs).logits
        (grad,) = torch.autograd.grad(logits[0, 1], bias)
        assert amount(ledger, module=name, kind="bias") == approx((bias * grad).sum().item()), name
        checked += 1
    assert checked == 2 * 4 + 2


class Positioned(nn.Module):
    """Words and positions, added, and a linear head: nothing else."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(10, 4), nn.Embedding(6, 4)
        self.head = nn.Linear(4, 2, bias=False)
        self.double()

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        return self.head(x.sum(1))


def test_positions_are_constants() -> None:
    """At the word embeddings, what the positions give is booked as a constant, exactly."""
    model, ids = Positioned(), torch.tensor([[1, 2, 3]])
    found = attribute(model, {"input_ids": ids}, 1, "lrp_conservative", ledger=True, at="word_embeddings")
    (ledger,) = found.ledger or ()
    head = model.head.weight[1].detach()
    assert ledger.constants == approx((model.places.weight[:3].detach() @ head).sum().item())
    assert torch.allclose(found.scores[0], model.words(ids[0]).detach() @ head, rtol=1e-12)
    assert ledger.gap < 1e-12


def test_positions_of_bert() -> None:
    """Constants of the embedding module at the word embeddings; none where the scores are read after it."""
    model, inputs = tiny("BertForSequenceClassification")
    for at, booked in (("word_embeddings", True), ("block", False)):
        (ledger, _) = attribute(model, inputs, 1, "lrp_conservative", ledger=True, at=at).ledger or ()
        assert any(e.value for e in entries(ledger, module="bert.embeddings", kind="constant")) == booked


def test_a_learned_vector_is_booked_by_its_name() -> None:
    """x + parameter: the account has the parameter's name, and is a bias if that says so."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own_bias = nn.Parameter(torch.tensor([1.0, 2.0]).double())
            self.scale_token = nn.Parameter(torch.tensor([5.0, 7.0]).double())

        def forward(self, x: Tensor) -> Tensor:
            return x + self.own_bias + self.scale_token

    (ledger,) = attribute(Model(), torch.ones(1, 2).double(), 1, "lrp_conservative", ledger=True).ledger or ()
    assert amount(ledger, op="own_bias", kind="bias") == 2.0
    assert amount(ledger, op="scale_token", kind="constant") == 7.0
    assert ledger.inputs == 1.0


class OneNorm(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.LayerNorm(6, eps=eps, bias=False)
        self.head = nn.Linear(6, 2, bias=False)
        nn.init.normal_(self.norm.weight)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x))


@pytest.mark.parametrize("eps", [1e-5, 0.1, 3.0])
def test_gradients_collapse_in_a_layer_norm(eps: float) -> None:
    """Prop. 2 of [Ali22]: GI keeps eps/(eps + Var) of what flows into a LayerNorm, and the books name the loss."""
    x = torch.randn(1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model = OneNorm(eps)
    (ledger,) = attribute(model, x, 1, "gradient_x_input", ledger=True).ledger or ()
    kept = eps / (eps + x.var(unbiased=False).item())
    assert ledger.inputs == approx(kept * ledger.value)
    assert amount(ledger, module="norm", op="layer_norm", kind="unexplained") == approx((1 - kept) * ledger.value)
    (closed,) = attribute(model, x, 1, "lrp_ln", ledger=True).ledger or ()
    assert closed.inputs == approx(closed.value)


LOSSES = {
    "gradient_x_input": {"layer_norm", "scaled_dot_product_attention", "gelu", "tanh"},
    "lrp_ah": {"layer_norm", "gelu", "tanh"},
    "lrp_ln": {"scaled_dot_product_attention", "gelu", "tanh"},
    "lrp_ah_ln": {"gelu", "tanh"},
    "lrp_conservative": set(),
    "lrp_carried": set(),
    "lrp_softmax": set(),
    "lrp_gamma": set(),
    "gim": {"scaled_dot_product_attention", "gelu", "tanh"},
}


@pytest.mark.parametrize("method", LOSSES)
def test_where_each_method_loses(method: str) -> None:
    """GI loses in norms, attention and activations; each rule of [Ali22] closes its own account."""
    model, inputs = tiny("BertForSequenceClassification")
    for ledger in attribute(model, inputs, 1, method, ledger=True).ledger or ():
        moved = max(abs(ledger.value), abs(ledger.inputs))
        lossy = {e.op for e in ledger.entries if e.kind == "unexplained" and abs(e.value) > 1e-9 * moved}
        assert lossy == LOSSES[method]


def test_a_norm_that_carries_its_bias_leaves_it_nothing() -> None:
    model, inputs = tiny("BertForSequenceClassification")
    for ledger in attribute(model, inputs, 1, "lrp_conservative", ledger=True).ledger or ():
        assert entries(ledger, op="layer_norm", kind="bias")
    for ledger in attribute(model, inputs, 1, "lrp_carried", ledger=True).ledger or ():
        assert not entries(ledger, op="layer_norm", kind="bias")
        assert entries(ledger, op="linear", kind="bias")


class Square(torch.autograd.Function):
    """A square that torch calls do not show, with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() ** 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class Opaque(TwoLayers):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(Square.apply(self.first(x)))


def test_an_opaque_function_leaves_the_books_open() -> None:
    """What an autograd.Function computes without torch cannot be traced: the gap is named, and is all that it made."""
    x = torch.randn(1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model = Opaque()
    (ledger,) = attribute(model, x, 1, "lrp_conservative", ledger=True).ledger or ()
    (untraced,) = [e for e in ledger.entries if e.op.startswith("not traced")]
    out = model.second.weight[1].detach() @ model.first(x)[0].detach().square()
    assert not ledger.closes()
    assert untraced.kind == "unexplained"
    assert untraced.value == approx(-out.item())  # x^2 times 2x/x^2: twice as much flows in
    assert "Square" in untraced.op


class Writing(nn.Module):
    """Writes to its tensors wherever it can."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.act = nn.Linear(6, 6), nn.Linear(6, 3), nn.ReLU(inplace=True)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        kept = h
        h *= 2
        h += x
        self.act(h)
        h[:, 0] = h[:, 1] * 3
        h[:, 2:4] += kept[:, :2]
        out = torch.zeros_like(h)
        out.index_add_(0, torch.arange(len(h)), h)
        out.view(-1)[0] += 1.5
        return self.second(out)


def test_books_close_over_writes() -> None:
    """In-place operations are booked with the values they had when they ran, not with what was written later."""
    x = torch.randn(1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = attribute(Writing(), x, 1, "lrp_conservative", ledger=True)
    (ledger,) = found.ledger or ()
    assert found.value.item() == approx(Writing()(x)[0, 1].item())
    assert ledger.gap < 1e-10, ledger
    assert amount(ledger, module="second", kind="bias") == approx(Writing().second.bias[1].item())


def test_targets_of_a_batch_are_booked_one_by_one() -> None:
    """A list, a pair or a function as target: each example's books are those of the example alone."""
    model, inputs = tiny("BertForSequenceClassification")
    for target in ([0, 2], (1, 2), lambda out: out.logits[:, 0] * 2, torch.tensor([2, 1])):
        found = attribute(model, inputs, target, "lrp_conservative", ledger=True)
        assert torch.allclose(found.value, attribute(model, inputs, target, "lrp_conservative").value)
        for value, ledger in zip(found.value, found.ledger or (), strict=True):
            assert ledger.value == approx(value.item())
            assert ledger.gap < 1e-10


def test_gains_and_losses_do_not_cancel() -> None:
    """Books with +1 and -1 unexplained are open, not closed."""
    ledger = Ledger(
        2.0, (Entry("", "inputs", "input", 2.0), *[Entry("m", "op", "unexplained", v) for v in (1.0, -1.0)])
    )
    assert ledger.unexplained == 0
    assert ledger.gap == 1.0
    assert not ledger.closes()
