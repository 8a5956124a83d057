"""Quantised and half-precision models: their own outputs, explanations near the float model's, no silent gaps."""

import copy
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models import tiny
from relprop import Explainer
from relprop.attribution import attribute
from relprop.engine.model_call import call
from relprop.engine.propagation import Propagation
from relprop.engine.sources import Sources
from relprop.errors import UnruledOpError
from relprop.loading import load
from relprop.registry import METHODS
from relprop.rulebook.rulesets import RULESETS
from tiny_models import logits_of

TEXTS = [
    "a gorgeous, witty, seductive movie.",
    "the plot is thin and the jokes fall flat, but the cast is charming.",
    "it never quite works, and i was bored by the second hour.",
    "one of the best films of the year!",
]
DTYPES = {"int8": torch.qint8, "float16": torch.float16}
# Of all texts together: on a single one, gradient_x_input and lrp_ah can be far off. `lrp` is the most sensitive.
LEAST = {record.name: 0.9 if record.name == "lrp" else 0.95 for record in METHODS if record.name != "shapley"}


def quantised(model: nn.Module, dtype: torch.dtype) -> Any:
    """Its linear layers by torch's dynamic quantisation, which torch itself calls deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {nn.Linear}, dtype=dtype)


@cache
def explainers(kind: str) -> tuple[Explainer, Explainer]:
    """Of the embedded sentiment model, and of the same in fewer bits."""
    model, tokenizer = load("sentiment")
    small = quantised(model, DTYPES[kind]) if kind in DTYPES else copy.deepcopy(model).to(getattr(torch, kind))
    return Explainer(model, tokenizer), Explainer(small, tokenizer)


# Dynamic quantisation.


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "LlamaForSequenceClassification"])
def test_outputs_are_the_quantised_models_own(architecture: str, kind: str) -> None:
    """Under every rule set the logits are those of the quantised model, a hundred times nearer than the float ones."""
    plain, inputs = tiny(architecture, torch.float32)
    model = quantised(plain, DTYPES[kind])
    with torch.no_grad():
        expected = logits_of(call(model, inputs))
        apart = (logits_of(call(plain, inputs)) - expected).abs().max()
    for rules in RULESETS.values():
        sources = Sources(inputs)
        with Propagation(rules, [sources]):
            found = logits_of(call(model, sources.live_inputs(inputs)))
        assert sources.placed
        assert (found - expected).abs().max() < 0.01 * apart, rules


@pytest.mark.sliced
@pytest.mark.parametrize("method", LEAST)
@pytest.mark.parametrize("kind", DTYPES)
def test_explanations_are_those_of_the_float_model(kind: str, method: str) -> None:
    """Every method on the embedded model: scores of all texts together, so that size and sign count too."""
    size = 1 if method == "decompx" else 32  # of one example at a time, and int8 rounds a batch together
    found = [one(TEXTS, target="positive", method=method, batch_size=size) for one in explainers(kind)]
    plain, small = (np.concatenate([one.scores for one in each]) for each in found)
    assert method == "random" or (plain != small).any()
    assert np.corrcoef(plain, small)[0, 1] > LEAST[method]


@pytest.mark.parametrize("kind", DTYPES)
def test_the_ledger_books_the_rounding(kind: str) -> None:
    """What rounding adds is an entry of its own at every layer, and with it the books close."""
    small = explainers(kind)[1]
    ledger = small(TEXTS[1], method="lrp_conservative", ledger=True).ledger
    rounded = [entry for entry in ledger.entries if entry.op == "rounding"]
    layers = {name for name, module in small.model.named_modules() if hasattr(module, "_packed_params")}
    assert {entry.kind for entry in rounded} == {"constant"}
    assert {entry.module for entry in rounded} < layers  # queries and keys get nothing
    unexplained = sum(abs(entry.value) for entry in ledger.entries if entry.kind == "unexplained")
    assert unexplained < 1e-3 * max(abs(entry.value) for entry in ledger.entries)


class Scorer(nn.Module):
    """Embeddings, one linear layer, a sum: so little that its ledger can be written down."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(20, 8)
        self.score = nn.Linear(8, 3)

    def get_input_embeddings(self) -> nn.Module:
        return self.table

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.score(self.table(input_ids).sum(1))


def test_the_share_of_rounding_is_what_it_adds() -> None:
    model, ids = quantised(Scorer(), torch.qint8), torch.tensor([[3, 7, 11]])
    x = model.table(ids).sum(1)
    weight = model.score.weight().dequantize()
    (ledger,) = attribute(model, {"input_ids": ids}, 1, "lrp_ah_ln", at="word_embeddings", ledger=True).ledger
    entries = {(entry.kind, entry.op): entry.value for entry in ledger.entries}
    value = model(ids)[0, 1]
    torch.testing.assert_close(entries["input", "inputs"], (x[0] @ weight[1]).item())
    torch.testing.assert_close(entries["bias", "linear"], model.score.bias()[1].item())
    expected = (value - x[0] @ weight[1] - model.score.bias()[1]).item()
    assert expected != 0
    torch.testing.assert_close(entries["constant", "rounding"], expected, rtol=1e-3, atol=1e-7)


# Half precision.


@pytest.mark.parametrize(("kind", "least"), [("bfloat16", 0.99), ("float16", 0.9999)])
@pytest.mark.parametrize("method", ["lrp_ah_ln", "lrp_conservative"])
def test_half_precision_on_the_embedded_model(method: str, kind: str, least: float) -> None:
    size = 1 if method == "decompx" else 32  # of one example at a time, and int8 rounds a batch together
    found = [one(TEXTS, target="positive", method=method, batch_size=size) for one in explainers(kind)]
    for plain, small in zip(*found, strict=True):
        assert plain.scores != small.scores
        assert np.corrcoef(plain.scores, small.scores)[0, 1] > least


@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 0.1), (torch.float16, 0.01)], ids=["bf16", "f16"])
@pytest.mark.parametrize("checkpoint", [False, True], ids=["", "checkpoint"])
def test_half_precision_on_a_tiny_llama(dtype: torch.dtype, most: float, checkpoint: bool) -> None:
    """The largest error of lrp_ah_ln as a share of the largest score; scores come in float32."""
    model, inputs = tiny("LlamaForCausalLM", torch.float32)
    plain = attribute(model, inputs, 3, "lrp_ah_ln", checkpoint=checkpoint).scores
    small = attribute(model.to(dtype), inputs, 3, "lrp_ah_ln", checkpoint=checkpoint).scores
    assert small.dtype == torch.float32
    assert 0 < (small - plain).abs().max() < most * plain.abs().max()


# Operations without a gradient.


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """Three linear layers as other quantisers register theirs: by a kernel alone, as a custom op, with a gradient."""

    def linear(x: Tensor, weight: Tensor) -> Tensor:  # as a kernel in C++: autograd sees nothing of it
        return torch.from_numpy(x.detach().numpy() @ weight.numpy().T)

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad @ ctx.saved_tensors[0], None

    kernel = torch.library.Library("relprop_test", "DEF")
    kernel.define("kernel(Tensor x, Tensor weight) -> Tensor")
    kernel.impl("kernel", linear, "CPU")
    for name in ("custom", "differentiable"):
        made = torch.library.custom_op(f"relprop_test::{name}", linear, mutates_args=())
        if name == "differentiable":
            made.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1]))
    yield torch.ops.relprop_test
    kernel._destroy()


class Packed(nn.Module):
    """A linear layer by an operation from elsewhere."""

    def __init__(self, function: Any, plain: nn.Linear) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("packed", plain.weight.detach().clone())
        self.register_buffer("shift", plain.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.packed) + self.shift


def packed(function: Any, *places: str) -> tuple[Any, Any, dict[str, Tensor]]:
    """A tiny BERT, and the same with the named layers of block 0 replaced."""
    model, inputs = tiny("BertForSequenceClassification", torch.float32)
    other = copy.deepcopy(model)
    for place in places:
        owner, _, name = place.rpartition(".")
        parent = other.bert.encoder.layer[0].get_submodule(owner)
        setattr(parent, name, Packed(function, getattr(parent, name)))
    return model, other, inputs


@pytest.mark.parametrize("method", ["gradient_x_input", "lrp_ah_ln", "lrp_conservative", "attn_lrp", "lrp", "gae"])
@pytest.mark.parametrize("name", ["kernel", "custom"])
def test_an_operation_without_a_gradient_is_named(library: Any, name: str, method: str) -> None:
    """Not scores that lack a part: an error with the operation and the module."""
    _, model, inputs = packed(getattr(library, name), "output.dense")
    with pytest.raises(UnruledOpError, match=rf'"relprop_test::{name}" in "bert.encoder.layer.0.output.dense"'):
        attribute(model, inputs, 1, method)


@pytest.mark.parametrize("method", ["occlusion", "attention_last", "rollout"])
def test_methods_without_a_gradient_take_it(library: Any, method: str) -> None:
    plain, model, inputs = packed(library.kernel, "output.dense")
    torch.testing.assert_close(attribute(model, inputs, 1, method).scores, attribute(plain, inputs, 1, method).scores)


def test_it_does_no_harm_where_no_relevance_goes(library: Any) -> None:
    """Under the AH-rule nothing flows back to queries and keys."""
    plain, model, inputs = packed(library.kernel, "attention.self.query", "attention.self.key")
    found = attribute(model, inputs, 1, "lrp_ah_ln").scores
    torch.testing.assert_close(found, attribute(plain, inputs, 1, "lrp_ah_ln").scores)
    with pytest.raises(UnruledOpError, match="relprop_test::kernel"):
        attribute(model, inputs, 1, "gradient_x_input")


@pytest.mark.parametrize("method", ["gradient_x_input", "lrp_ah_ln", "lrp_conservative"])
def test_an_operation_with_a_gradient_is_a_layer_like_others(library: Any, method: str) -> None:
    plain, model, inputs = packed(library.differentiable, "output.dense")
    found = attribute(model, inputs, 1, method).scores
    torch.testing.assert_close(found, attribute(plain, inputs, 1, method).scores, rtol=1e-4, atol=1e-6)


class _Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return torch.from_numpy(x.detach().numpy() @ weight.detach().numpy().T)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad @ ctx.saved_tensors[0], None


def test_relevance_is_not_taken_for_a_gradient() -> None:
    """A function with its own backward pass serves rules that carry the gradient; others refuse it by name."""
    plain, model, inputs = packed(_Own.apply, "output.dense")
    found = attribute(model, inputs, 1, "lrp_ah_ln").scores
    torch.testing.assert_close(found, attribute(plain, inputs, 1, "lrp_ah_ln").scores, rtol=1e-4, atol=1e-6)
    for method in ("lrp", "transformer_attribution"):
        with pytest.raises(UnruledOpError, match='relevance reached "_Own"'):
            attribute(model, inputs, 1, method)


class _Rounded(Tensor):
    """Weights that round their inputs too, as a subclass of tensors: what they give has no gradient."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch.no_grad():
            made = super().__torch_function__(func, types, args, kwargs or {})
            return made.as_subclass(Tensor) if isinstance(made, Tensor) else made


@pytest.mark.parametrize("method", ["occlusion", "lrp_ah_ln"])
def test_without_any_gradient_no_other_method_is_named(method: str) -> None:
    """Units are found by gradients: where a layer has none, no method helps."""
    _, model, inputs = packed(lambda x, weight: F.linear(x, weight.as_subclass(_Rounded)), "attention.self.query")
    with pytest.raises(UnruledOpError, match=r'"linear" in .*explain the model as it was before quantisation'):
        attribute(model, inputs, 1, method)
