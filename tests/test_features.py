"""Rows of tables: Transformers in plain PyTorch that read columns by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from relprop import Explainer, Explanation
from relprop.errors import InputError, ModelError, UnknownNameError
from relprop.readers.features import FeatureReader
from relprop.render.features.figure import draw

COLUMNS = ["age", "income", "height", "debt"]


class Tokenised(nn.Module):
    """As in FT-Transformer: a token for each column, a class token, two blocks."""

    def __init__(self, numbers: int, categories: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.randn(numbers, 16)) for _ in range(2))
        self.first = nn.Parameter(torch.randn(1, 1, 16))
        self.tables = nn.ModuleList(nn.Embedding(count, 16) for count in categories)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, numbers: Tensor) -> Tensor:
        return self._classes([numbers[..., None] * self.weight + self.bias])

    def _classes(self, tokens: list[Tensor]) -> Tensor:
        first = self.first.expand(len(tokens[0]), -1, -1)
        return self.head(self.blocks(torch.cat([first, *tokens], 1))[:, 0])


class WithCategories(Tokenised):
    def forward(self, numbers: Tensor, kinds: Tensor) -> Tensor:  # type: ignore[override]
        tokens = torch.stack([table(kinds[:, k]) for k, table in enumerate(self.tables)], 1)
        return self._classes([numbers[..., None] * self.weight + self.bias, tokens])


def model(kind: type[Tokenised] = Tokenised, numbers: int = 4, categories: tuple[int, ...] = ()) -> Any:
    torch.manual_seed(0)
    return kind(numbers, categories).double().eval()


ROW = {"age": 0.3, "income": -1.2, "height": 0.5, "debt": 2.0}


def test_columns_by_name() -> None:
    own = Explainer(model(), columns=COLUMNS)
    found = own(ROW, target=1, ledger=True)
    with torch.no_grad():
        expected = own.model(torch.tensor([list(ROW.values())], dtype=torch.float64))[0, 1].item()
    assert abs(found.value - expected) < 1e-9
    assert found.part.units == tuple(COLUMNS)
    assert found.part.values == ("0.3", "-1.2", "0.5", "2")
    assert found.ledger is not None
    assert found.ledger.closes(1e-6)
    for given in (dict(reversed(ROW.items())), tuple(ROW.values()), np.array(list(ROW.values()))):
        assert own(given, target=1).scores == found.scores
    other = {**ROW, "age": -1.0}
    together = own([ROW, other], target=1)
    for one, given in zip(together, (ROW, other), strict=True):
        assert np.allclose(one.scores, own(given, target=1).scores)


def test_gradients_stand_at_their_columns() -> None:
    """Read as it enters, gradient x input of each column is autograd's."""
    own = Explainer(model(), columns=COLUMNS)
    found = own(ROW, target=2, method="gradient_x_input", at="input")
    numbers = torch.tensor([list(ROW.values())], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(own.model(numbers)[0, 2], numbers)
    assert np.allclose(found.scores, (slope * numbers)[0].detach())


def test_the_column_that_decides() -> None:
    """A model that reads one column alone gives it all the relevance."""
    one = model()
    with torch.no_grad():
        one.weight[[0, 1, 3]] = 0
    found = Explainer(one, columns=COLUMNS)(ROW, target=1, method="integrated_gradients")
    assert found.top(1)[0][0] == "height"
    assert np.abs(np.delete(found.scores, 2)).max() < 1e-9
    assert abs(found.scores[2]) > 1e-3


@pytest.mark.parametrize("method", ["attn_lrp", "gae", "rollout", "occlusion", "smoothgrad", "alti", "attcat"])
def test_methods(method: str) -> None:
    found = Explainer(model(), columns=COLUMNS)(ROW, target=1, method=method)
    assert found.part.units == tuple(COLUMNS)
    assert np.isfinite(found.scores).all()
    assert any(found.scores)


def test_categories() -> None:
    own = model(WithCategories, 3, (3,))
    reader = FeatureReader(own, ["age", "colour", "income", "height"], {"colour": ["red", "green", "blue"]})
    explainer = Explainer(own, reader=reader)
    rows = [{"age": 1.0, "colour": colour, "income": 0.5, "height": -1} for colour in ("green", "blue")]
    found = explainer(rows, target=1, ledger=True)
    numbers = torch.tensor([[1.0, 0.5, -1]], dtype=torch.float64)
    for one, index in zip(found, (1, 2), strict=True):
        with torch.no_grad():
            assert abs(one.value - own(numbers, torch.tensor([[index]]))[0, 1].item()) < 1e-9
        assert [part.units for part in one.parts] == [("age", "income", "height"), ("colour",)]
        assert one.ledger is not None
        assert one.ledger.closes(1e-6)
    assert found[0].parts[1].scores != found[1].parts[1].scores
    with pytest.raises(InputError, match='the column "colour": category "pink" is unknown'):
        explainer({**rows[0], "colour": "pink"})
    with pytest.raises(ModelError, match="its forward takes numbers, kinds"):
        Explainer(own, columns=COLUMNS)
    with pytest.raises(UnknownNameError, match='column "size" is unknown'):
        FeatureReader(own, COLUMNS, {"size": ["a"]})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"age": 1}, 'the row has no column "income" and 2 more'),
        ({**ROW, "weight": 1}, 'column "weight" is unknown'),
        ((1, 2), r"a row has 4 columns \(age, income, height, debt\), got 2"),
        ({**ROW, "age": "old"}, "the column \"age\" holds a finite number, got 'old'"),
        ({**ROW, "age": float("inf")}, 'the column "age" holds a finite number, got inf'),
        ({**ROW, "age": None}, 'the column "age" holds a finite number, got None'),
        ("a text", "a row is a dict of its columns"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Explainer(model(), columns=COLUMNS)(given)


@pytest.mark.parametrize("columns", [[], "age", ["a", "a", "b", "c"], [1, 2, 3, 4]])
def test_columns_are_different_names(columns: Any) -> None:
    with pytest.raises(InputError, match="columns is a list of different names"):
        Explainer(model(), columns=columns)


def test_what_is_saved_and_drawn(tmp_path: Path) -> None:
    found = Explainer(model(), columns=COLUMNS)(ROW, target=1)
    back = Explanation.from_json(found.to_json())
    assert back == found
    assert back.to_html() == found.to_html()
    page = found.to_html()
    assert all(column in page for column in COLUMNS)
    assert "script" not in page
    found.show()
    for ending in ("png", "svg"):
        found.save(tmp_path / f"a.{ending}")
    title = draw([found.drawings[0][1]]).axes[0].get_title(loc="left")
    assert title.replace("\n", " ").endswith("in class tokens")  # broken, not cut
    assert list(found.to_frame().column)[:4] == COLUMNS
    assert "in class tokens" in page
