"""DecompX: the paper's formulas by hand on BERT, and what holds for every model."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from models import named, tiny
from relprop.attribution import attribute
from relprop.errors import InputError
from relprop.methods.decomposition import bias_shares

ARCHITECTURES = ["BertForSequenceClassification", "AlbertForSequenceClassification", "GPT2ForSequenceClassification",
                 "LlamaForSequenceClassification", "T5ForSequenceClassification"]  # fmt: skip


def split(x: Tensor, bias: Tensor) -> Tensor:
    """Eq. 5. x: [units, rows, features]."""
    size = (x @ bias).abs()
    return x + (size / size.sum(0))[..., None] * bias


def layer(x: Tensor, linear: Any) -> Tensor:
    return split(x @ linear.weight.T, linear.bias)


def norm(x: Tensor, own: Any) -> Tensor:
    whole = x.sum(0)
    std = (whole.var(-1, correction=0, keepdim=True) + own.eps).sqrt()
    return split((x - x.mean(-1, keepdim=True)) / std * own.weight, own.bias)


def activated(x: Tensor, function: Any) -> Tensor:
    """Eq. 10: f(z) = z * theta."""
    return x * (function(x.sum(0)) / x.sum(0))


@torch.no_grad()
def by_hand(model: Any, ids: Tensor, target: int) -> Tensor:
    """Each token's vector, through one text."""
    start = model.bert.embeddings(input_ids=ids)[0]
    x = torch.eye(len(start), dtype=start.dtype)[..., None] * start
    for block in model.bert.encoder.layer:
        own, output = block.attention.self, block.attention.output
        q, k = (
            one(x.sum(0)).unflatten(-1, (own.num_attention_heads, -1)).transpose(0, 1) for one in (own.query, own.key)
        )
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        values = layer(x, own.value).unflatten(-1, (own.num_attention_heads, -1))
        mixed = torch.einsum("hij,ujhd->uihd", weights, values).flatten(2)
        x = norm(layer(mixed, output.dense) + x, output.LayerNorm)
        inner = activated(layer(x, block.intermediate.dense), F.gelu)
        x = norm(layer(inner, block.output.dense) + x, block.output.LayerNorm)
    pooled = activated(layer(x[:, :1], model.bert.pooler.dense), torch.tanh)
    return layer(pooled, model.classifier)[:, 0, target]


def test_bert_by_hand() -> None:
    model, inputs = tiny("BertForSequenceClassification")
    for bias in (one for name, one in model.named_parameters() if name.endswith("bias")):
        torch.nn.init.normal_(bias, generator=torch.Generator().manual_seed(bias.numel()))
    found = attribute(model, inputs, 1, "decompx").scores
    for ids, own in zip(inputs["input_ids"], found, strict=True):
        torch.testing.assert_close(own, by_hand(model, ids[None], 1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=named)
def test_sums_to_the_value_and_is_lrp_without_biases(architecture: str) -> None:
    model, inputs = tiny(architecture)
    found, without = attribute(model, inputs, 1, "decompx"), attribute(model, inputs, 1, "decompx", biases=False)
    expected = attribute(model, inputs, 1, "lrp_conservative")
    baseline = 0 if found.baseline is None else found.baseline
    torch.testing.assert_close(sum(one.sum(1) for one in found.parts.values()) + baseline, found.value)
    for name, own in without.parts.items():
        torch.testing.assert_close(own, expected.parts[name], rtol=1e-6, atol=1e-7)  # some keep float32 inside
        assert (found.parts[name] - own).abs().max() > 1e-6 or "Llama" in architecture or "T5" in architecture


def test_a_bias_that_meets_no_vector_is_shared_equally() -> None:
    bias = torch.tensor([1.0, 2.0])
    shares = bias_shares(torch.zeros(4, 3, 2), bias.expand(3, 2))
    assert torch.equal(shares, (bias / 4).expand(4, 3, 2))


def test_long_inputs_are_refused() -> None:
    model, _ = tiny("LlamaForSequenceClassification")
    with pytest.raises(InputError, match='"decompx" carries a vector per unit, of 128 units at most: got 200'):
        attribute(model, {"input_ids": torch.arange(5, 205)[None] % 50}, 1, "decompx")
