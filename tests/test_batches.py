"""In a batch every example has the scores that it has alone, however a model orders its tensors; or it is refused."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import model_fuzz
import relprop
import relprop.methods  # fills the registry
from model_fuzz import Spec
from relprop.engine.placement import axis_by_changes
from relprop.errors import InputError, RelpropError
from relprop.registry import METHODS

NAMES = ["lrp_conservative", *(record.name for record in METHODS if record.maps or not record.additive)]


class Attention(nn.Module):
    """Attention whose maps are ordered as `order` says: "hb" heads before examples; "3d": both in one dimension."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.norm, self.up, self.down, self.last = (
            nn.LayerNorm(16),
            nn.Linear(16, 32),
            nn.Linear(32, 16),
            nn.LayerNorm(16),
        )

    def split(self, x: Tensor) -> Tensor:
        heads = x.unflatten(-1, (2, 8))  # [batch, tokens, heads, features]
        heads = heads.permute(2, 0, 1, 3) if "hb" in self.order else heads.permute(0, 2, 1, 3)
        return heads.flatten(0, 1) if "3d" in self.order else heads

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(one(x)) for one in (self.query, self.key, self.value))
        mixed = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(8), -1) @ v
        if "3d" in self.order:
            mixed = mixed.unflatten(0, (2, -1) if "hb" in self.order else (-1, 2))
        mixed = mixed.permute(1, 2, 0, 3) if "hb" in self.order else mixed.permute(0, 2, 1, 3)
        x = self.norm(x + self.out(mixed.flatten(2)))
        return self.last(x + self.down(F.gelu(self.up(x))))


class Classifier(nn.Module):
    def __init__(self, order: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(50, 16), nn.Linear(16, 3)
        self.layers = nn.ModuleList([Attention(order), Attention(order)])

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


class SequenceFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(50, 16), nn.Linear(16, 3)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.head(self.encoder(self.table(input_ids).transpose(0, 1)).mean(0))


def scores_or_refusal(model: nn.Module, ids: Tensor, method: str) -> Tensor | str:
    try:
        return relprop.attribute(model, {"input_ids": ids}, 1, method).scores
    except RelpropError as error:
        return str(error)


@pytest.mark.sliced("method", "order")
@pytest.mark.parametrize("method", NAMES)
@pytest.mark.parametrize("examples", [2, 5])  # as many as heads, as many as tokens
@pytest.mark.parametrize("order", ["bh", "bh3d", "hb3d", "hb", "sequence first"])
def test_a_batch_is_as_one_by_one(order: str, examples: int, method: str) -> None:
    model = (SequenceFirst() if order == "sequence first" else Classifier(order)).double().eval()
    ids = torch.randint(0, 50, (examples, 5), generator=torch.Generator().manual_seed(1))
    found = scores_or_refusal(model, ids, method)
    alone = [scores_or_refusal(model, one[None], method) for one in ids]
    if isinstance(found, str):
        assert all(isinstance(one, str) for one in alone), (found, alone)
        return
    expected = torch.cat([one for one in alone if isinstance(one, Tensor)])
    assert (found - expected).abs().max() <= 1e-9 * expected.abs().max()


class SharedIntegers(Classifier):
    """Takes integers that belong to no example; their first axis may be as long as the batch."""

    def forward(self, input_ids: Tensor, adjacency: Tensor) -> Tensor:
        return super().forward(input_ids) * (1 + adjacency[0].double().mean()) + adjacency.double().cumsum(0)[-1]


@pytest.mark.parametrize("method", ["occlusion", "integrated_gradients", "smoothgrad", "shapley", "rollout"])
@pytest.mark.parametrize("shared", [[[0, 0, 0], [1, 1, 1]], [[1, 1, 1], [0, 0, 0]], [[0, 1, 2], [0, 1, 2]]])
def test_what_belongs_to_no_example_is_not_cut(method: str, shared: list[list[int]]) -> None:
    """Its first row may be the same for an example alone: the check takes every example."""
    model = SharedIntegers("bh").double().eval()
    inputs = {"input_ids": torch.tensor([[3, 4, 5], [6, 7, 8]]), "adjacency": torch.tensor(shared)}
    with pytest.raises(InputError, match=r"taken apart|taken out"):
        relprop.attribute(model, inputs, 1, method)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_batch_axis_is_proved_by_changes(axis: int) -> None:
    inner = Classifier("bh").double().eval()

    class Turned(nn.Module):
        def forward(self, input_ids: Tensor) -> Tensor:
            return inner(input_ids if axis == 0 else input_ids.T)

    ids = torch.randint(0, 50, (4, 4), generator=torch.Generator().manual_seed(2))
    assert axis_by_changes(Turned(), {"input_ids": ids}, 1, "input_ids", 4) == axis

    class Coupled(nn.Module):
        def forward(self, input_ids: Tensor) -> Tensor:
            logits = inner(input_ids)
            return logits - logits.mean(0)

    assert axis_by_changes(Coupled(), {"input_ids": ids}, 1, "input_ids", 4) is None


def _by_ones(x: Tensor) -> Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / (e @ torch.ones(e.shape[-1], 1, dtype=e.dtype))


def _by_logarithm(x: Tensor) -> Tensor:
    return torch.exp(x - torch.log(torch.exp(x).sum(-1, keepdim=True)))


@pytest.mark.parametrize("spelling", [_by_ones, _by_logarithm])
@pytest.mark.parametrize("method", ["lrp_ah", "lrp_ah_ln", "attn_lrp", "lrp_conservative", "lrp_ln", "lrp"])
def test_a_softmax_that_is_not_recognised_is_told(
    spelling: model_fuzz.Spelling, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(model_fuzz.SOFTMAX, "odd", spelling)
    spec = Spec(fused=False, softmax="odd")
    ids = {"input_ids": torch.tensor([[4, 9, 2, 7]])}
    found = relprop.attribute(model_fuzz.model(spec), ids, 1, method)
    expected = relprop.attribute(model_fuzz.plain_model(spec), ids, 1, method).scores
    told = any("could not be recognised as that of a softmax" in sentence for sentence in found.warnings)
    assert told or (found.scores - expected).abs().max() <= 1e-9 * expected.abs().max()
