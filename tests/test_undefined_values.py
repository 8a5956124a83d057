"""NaN that a model computes beside its output, in rows of padding, does not spoil the scores; NaN that matters does."""

import pytest
import torch
from torch import Tensor, nn

from relprop.attribution import attribute
from relprop.errors import ModelError

IDS = torch.tensor([[4, 9, 2, 7, 0, 0], [1, 3, 29, 11, 5, 0]])


class Windowed(nn.Module):
    """Attention by hand in a window of two tokens: a row of padding sees padding alone, and its weights are 0/0."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.way = way
        self.table, self.qkv, self.out = nn.Embedding(30, 8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)
        self.double().eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.table(input_ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        places = torch.arange(input_ids.shape[1])
        near = (places[:, None] - places).abs() < 2
        near = near & (places[:, None] >= places) & (attention_mask[:, None] > 0) & (attention_mask[:, :, None] > 0)
        weights = (q @ k.mT).masked_fill(~near, float("-inf")).softmax(-1)
        if self.way == "defined":
            weights = weights.nan_to_num()
        x = x + self.out(weights @ v)
        if self.way == "steering":
            x = torch.where(x.isnan(), 1.0, x).sum(1, keepdim=True)
        x = x.mean(1) if self.way == "mean" else x[:, 0] + x[:, -1 if self.way == "steering" else 1]
        return self.head(self.norm(x))


def inputs() -> dict[str, Tensor]:
    return {"input_ids": IDS, "attention_mask": (IDS > 0).long()}


@pytest.mark.parametrize("method", ["gradient_x_input", "lrp_ah_ln", "lrp_conservative", "attn_lrp", "lrp"])
def test_rows_of_padding_may_be_undefined(method: str) -> None:
    found = attribute(Windowed("undefined"), inputs(), 1, method)
    expected = attribute(Windowed("defined"), inputs(), 1, method)
    torch.testing.assert_close(found.scores, expected.scores, rtol=1e-9, atol=1e-12)
    assert torch.equal(found.value, expected.value)
    assert found.warnings == expected.warnings
    assert found.scores.any()


def test_their_ledger_closes() -> None:
    for ledger in attribute(Windowed("undefined"), inputs(), 1, "lrp_conservative", ledger=True).ledger or ():
        assert ledger.gap < 1e-10, ledger


@pytest.mark.parametrize("way", ["mean", "steering"])
def test_what_the_number_depends_on_is_refused(way: str) -> None:
    """NaN in the explained number itself; and NaN that the model looks for, so that 0 gives another number."""
    with pytest.raises(ModelError, match="finite"):
        attribute(Windowed(way), inputs(), 1, "lrp_conservative")
