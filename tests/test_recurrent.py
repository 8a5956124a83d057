"""Recurrent layers under the rules: torch's own values, closed ledgers, and the scores of written-out twins."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import relprop
from relprop.rulebook import recurrent

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"num_layers": 2},
    {"bidirectional": True},
    {"bidirectional": True, "num_layers": 2, "bias": False},
    {"batch_first": True},
]


class Reader(nn.Module):
    """Embeddings, a recurrent layer, attention, a head."""

    def __init__(self, kind: str, **settings: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(30, 8)
        self.layer = KINDS[kind](8, 6, **settings)
        width = (settings.get("proj_size") or 6) * (2 if settings.get("bidirectional") else 1)
        self.head = nn.Linear(width, 3)
        self.first = settings.get("batch_first", False)
        self.double().eval()

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        output = self.layer(x)[0] if self.first else self.layer(x.transpose(0, 1))[0].transpose(0, 1)
        weights = torch.softmax(output @ output.mT, -1)
        return self.head((weights @ output).mean(1))


IDS = {"input_ids": torch.tensor([[3, 14, 15, 9, 2], [6, 5, 23, 8, 9]])}


@pytest.mark.parametrize("settings", [*SETTINGS, {"proj_size": 4}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_ledger_closes_without_a_warning(kind: str, settings: dict[str, Any]) -> None:
    if "proj_size" in settings and kind != "lstm":
        pytest.skip("only an LSTM has projections")
    model = Reader(kind, **settings)
    found = relprop.attribute(model, IDS, 1, "lrp_conservative", ledger=True)
    assert not found.warnings
    assert found.ledger is not None
    assert all(one.closes(1e-9) for one in found.ledger)
    assert torch.allclose(found.value, model(**IDS)[:, 1], atol=1e-12)
    assert found.scores.abs().min() > 0


@pytest.mark.parametrize("rules", ["lrp_conservative", "attn_lrp", "lrp", "lrp_ah_ln", "gradient_x_input"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_as_its_cells(kind: str, rules: str) -> None:
    """Its twin calls the steps itself, so that every operation meets its rule."""

    class Twin(Reader):
        def forward(self, input_ids: Tensor) -> Tensor:
            x = self.table(input_ids).transpose(0, 1)
            expanded = {"lstm": recurrent.lstm, "gru": recurrent.gru}.get(
                kind, recurrent.rnn_tanh if kind == "tanh" else recurrent.rnn_relu
            )
            zeros = torch.zeros(1, len(input_ids), 6, dtype=x.dtype)
            first = (zeros, zeros) if kind == "lstm" else zeros
            output = expanded(x, first, self.layer._flat_weights, True, 1, 0.0, False, False, False)[0].transpose(0, 1)
            return self.head((torch.softmax(output @ output.mT, -1) @ output).mean(1))

    model, twin = Reader(kind), Twin(kind)
    assert torch.allclose(model(**IDS), twin(**IDS), atol=1e-12)
    found, expected = (relprop.attribute(one, IDS, 1, rules).scores for one in (model, twin))
    assert (found - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_a_packed_sequence_is_refused() -> None:
    class Packed(Reader):
        def forward(self, input_ids: Tensor) -> Tensor:
            lengths = torch.tensor([5, 3])[: len(input_ids)]
            packed = nn.utils.rnn.pack_padded_sequence(self.table(input_ids), lengths, batch_first=True)
            output = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]
            return self.head((torch.softmax(output @ output.mT, -1) @ output).mean(1))

    with pytest.raises(relprop.errors.RelpropError, match="packed sequence"):
        relprop.attribute(Packed("lstm"), IDS, 1, "lrp_conservative")


CELLS = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "tanh": nn.RNNCell,
         "relu": lambda *a, **k: nn.RNNCell(*a, nonlinearity="relu", **k)}  # fmt: skip


@pytest.mark.parametrize("rules", ["lrp_conservative", "attn_lrp", "lrp", "lrp_ah_ln"])
@pytest.mark.parametrize("kind", CELLS)
def test_cells_are_as_their_layer(kind: str, rules: str) -> None:
    """nn.LSTMCell and the like, called step by step with the layer's weights."""

    class ByCells(Reader):
        def __init__(self, kind: str) -> None:
            super().__init__(kind)
            self.cell = CELLS[kind](8, 6).double()
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(self.cell, name).data = getattr(self.layer, f"{name}_l0").data

        def forward(self, input_ids: Tensor) -> Tensor:
            x, state, outputs = self.table(input_ids), None, []
            for step in x.unbind(1):
                state = self.cell(step, state)
                outputs.append(state[0] if isinstance(state, tuple) else state)
            output = torch.stack(outputs, 1)
            return self.head((torch.softmax(output @ output.mT, -1) @ output).mean(1))

    model, twin = Reader(kind), ByCells(kind)
    assert torch.allclose(model(**IDS), twin(**IDS), atol=1e-12)
    found, expected = (relprop.attribute(one, IDS, 1, rules) for one in (twin, model))
    assert not found.warnings
    assert (found.scores - expected.scores).abs().max() <= 1e-9 * expected.scores.abs().max()
