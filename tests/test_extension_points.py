"""Readers, tasks and kinds of parts of other packages, found by their entry points."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import torch
from torch import Tensor, nn

from relprop.errors import InputError, UnknownNameError
from relprop.explainer import Explainer
from relprop.explanation import Explanation
from relprop.part import Part, Words
from relprop.readers.text import TextReader
from relprop.tasks import Answered, Query
from relprop.tasks.classes import ClassScore
from relprop.types import Attribution
from tokenizers_for_tests import tiny

ODOURS = (3.0, 1.0, 4.0)
ENTRY_POINTS = """
[relprop.readers]
smells = test_extension_points:smell_reader
[relprop.tasks]
smells = test_extension_points:smell_task
[relprop.parts]
smell = test_extension_points:SmellPart
"""


class Nose(nn.Module):
    """Any model that reads [batch, odours, 1]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.read = nn.Linear(1, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, odours: Tensor) -> Tensor:
        return self.head(self.encoder(self.read(odours)).mean(1))


@dataclass(frozen=True)
class SmellPart(Part):
    kind: ClassVar[str] = "smell"
    rendering: ClassVar[str] = "smell_rendering"

    name: str
    scores: tuple[float, ...]

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(f"odour {i}" for i in range(len(self.scores)))

    @property
    def total(self) -> float:
        return sum(self.scores)

    def top(self, count: int) -> list[tuple[str, float]]:
        return sorted(zip(self.units, self.scores, strict=True), key=lambda pair: -abs(pair[1]))[:count]

    def without_special(self) -> Self:
        return self

    def columns(self) -> dict[str, Sequence[Any]]:
        return {"odour": self.units, "score": self.scores}

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "scores": list(self.scores)}

    @classmethod
    def from_dict(cls, data: dict[str, Any], attached: Any = None) -> Self:
        return cls(data["name"], tuple(data["scores"]))

    @classmethod
    def drawing(cls, parts: Sequence[Self], words: Words) -> str:
        return f"{words.method} smells {parts[0].units[0]}"


class SmellReader:
    name = "smells"

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def read(self, given: Any, max_length: int | None = None) -> Tensor:
        if not given:
            raise InputError("a smell has odours")
        return torch.tensor(given)

    def batches(self, rows: Sequence[Tensor], size: int) -> list[list[int]]:
        return [[i] for i in range(len(rows))]

    def inputs(self, rows: Sequence[Tensor]) -> dict[str, Tensor]:
        return {"odours": torch.stack(list(rows))[..., None]}

    def options(self, known: Any, given: dict[str, Any], rows: Any, inputs: Any) -> dict[str, Any]:
        return given

    def parts(self, row: Tensor, found: Attribution, number: int) -> tuple[Part, ...]:
        return (SmellPart("odours", tuple(found.parts["odours"][number].tolist())),)

    def hidden(self, rows: Any, inputs: Any, replacement: Any) -> Any:
        raise InputError("smells are not hidden")


def smell_reader(model: nn.Module, processor: Any) -> SmellReader | None:
    return SmellReader(model) if "odours" in inspect.signature(model.forward).parameters else None


class StrongestClass(ClassScore):
    """What is explained: the largest logit, whichever class it is of."""

    def queries(self, given: Sequence[Any], targets: Sequence[Any], max_length: int | None = None) -> list[Query]:
        return [replace(one, target=_largest) for one in super().queries(given, targets, max_length)]

    def answered(self, query: Query, found: Attribution, number: int) -> Answered:
        return Answered("the largest", "something", 0.5)


def _largest(outputs: Any) -> Tensor:
    return outputs.amax(-1)


def smell_task(model: nn.Module, reader: Any) -> StrongestClass | None:
    return StrongestClass(model, reader) if reader.name == "smells" else None


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package with a reader, a task, a kind of part and its renderers, as pip leaves it behind."""
    info = tmp_path / "smells-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: smells\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    package = tmp_path / "smell_rendering"
    package.mkdir()
    (package / "terminal.py").write_text("def terminal(drawings):\n    return '\\n'.join(drawings)\n")
    (package / "html.py").write_text(
        "def html(drawings, *, full_page):\n"
        "    inner = ''.join(f'<p>{one}</p>' for one in drawings)\n"
        "    return f'<html>{inner}</html>' if full_page else inner\n"
    )
    (package / "figure.py").write_text("def save(drawings, path):\n    path.write_text(drawings[0])\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_a_reader_and_a_task_are_found_by_the_model() -> None:
    explainer = Explainer(Nose().eval())
    assert type(explainer.reader).__name__ == "SmellReader"
    assert type(explainer.task).__name__ == "StrongestClass"
    e = explainer(ODOURS)
    logits = explainer.model(torch.tensor(ODOURS)[None, :, None])
    assert e.value == pytest.approx(logits.max().item(), abs=1e-5)
    assert (e.target, e.prediction, e.probability) == ("the largest", "something", 0.5)
    assert e.accounted == pytest.approx(sum(e.scores))
    assert e.units == ("odour 0", "odour 1", "odour 2")
    with pytest.raises(InputError, match="smell 1 of the list: a smell has odours"):
        explainer([ODOURS, ()])


@pytest.mark.usefixtures("installed")
def test_models_that_they_do_not_know_are_read_as_ever() -> None:
    explainer = Explainer(*tiny("bert"))
    assert type(explainer.reader) is TextReader
    assert type(explainer.task) is ClassScore


@pytest.mark.usefixtures("installed")
def test_a_kind_of_part_is_drawn_and_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    e = Explainer(Nose().eval())(ODOURS, method="gradient_x_input")
    e.show()
    assert "gradient_x_input smells odour 0" in capsys.readouterr().out
    assert e.to_html() == "<html><p>gradient_x_input smells odour 0</p></html>"
    assert e._repr_html_() == "<p>gradient_x_input smells odour 0</p>"
    e.save(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_text() == "gradient_x_input smells odour 0"
    assert list(e.to_frame().columns)[:2] == ["odour", "score"]
    again = Explanation.from_json(e.to_json())
    assert again.scores == e.scores
    assert again.to_json() == e.to_json()
    with pytest.raises(InputError, match="words are of texts, and this is an explanation of smell"):
        e.words()


def test_a_kind_that_is_not_installed_is_named() -> None:
    text = Explanation((SmellPart("odours", (1.0,)),), "lrp", "yes", 1.0).to_json()
    with pytest.raises(UnknownNameError, match=r'kind of part "smell" is unknown; known: .*graph, image, .*text'):
        Explanation.from_json(text)


def test_given_ones_go_before_all_others() -> None:
    model = Nose().eval()
    reader = SmellReader(model)
    explainer = Explainer(model, reader=reader, task=StrongestClass(model, reader))
    assert explainer(ODOURS).target == "the largest"
    assert Explainer(model, reader=reader)(ODOURS, target=2).target == "2"
