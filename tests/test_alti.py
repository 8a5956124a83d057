"""ALTI: the released arrays, the vectors by hand on other layouts, and what cannot be followed."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertForSequenceClassification

from models import tiny
from relprop.attribution import attribute
from relprop.engine.decompose import AttentionSubBlock, decompose, derivative
from relprop.errors import InputError, ModelError
from relprop.methods.decomposition import row_shares

GOLDEN = Path(__file__).parent / "golden" / "bert"
ARRAYS = np.load(GOLDEN / "golden_alti_flow.npz")


@cache
def bert() -> tuple[Any, dict[str, Tensor]]:
    ids = np.load(GOLDEN / "golden.npz")["a/input_ids"]
    return BertForSequenceClassification.from_pretrained(GOLDEN, dtype=torch.float64), {"input_ids": torch.tensor(ids)}


def distance(found: Tensor, expected: Any) -> float:
    """Largest difference relative to the largest number."""
    return float(np.abs(found.numpy() - np.asarray(expected)).max() / np.abs(np.asarray(expected)).max())


def stacked(mixing: AttentionSubBlock) -> Tensor:
    """All T_ij: [batch, rows, tokens, features]."""
    return torch.stack(list(mixing.vectors()), 2)


def vectors_and_outputs(model: nn.Module, inputs: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    found: list[tuple[Tensor, Tensor]] = []

    def use(mixing: AttentionSubBlock) -> Tensor:
        t = stacked(mixing)
        found.append((t, mixing.output.detach().reshape(t[:, :, 0].shape)))
        return t

    decompose(model, inputs, use)
    return found


# The released arrays.


@pytest.mark.parametrize(
    ("array", "measure", "tolerance"),
    [("alti", "l1", 1e-6), ("alti_l2", "l2", 1e-6), ("norm_rollout_kobayashi", "norm", 1e-9)],
)
def test_released(array: str, measure: str, tolerance: float) -> None:
    """Its distances are torch's, which add 1e-6 to every difference (next test): ours do not, so that 0 stays 0."""
    model, inputs = bert()
    found = attribute(model, inputs, 0, "alti", measure=measure).scores[0]
    assert distance(found, ARRAYS[f"a/f64/{array}/cls"]) < tolerance


@pytest.mark.parametrize(("array", "p"), [("alti", 1), ("alti_l2", 2)])
def test_released_to_the_last_digit(array: str, p: int) -> None:
    """With the released distance, the contributions of every block."""
    model, inputs = bert()
    for block, (t, y) in enumerate(vectors_and_outputs(model, inputs)):
        far = F.pairwise_distance(t, y[:, :, None].expand_as(t), p=p, eps=1e-6)
        c = row_shares((y.norm(p, -1, keepdim=True) - far).clamp_min(0))
        assert distance(c[0], ARRAYS[f"a/f64/{array}/layer_contributions"][block]) < 1e-11


@pytest.mark.parametrize(("array", "measure"), [("alti", "l1"), ("alti_l2", "l2")])
def test_released_scores(array: str, measure: str) -> None:
    """The variant has the released distance; the paper's differs from it by that alone."""
    model, inputs = bert()
    released, paper = (
        attribute(model, inputs, 0, "alti", measure=measure, variant=variant).scores[0]
        for variant in ("released", "paper")
    )
    assert distance(released, ARRAYS[f"a/f64/{array}/cls"]) < 1e-9
    assert 1e-9 < distance(paper, ARRAYS[f"a/f64/{array}/cls"]) < 1e-5


def test_released_vectors() -> None:
    """The length of every T_ij, and the output y_i with all its biases."""
    model, inputs = bert()
    for block, (t, y) in enumerate(vectors_and_outputs(model, inputs)):
        assert distance(t[0].norm(dim=-1), ARRAYS["a/f64/alti_raw/transformed_vectors_norm"][block]) < 1e-11
        assert distance(y[0], ARRAYS["a/f64/alti_raw/resultants"][block]) < 1e-11


# By hand on other layouts.


def heard(module: nn.Module, heard_of: dict[str, Tensor], name: str) -> None:
    """Keep what the module is given and what it returns."""

    def hook(_: nn.Module, args: Any, kwargs: dict[str, Tensor], out: Any) -> None:
        heard_of[f"{name}.in"] = args[0] if args else kwargs["hidden_states"]
        heard_of[name] = out if isinstance(out, Tensor) else out[0]

    module.register_forward_hook(hook, with_kwargs=True)


def gpt2(model: Any) -> tuple[Any, ...]:
    """Pre-norm, one matrix for queries, keys and values, weights the other way round."""
    block = model.transformer.h[0]
    return block, block.attn.c_attn, block.attn.c_proj, block.attn, lambda qkv: qkv.chunk(3, -1)[2], lambda w: w.t()


def llama(model: Any) -> tuple[Any, ...]:
    """Pre-norm, grouped queries."""
    block = model.model.layers[0]
    attention = block.self_attn
    return block, attention.v_proj, attention.o_proj, attention, lambda v: v, lambda w: w


@pytest.mark.parametrize(
    ("architecture", "parts"),
    [
        ("GPT2ForSequenceClassification", gpt2),
        ("LlamaForSequenceClassification", llama),
        ("Gemma2ForSequenceClassification", llama),
    ],
)
def test_vectors_by_hand(architecture: str, parts: Any) -> None:
    """T_ij = sum_h A_ij W_O v_j + [i = j] x_i, from the model's own weights; Gemma 2 has a norm before the sum."""
    model, inputs = tiny(architecture)
    ((t, y), *_) = vectors_and_outputs(model, inputs)
    block, values, projection, attention, own_part, transposed = parts(model)
    kept: dict[str, Tensor] = {}
    for name, module in (("block", block), ("values", values), ("attention", attention)):
        heard(module, kept, name)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        a = model(**inputs, output_attentions=True, use_cache=False).attentions[0].double()
    x, v = kept["block.in"], own_part(kept["values"])
    batch, heads, tokens, _ = a.shape
    v = v.reshape(batch, tokens, -1, x.shape[-1] // heads if parts is gpt2 else model.config.head_dim)
    v = v.repeat_interleave(heads // v.shape[2], 2)
    w = transposed(projection.weight.detach()).unflatten(1, (heads, -1))
    expected = torch.einsum("bhij,bjhd,ehd->bije", a, v, w)
    added = kept["attention"]
    if architecture.startswith("Gemma2"):
        norm = block.post_attention_layernorm
        scale = (added.square().mean(-1, keepdim=True) + norm.eps).rsqrt() * (1 + norm.weight.detach())
        expected, added = expected * scale[:, :, None], added * scale
    expected = expected + torch.eye(tokens).double()[..., None] * x[:, :, None]
    assert distance(t, expected.numpy()) < 1e-5  # norms and softmax of some are in float32
    assert distance(y, (x + added).detach().numpy()) < 1e-5


def a_token_at_a_time(mixing: AttentionSubBlock) -> Tensor:
    """The slow way: all of a token's values through W_O and the norm, without taking heads and rows apart."""
    x = mixing.residual.detach()
    tokens = mixing.values.shape[-2]
    batch = x.numel() // x.shape[-1] // tokens
    a, v = (part.detach().reshape(batch, -1, tokens, part.shape[-1]) for part in (mixing.weights, mixing.values))
    through, own = derivative(mixing.output, mixing.mixed), derivative(mixing.output, mixing.total)(x)
    columns = [through(a[..., j, None].to(v) * v[:, :, j, None]).reshape(batch, tokens, -1) for j in range(tokens)]
    return torch.stack(columns, 2) + torch.eye(tokens)[..., None] * own.reshape(batch, tokens, 1, -1)


@pytest.mark.parametrize(
    "architecture",
    [
        "DistilBertForSequenceClassification",
        "ElectraForSequenceClassification",
        "DebertaForSequenceClassification",  # a norm written by hand
        "DebertaV2ForSequenceClassification",  # batch and heads in one dimension
        "ModernBertForSequenceClassification",
        "XLMForSequenceClassification",  # writes to the stream
        "OPTForSequenceClassification",  # flattens the stream
        "MixtralForSequenceClassification",
        "Olmo2ForSequenceClassification",  # a norm before the sum
        "Gemma4ForCausalLM",  # scales the stream in place
        "ViTForImageClassification",
        "Dinov2ForImageClassification",
    ],
)
def test_vectors_of_many_layouts(architecture: str) -> None:
    """Every block's vectors are those of the slow way."""
    model, inputs = tiny(architecture)
    found = decompose(model, inputs, lambda mixing: torch.stack([stacked(mixing), a_token_at_a_time(mixing)]))
    assert len(found) == model.config.num_hidden_layers
    assert all(distance(fast, slow) < 1e-5 for fast, slow in found)  # norms of some are in float32


class Block(nn.Module):
    """Written by hand: fused attention, sums in or out of place, a norm after them, before W_O, or a gate, ..."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.inner, self.outer = nn.Linear(8, 12), nn.Linear(12, 8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind in ("plain", "in place"):
            mixed = self.attention(x, x, x, need_weights=False)[0]
        else:
            q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            if self.kind == "norm inside":
                mixed = F.layer_norm(mixed, (8,))
            if self.kind == "gated":
                mixed = mixed * torch.sigmoid(self.out(x))
            adapter = self.outer(self.inner(mixed)) if self.kind == "adapted" else 0.0
            mixed = (self.out(mixed) + adapter).type_as(x)
        if self.kind == "attention only":
            return x + mixed
        if self.kind == "in place":
            x = x.clone()
            x += mixed
            x = F.layer_norm(x, (8,))
            x += self.outer(self.inner(x).relu())
        else:
            x = F.layer_norm(x + mixed, (8,))
            x = x + self.outer(self.inner(x).relu())
        return x


class Tower(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([Block(kind), Block(kind)])
        self.head = nn.Linear(8, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


def test_sums_in_place() -> None:
    """`x += attention(x)` is `x + attention(x)`, through nn.MultiheadAttention."""
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1)).double()
    plain, in_place = (attribute(Tower(kind), x, 1, "alti").scores for kind in ("plain", "in place"))
    assert distance(in_place, plain.numpy()) < 1e-12
    assert distance(plain.sum(1), np.ones(2)) < 1e-12


def test_two_projections_side_by_side() -> None:
    """As adapters have it: W_O is their sum."""
    x = {"x": torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1)).double()}
    found = decompose(Tower("adapted"), x, lambda mixing: torch.stack([stacked(mixing), a_token_at_a_time(mixing)]))
    assert len(found) == 2
    assert all(distance(fast, slow) < 1e-12 for fast, slow in found)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("norm inside", "treat tokens differently"),
        ("gated", r"meets another branch \(mul\)"),
        ("attention only", "not followed by a feed-forward layer"),
        ("GPTNeoXForSequenceClassification", r"meets another branch \(add\)"),
        ("JetMoeForSequenceClassification", r"meets another branch \(mul\)"),
    ],
)
def test_what_cannot_be_followed_is_declined(model: str, reason: str) -> None:
    """A norm or a gate inside the attention, other layers beside it: the reason, and what to use instead."""
    made = tiny(model) if model.endswith("Classification") else (Tower(model), {"x": torch.randn(2, 5, 8).double()})
    with pytest.raises(ModelError, match=f'"alti" needs attention .* {reason}.*; use rollout or lrp_ah_ln instead'):
        attribute(*made, 1, "alti")


def test_a_row_of_bias_keeps_to_itself() -> None:
    """Shares of nothing: no division by 0."""
    c = torch.tensor([[[1.0, 3.0], [0.0, 0.0]]])
    assert torch.equal(row_shares(c), torch.tensor([[[0.25, 0.75], [0.0, 1.0]]]))


def test_unknown_measure() -> None:
    model, inputs = tiny("BertForSequenceClassification")
    with pytest.raises(InputError, match='measure is "l1", "l2" or "norm", got "l3"'):
        attribute(model, inputs, 1, "alti", measure="l3")
