"""What relevance cannot pass rightly is right all the same, is refused in one sentence, or is noticed."""

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import relprop
from models import tiny
from relprop.attribution import attribute
from relprop.engine.passes import propagate
from relprop.engine.propagation import Propagation
from relprop.errors import InputError, RelpropError, UnruledOpError
from relprop.rulebook.rulesets import RULESETS, ruleset
from relprop.types import Entry, Ledger

IDS = torch.tensor([[4, 9, 2, 7, 7], [1, 3, 29, 0, 5]])
GRADIENT_CARRYING = [name for name, rules in RULESETS.items() if rules.carries == "gradient"]


class Block(nn.Module):
    """A feed-forward block: `write` is its body, a function of the block and of x."""

    def __init__(self, write: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.norm, self.first, self.last = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(2, 5, 8))
        self.register_buffer("scale", torch.full((8,), 0.5))
        self.write = write

    def forward(self, x: Tensor) -> Tensor:
        return self.write(self, x)


class Model(nn.Module):
    """Embeddings, two blocks, a head that reads the mean."""

    def __init__(self, write: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(30, 8)
        self.layers = nn.ModuleList(Block(write) for _ in range(2))
        self.head = nn.Linear(8, 3)
        self.double().eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.table

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def plain(self: Any, x: Tensor) -> Tensor:
    h = self.norm(x)
    return x + self.last(F.gelu(self.first(h)) * self.first(h).sigmoid())


def scores(write: Callable[[Any, Tensor], Tensor], method: str = "lrp_conservative", **options: Any) -> Tensor:
    return attribute(Model(write), IDS, 1, method, **options).scores


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


def noticed(write: Callable[[Any, Tensor], Tensor], rules: str = "lrp_conservative") -> list[str]:
    """What a pass with live embeddings notices; the outputs must be the model's own."""
    model = Model(write)
    with torch.no_grad():
        expected = model(IDS)
    x = model.table(IDS).detach().requires_grad_()
    with Propagation(ruleset(rules)) as mode:
        h = x.clone()
        for layer in model.layers:
            h = layer(h)
        out = model.head(h.mean(1))
    assert torch.equal(out.detach(), expected)
    return mode.warnings


# Values that leave the graph.


def _under_no_grad(self: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        gate = self.first(x).sigmoid()
    return x + self.last(x * gate)


def _through_data(self: Any, x: Tensor) -> Tensor:
    return x + self.last(x * self.first(x).tanh().data)


def _through_detach(self: Any, x: Tensor) -> Tensor:
    return x + self.last(x * self.first(x).tanh().detach())


def _gate_in_place_then_no_grad(self: Any, x: Tensor) -> Tensor:
    h = self.first(x)
    h.sigmoid_()
    with torch.no_grad():
        g = h * 2
    return x + self.last(x * g)


def _gate_in_place_then_data(self: Any, x: Tensor) -> Tensor:
    h = self.first(x)
    h[..., :4].sigmoid_()
    return x + self.last(x * (h.data + 1))


def _written_under_no_grad(self: Any, x: Tensor) -> Tensor:
    h = self.first(x)
    with torch.no_grad():
        h.mul_(2)
    return x + h


def _written_through_data(self: Any, x: Tensor) -> Tensor:
    h = self.first(x)
    h.data.mul_(2)
    return x + h


def _rounded_to_integers(self: Any, x: Tensor) -> Tensor:
    whole = (x * 10).round().to(torch.int8)
    return x + self.last(whole.to(x.dtype) / 10)


def _buffer_under_no_grad(self: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        self.cache[: len(x)] = self.first(x)
    return x + self.cache[: len(x)]


def _buffer_through_data(self: Any, x: Tensor) -> Tensor:
    self.cache.data[: len(x)] = self.first(x)
    return x + self.cache[: len(x)]


def _activated_under_no_grad(self: Any, x: Tensor) -> Tensor:
    h = self.first(x)
    with torch.no_grad():
        F.relu(h, inplace=True)
    return x + h


LEAVES: dict[str, tuple[Callable[[Any, Tensor], Tensor], str]] = {
    "no_grad": (_under_no_grad, "no_grad"),
    "data": (_through_data, '"data"'),
    "detach": (_through_detach, '"detach"'),
    "gate in place, then no_grad": (_gate_in_place_then_no_grad, ""),
    "gate in place, then data": (_gate_in_place_then_data, '"data"'),
    "written under no_grad": (_written_under_no_grad, "no_grad"),
    "written through data": (_written_through_data, "data"),
    "a buffer under no_grad": (_buffer_under_no_grad, "no_grad"),
    "a buffer through data": (_buffer_through_data, ".data"),
    "an activation under no_grad": (_activated_under_no_grad, "no_grad"),
    "a number": (lambda self, x: x + self.last(x * self.first(x).abs().max().item()), "plain number"),
    "a float": (lambda self, x: x * float(x.abs().mean()), "plain number"),
    "numpy": (lambda self, x: x + torch.from_numpy(self.first(x).detach().numpy()), "plain number"),
    "rounded to integers": (_rounded_to_integers, ""),
}


@pytest.mark.parametrize("rules", ["lrp_ah_ln", "attn_lrp", "lrp_conservative"])
@pytest.mark.parametrize("name", LEAVES)
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")  # torch's own
def test_values_that_leave_the_graph_are_noticed(name: str, rules: str) -> None:
    """With the operation, the module, and what the model did; the outputs stay its own."""
    write, word = LEAVES[name]
    found = noticed(write, rules)
    if name == "gate in place, then no_grad" and rules == "lrp_conservative":
        return  # a gate is a constant already
    assert found
    assert any(word in sentence and "Block" in sentence for sentence in found), found


def _harmless(self: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        blank = torch.zeros_like(x)
        wide = x.shape[-1] * x.new_ones(1).to(x.dtype)
        dead = torch.isinf(x).any() or bool((x > 1e9).any())
        order = x.sum(-1).argsort(-1)
    mask = x.detach() > 0
    best = x.data.argmax(-1)
    assert not dead
    h = x.masked_fill(mask, 0.0) + blank + x.gather(1, order[..., None].expand_as(x)) * 0
    scores = x @ x.mT
    weights = (scores - scores.detach().amax(-1, keepdim=True)).exp()
    weights = weights / weights.sum(-1, keepdim=True)
    return weights @ h / wide + (best * 0)[..., None]


@pytest.mark.parametrize("rules", ["lrp_ah_ln", "attn_lrp", "lrp_conservative"])
def test_harmless_reads_are_not(rules: str) -> None:
    assert noticed(_harmless, rules) == []


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("method", ["lrp", "transformer_attribution"])
def test_a_norm_by_hand_in_relevance_methods(method: str, variant: str) -> None:
    """Its gates are no lost gradients, whatever way relevance flows."""
    model, inputs = tiny("LlamaForSequenceClassification")
    assert attribute(model, {"input_ids": inputs["input_ids"]}, 1, method, variant=variant).scores.isfinite().all()


# Functions with a backward pass of their own.


class _Mean(torch.autograd.Function):
    """Torch calls do not show what it computes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return torch.from_numpy(x.detach().numpy() @ weight.detach().numpy().T)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad @ ctx.saved_tensors[0], None


def _foreign_first(self: Any, x: Tensor) -> Tensor:
    return x + _Mean.apply(x, self.first.weight)


def _foreign_later(self: Any, x: Tensor) -> Tensor:
    return x.clone() + _Mean.apply(x, self.first.weight)


def _foreign_as_torch(self: Any, x: Tensor) -> Tensor:
    return x + F.linear(x, self.first.weight)


@pytest.mark.parametrize("method", ["gradient_x_input", "lrp_ah_ln", "lrp_conservative", "attn_lrp"])
def test_a_foreign_function_gets_the_live_tensor(method: str) -> None:
    """After any torch call of the block, and as the very first call."""
    expected = scores(_foreign_as_torch, method)
    same(scores(_foreign_later, method), expected)
    same(scores(_foreign_first, method), expected)
    same(scores(_foreign_first, method, at="word_embeddings"), scores(_foreign_as_torch, method, at="word_embeddings"))


def test_a_foreign_function_is_noticed_and_booked() -> None:
    found = noticed(_foreign_later)
    assert any('"_Mean" in "Block" has a backward pass of its own, which no rule changes' in one for one in found), (
        found
    )
    ids = IDS[:1]
    (ledger,) = attribute(Model(_foreign_later), ids, 1, "lrp_conservative", ledger=True).ledger
    assert any("_Mean" in entry.op for entry in ledger.entries)


# A number that has lost its gradient.


class Rounding(Tensor):
    """A weight that is multiplied without autograd, as quantised ones are."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            with torch.no_grad():
                return F.linear(args[0], args[1].as_subclass(Tensor))
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("method", ["gradient_x_input", "lrp_ah_ln", "lrp_conservative", "attn_lrp"])
def test_a_result_that_lost_its_gradient_is_named(method: str) -> None:
    def write(self: Any, x: Tensor) -> Tensor:
        return x * 1 + F.linear(x, self.first.weight.detach().as_subclass(Rounding))

    with pytest.raises(UnruledOpError, match=r'"linear" in "layers\.0", an operation without a gradient'):
        scores(write, method)


class Multiplies(Tensor):
    """A weight that can do nothing else, as torchao's are."""

    @staticmethod
    def __new__(cls, plain: Tensor) -> Any:
        return Tensor._make_wrapper_subclass(cls, plain.shape, dtype=plain.dtype)

    def __init__(self, plain: Tensor) -> None:
        self.plain = plain

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.abs.default:
            raise NotImplementedError
        found = func(*(one.plain if isinstance(one, cls) else one for one in args), **(kwargs or {}))
        kept = func in (torch.ops.aten.detach.default, torch.ops.aten.t.default, torch.ops.aten.alias.default)
        return cls(found) if kept else found


def test_weights_that_only_multiply_are_named() -> None:
    def write(self: Any, x: Tensor) -> Tensor:
        return x * 1 + F.linear(x, Multiplies(self.first.weight.detach()))

    same(scores(write, "lrp_ah_ln"), scores(_foreign_as_torch, "lrp_ah_ln"))
    with pytest.raises(UnruledOpError, match="a layer with Multiplies weights"):
        scores(write, "lrp")


@pytest.mark.parametrize("name", ["_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math"])
def test_another_kind_of_attention_is_refused(name: str) -> None:
    """Not the plain gradient in place of the AH-rule."""

    def write(self: Any, x: Tensor) -> Tensor:
        h = x[:, None].float()
        return x + getattr(torch.ops.aten, name)(h, h, h)[0][:, 0].to(x.dtype)

    for method in ("lrp_ah", "lrp_conservative", "attn_lrp", "lrp"):
        with pytest.raises(UnruledOpError, match="attention"):
            scores(write, method)


def _normalised_after(self: Any, x: Tensor) -> Tensor:
    e = (x @ x.mT).exp()
    return x + (e @ self.first(x)) / e.sum(-1, keepdim=True)


def _normalised_before(self: Any, x: Tensor) -> Tensor:
    return x + (x @ x.mT).softmax(-1) @ self.first(x)


@pytest.mark.parametrize("method", ["gradient_x_input", "lrp_ah", "lrp_ah_ln", "attn_lrp", "lrp", "lrp_conservative"])
def test_attention_normalised_after_its_product(method: str) -> None:
    """Right where weights are constant anyway or nothing has a rule; else refused."""
    if method in ("gradient_x_input", "lrp_conservative"):
        same(scores(_normalised_after, method), scores(_normalised_before, method))
    else:
        with pytest.raises(UnruledOpError, match="normalised after the product"):
            scores(_normalised_after, method)


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.inner(x).sigmoid()


@pytest.mark.filterwarnings("ignore")
def test_a_scripted_module_is_noticed_or_refused() -> None:
    """The mode does not see its calls."""
    torch.manual_seed(0)
    scripted = torch.jit.script(Scripted().double().eval())
    leaf = torch.randn(2, 8, dtype=torch.float64, requires_grad=True)
    with Propagation(ruleset("lrp_conservative"), leaves=[leaf]) as mode:
        scripted(leaf.clone()) * 2
    assert any("scripted or compiled" in one for one in mode.warnings), mode.warnings
    with pytest.raises(UnruledOpError, match="scripted or compiled"), Propagation(ruleset("zplus"), leaves=[leaf]):
        scripted(leaf.clone()) * 2


# Shapes, buffers, checkpoints.


def _reshaped_in_place(self: Any, x: Tensor) -> Tensor:
    h = self.norm(x) * 1
    h.unsqueeze_(1)
    h.transpose_(1, 2)
    h.squeeze_(2)
    h.swapaxes_(1, 2)
    h.swapdims_(1, 2)
    g = self.first(h)
    return x + self.last(F.gelu(g) * g.sigmoid())


@pytest.mark.parametrize("rules", RULESETS)
def test_shapes_changed_in_place(rules: str) -> None:
    def twin(self: Any, x: Tensor) -> Tensor:
        g = self.first(self.norm(x))
        return x + self.last(F.gelu(g) * g.sigmoid())

    found, expected = (propagate(Model(one), {"input_ids": IDS}, 1, ruleset(rules)).arrived[0] for one in
                       (_reshaped_in_place, twin))  # fmt: skip
    same(found, expected)


@pytest.mark.parametrize("name", RULESETS)
def test_bigbird(name: str) -> None:
    """Block-sparse attention, which changes shapes in place: the outputs are the model's own, and relevance flows."""
    from transformers import BigBirdConfig, BigBirdForSequenceClassification

    torch.manual_seed(0)
    config = BigBirdConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        attention_type="block_sparse", block_size=4, num_random_blocks=1, max_position_embeddings=128,
    )  # fmt: skip
    model = BigBirdForSequenceClassification(config).double().eval()
    ids = torch.randint(5, 50, (1, 64), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(ids).logits
    flow = propagate(model, {"input_ids": ids}, 1, ruleset(name))
    assert model.config.attention_type == "block_sparse"
    torch.testing.assert_close(flow.chosen.value, expected[:, 1])
    assert flow.arrived[0].isfinite().all()
    assert flow.arrived[0].any()


def _writes_its_input(self: Any, x: Tensor) -> Tensor:
    x += self.first(self.norm(x))
    x.mul_(0.5)
    h = self.last(F.gelu(x))
    x += h
    return x * x.tanh()


def _writes_a_view_of_its_input(self: Any, x: Tensor) -> Tensor:
    x[:, 1:] += self.first(x[:, :-1])
    return x + self.last(F.gelu(x))


def _writes_a_buffer(self: Any, x: Tensor) -> Tensor:
    self.cache[: len(x)] = self.first(x) * self.scale
    h = self.cache[: len(x)] * 1
    return x + self.last(F.gelu(h))


@pytest.mark.parametrize("name", RULESETS)
@pytest.mark.parametrize("write", [_writes_its_input, _writes_a_view_of_its_input, _writes_a_buffer, plain])
def test_checkpointing_where_a_block_writes_to_its_input(write: Callable[[Any, Tensor], Tensor], name: str) -> None:
    model = Model(write)
    found = [propagate(model, {"input_ids": IDS}, 1, ruleset(name), checkpoint=one).arrived[0] for one in (False, True)]
    assert found[0].any()
    same(found[1], found[0])


@pytest.mark.parametrize("name", RULESETS)
def test_a_buffer_written_to_keeps_its_values_and_no_graph(name: str) -> None:
    model, twin = Model(_writes_a_buffer), Model(_writes_a_buffer)
    with torch.no_grad():
        twin(IDS)
    found = propagate(model, {"input_ids": IDS}, 1, ruleset(name)).arrived[0]
    for one, other in zip(model.buffers(), twin.buffers(), strict=True):
        assert not one.requires_grad
        assert one.grad_fn is None
        torch.testing.assert_close(one, other)

    def out_of_place(self: Any, x: Tensor) -> Tensor:
        return x + self.last(F.gelu(self.first(x) * self.scale))

    same(found, propagate(Model(out_of_place), {"input_ids": IDS}, 1, ruleset(name)).arrived[0])


# The model's own tensors that require grad.


@pytest.mark.parametrize("method", ["gradient_x_input", "lrp_conservative", "attn_lrp", "lrp"])
def test_a_foreign_leaf_is_a_constant(method: str) -> None:
    """A buffer or attribute that requires grad, or what was made of one before, takes no share."""

    def write(self: Any, x: Tensor) -> Tensor:
        return x + self.last(F.gelu(self.first(x)) * self.scale * self.plain * self.derived)

    def model(requires_grad: bool) -> Model:
        made = Model(write)
        for layer in made.layers:
            layer.scale.requires_grad_(requires_grad)
            layer.plain = torch.full((8,), 0.7, dtype=torch.float64, requires_grad=requires_grad)
            layer.derived = layer.plain * 2
        return made

    same(*(attribute(model(one), IDS, 1, method).scores for one in (True, False)))


@pytest.mark.parametrize("method", ["gradient_x_input", "lrp_conservative", "lrp"])
def test_enable_input_require_grads(method: str) -> None:
    model, inputs = tiny("BertForSequenceClassification")
    expected = attribute(model, inputs, 1, method).scores
    model.enable_input_require_grads()
    same(attribute(model, inputs, 1, method).scores, expected)
    model.disable_input_require_grads()


# Contexts.


def test_contexts_do_not_nest() -> None:
    model, inputs = tiny("BertForSequenceClassification")
    with relprop.rules("lrp_ah"):
        with pytest.raises(InputError, match=r"context is open already"):
            relprop.rules("lrp_ln").__enter__()
        with pytest.raises(RelpropError, match=r"context is open already"):
            attribute(model, inputs, 1, "lrp_ah_ln")
    assert attribute(model, inputs, 1, "lrp_ah_ln").scores.any()


@pytest.mark.parametrize("name", RULESETS)
def test_a_backward_pass_inside_the_context(name: str) -> None:
    """The rules are for the forward pass: what the backward pass computes is no part of the model."""
    model = Model(plain)
    found = []
    for inside in (False, True):
        x = model.table(IDS).detach().requires_grad_()
        with relprop.rules(name):
            h = model.layers[1](model.layers[0](x))
            y = F.conv1d(h.mT, model.head.weight[..., None]).mean(-1)[:, 1].sum()
            if inside:
                y.backward()
        if not inside:
            y.backward()
        found.append(x.grad)
    assert torch.equal(*found)


# Autocast and half precision.


@pytest.mark.parametrize("method", ["gradient_x_input", "lrp_ah_ln", "lrp_conservative", "attn_lrp", "lrp"])
def test_autocast(method: str) -> None:
    """Under autocast the scores are float32 and near those without it."""
    model, inputs = tiny("BertForSequenceClassification", torch.float32)
    expected = attribute(model, inputs, 1, method).scores
    with torch.autocast("cpu", torch.bfloat16):
        found = attribute(model, inputs, 1, method).scores
    assert found.dtype == torch.float32
    assert (found - expected).abs().max() < 0.2 * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_relevance_is_noticed(dtype: torch.dtype) -> None:
    x = torch.randn(2, 8).to(dtype).requires_grad_()
    layer = nn.Linear(8, 3).to(dtype)
    with Propagation(ruleset("zplus")) as mode:
        layer(x)
    assert any("load the model in float32" in sentence for sentence in mode.warnings)
    with Propagation(ruleset("lrp_conservative")) as mode:
        layer(x)
    assert mode.warnings == []


# The ledger.


class Swings(nn.Module):
    """One block, called twice: what its first call loses the second one gains."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding.from_pretrained(torch.tensor([[2.0, 3.0]]).double())
        self.block = nn.Module()

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        return (x.square().sum(1) - (x + 1).square().sum(1)) * torch.tensor([1.0, 1.0]).double()


def test_the_gap_counts_the_gains_and_losses_of_each_call() -> None:
    """Under the plain gradient a square returns twice what it got: once here, once with the other sign."""
    ids = torch.zeros(1, 1, dtype=torch.long)
    (ledger,) = attribute(Swings(), {"input_ids": ids}, 0, "lrp_ah", at="word_embeddings", ledger=True).ledger
    lost = [entry.value for entry in ledger.entries if entry.op == "square"]
    assert sorted(lost) == pytest.approx([-4.0, 9.0])
    assert ledger.gap >= 13.0 / max(abs(ledger.value), abs(ledger.inputs), abs(ledger.constants)) - 1e-9
    assert str(ledger).count("square") == 1


def test_the_ledger_lists_each_part() -> None:
    entries = (Entry("", "input_ids", "input", 1.0), Entry("", "pixel_values", "input", 2.0))
    text = str(Ledger(3.0, entries))
    assert "input_ids" in text
    assert "pixel_values" in text
    assert "pixel_values" not in str(Ledger(2.0, entries[1:]))


@pytest.mark.parametrize("rules", RULESETS)
def test_notes_hold_no_tensor_for_ever(rules: str) -> None:
    """What is noted on tensors must not tie them in a circle: their memory goes with them, not with the collector."""
    leaf = torch.randn(2, 8, dtype=torch.float64, requires_grad=True)
    gc.collect()
    gc.disable()
    with Propagation(ruleset(rules)):
        x = F.dropout(leaf.clone(), 0.5, training=False).contiguous().to(torch.float64)
        h = F.gelu(x - x.mean(-1, keepdim=True)) * torch.sigmoid(x)
        e = x.clone().exp_()
        if rules in ("lrp_softmax", "gim"):  # which refuse a softmax that hides its logits
            e = x.softmax(-1)
        else:
            e /= e.sum(-1, keepdim=True)
        y = e * h
    kept = [ref(one) for one in (x, h, e, y)]
    del x, h, e, y
    gc.enable()
    assert [one() for one in kept] == [None] * 4
