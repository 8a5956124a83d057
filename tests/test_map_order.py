"""Maps whose rows or columns are not the tokens, in their order, are refused or told; those that are, are read."""

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import relprop
import relprop.methods  # fills the registry
from relprop.engine.map_order import product_axes
from relprop.errors import ModelError
from relprop.registry import METHODS

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
ON_MAPS = [record.name for record in METHODS if record.maps]
SCALE = 1 / math.sqrt(8)


def weights(q: Tensor, k: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT * SCALE, -1)


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return weights(q, k) @ v


def keys_sorted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    order = k.sum(-1).argsort(-1)[..., None]
    return weights(q, k.gather(2, order.expand_as(k))) @ v.gather(2, order.expand_as(v))


def keys_before_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bhji,bhjd->bhid", torch.softmax(k @ q.mT * SCALE, -2), v)


OTHER_ORDERS: dict[str, Attend] = {
    "keys flipped": lambda q, k, v: weights(q, k.flip(2)) @ v.flip(2),
    "keys rolled": lambda q, k, v: weights(q, k.roll(1, 2)) @ v.roll(1, 2),
    "keys sorted": keys_sorted,
    "queries flipped": lambda q, k, v: (weights(q.flip(2), k) @ v).flip(2),
    "keys before queries": keys_before_queries,
}
SAME_ORDER: dict[str, Attend] = {
    "fused": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "einsum": lambda q, k, v: torch.einsum("bhij,bhjd->bhid", weights(q, k), v),
    "ellipsis": lambda q, k, v: torch.einsum("...ij,...jd->...id", weights(q, k), v),
    "rows first": lambda q, k, v: torch.einsum(
        "bhij,jbhd->ibhd", weights(q, k), v.permute(2, 0, 1, 3).contiguous()
    ).permute(1, 2, 0, 3),
}


class Block(nn.Module):
    def __init__(self, attend: Attend, heads: int = 2) -> None:
        super().__init__()
        self.attend, self.heads = attend, heads
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.norm, self.last = nn.LayerNorm(16), nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.query, self.key, self.value))
        x = self.norm(x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2)))
        return self.last(x + self.down(F.gelu(self.up(x))))


class Classifier(nn.Module):
    def __init__(self, attend: Attend, heads: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(50, 16), nn.Linear(16, 3)
        self.layers = nn.ModuleList([Block(attend, heads), Block(attend, heads)])
        self.double().eval()

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


IDS = {"input_ids": torch.tensor([[3, 14, 15, 9, 2], [6, 5, 35, 8, 9]])}


@pytest.mark.parametrize("method", ON_MAPS)
@pytest.mark.parametrize("attend", OTHER_ORDERS.values(), ids=OTHER_ORDERS)
def test_another_order_is_refused(attend: Attend, method: str) -> None:
    model = Classifier(attend)
    assert torch.allclose(model(**IDS), Classifier(plain)(**IDS))
    with pytest.raises(ModelError, match=r"another order|needs attention maps"):
        relprop.attribute(model, IDS, 1, method)


@pytest.mark.parametrize("method", ["rollout", "gae", "transformer_attribution", "attcat"])
@pytest.mark.parametrize("attend", SAME_ORDER.values(), ids=SAME_ORDER)
def test_the_same_order_is_read(attend: Attend, method: str) -> None:
    found, expected = (relprop.attribute(Classifier(one), IDS, 1, method) for one in (attend, plain))
    assert not found.warnings
    assert torch.allclose(found.scores, expected.scores, atol=1e-9)


@pytest.mark.parametrize("attend", [plain, *SAME_ORDER.values()], ids=["plain", *SAME_ORDER])
@pytest.mark.parametrize("heads", [4, 8, 16])
def test_the_same_order_is_read_with_many_heads(attend: Attend, heads: int) -> None:
    """Every head reads the same rows; for one example and for several."""
    for ids in (IDS["input_ids"], IDS["input_ids"][:1], IDS["input_ids"][:1, :2]):
        assert not relprop.attribute(Classifier(attend, heads), {"input_ids": ids}, 1, "rollout").warnings


@pytest.mark.parametrize("heads", [8, 16])
@pytest.mark.parametrize("attend", OTHER_ORDERS.values(), ids=OTHER_ORDERS)
def test_another_order_is_refused_with_many_heads(attend: Attend, heads: int) -> None:
    with pytest.raises(ModelError, match=r"another order|needs attention maps"):
        relprop.attribute(Classifier(attend, heads), IDS, 1, "rollout")


def test_another_order_of_some_heads_is_refused() -> None:
    def every_second_flipped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (torch.stack([one[:, 0::2], one[:, 1::2].flip(2)], 2).flatten(1, 2) for one in (k, v))
        return weights(q, k) @ v

    with pytest.raises(ModelError, match="another order"):
        relprop.attribute(Classifier(every_second_flipped), IDS, 1, "rollout")


@pytest.mark.parametrize(("name", "given"), [("sentiment", "dull."), ("molecules", "CCO")])
def test_the_embedded_models_have_nothing_to_tell(name: str, given: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relprop.Explainer(name)(given, method="rollout")


@pytest.mark.parametrize("method", ["rollout", "attention_last"])
def test_weights_changed_after_the_softmax_are_told(method: str) -> None:
    found = relprop.attribute(Classifier(lambda q, k, v: (weights(q, k) * 0.5) @ (2 * v)), IDS, 1, method)
    assert any("after their softmax" in sentence for sentence in found.warnings)
    assert not relprop.attribute(Classifier(lambda q, k, v: (weights(q, k) * 1.0) @ v), IDS, 1, method).warnings


def test_rows_that_a_convolution_mixes_are_told() -> None:
    class Convolved(Classifier):
        def __init__(self) -> None:
            super().__init__(plain)
            self.layers = nn.ModuleList([WithConvolution(plain), WithConvolution(plain)])
            self.double().eval()

    class WithConvolution(Block):
        def __init__(self, attend: Attend) -> None:
            super().__init__(attend)
            self.mix = nn.Conv1d(16, 16, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.mix(super().forward(x).mT).mT

    found = relprop.attribute(Convolved(), IDS, 1, "rollout")
    assert any("could not be shown to be the units" in sentence for sentence in found.warnings)


def test_axes_of_products() -> None:
    assert product_axes("bhij,bhjd->bhid") == ((0, -2), (0, -2))
    assert product_axes("bnij, jbnd -> ibnd") == ((1, -4), (1, -4))
    assert product_axes("...ij,...jd->...id") == ((0, -2), (0, -2))
    assert product_axes("bhji,bhjd->bhid") is None  # contracted over the rows
    assert product_axes("bhij,bhjd->bhjd") is None
