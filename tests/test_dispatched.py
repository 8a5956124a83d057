"""Models whose weights accelerate keeps elsewhere, and loads for each module's call."""

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models import tiny
from relprop import Explainer
from relprop.attribution import attribute
from relprop.engine import passes
from relprop.engine.model_call import device_of
from relprop.errors import ModelError, RelpropError
from relprop.loading import load
from relprop.registry import METHODS

accelerate = pytest.importorskip("accelerate")
ARCHITECTURES = (
    "BertForSequenceClassification",
    "LlamaForSequenceClassification",
    "T5ForSequenceClassification",  # one table of words for encoder and decoder
)


def by_map(model: Any, folder: Path) -> Any:
    """Every second layer on the disk."""
    leaves = [name for name, module in model.named_modules() if name and not list(module.children())]
    places = {name: ("cpu", "disk")[number % 2] for number, name in enumerate(leaves)}
    held = tuple(f"{name}." for name in places)
    places |= {name: "cpu" for name, _ in model.named_parameters() if not name.startswith(held)}
    return accelerate.dispatch_model(model, places, main_device="cpu", offload_dir=folder)


WAYS = {
    "cpu": lambda model, folder: accelerate.cpu_offload(model, torch.device("cpu")),
    "disk": lambda model, folder: accelerate.disk_offload(model, folder, torch.device("cpu")),
    "map": by_map,
}


def both(architecture: str, way: str, folder: Path) -> tuple[Any, Any, dict[str, Tensor]]:
    """A tiny model and its dispatched twin."""
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    model, inputs = tiny(architecture, torch.float32)
    twin = WAYS[way](copy.deepcopy(model), folder)
    assert any(parameter.is_meta for parameter in twin.parameters())
    return model, twin, inputs


@pytest.mark.sliced
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("method", [record.name for record in METHODS if record.name != "shapley"])
def test_dispatched_models_give_the_same_scores(
    method: str, architecture: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, twin, inputs = both(architecture, way, tmp_path)
    for options in ({}, {"checkpoint": True}) if "checkpoint" in METHODS[method].options else ({},):
        try:
            expected = attribute(model, inputs, 1, method, **options).scores
        except RelpropError as declined:
            with pytest.raises(type(declined)):
                attribute(twin, inputs, 1, method, **options)
            continue
        found = attribute(twin, inputs, 1, method, **options)
        if any("carried in float32" in one for one in found.warnings):  # weights that are loaded cannot be cast
            assert method in ("lrp", "partial_lrp")
            monkeypatch.setattr(passes, "in_single_precision", lambda model: False)
            expected = attribute(model, inputs, 1, method, **options).scores
        assert torch.equal(found.scores, expected)
    assert any(parameter.is_meta for parameter in twin.parameters()), "weights stayed loaded"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "GPT2ForSequenceClassification"])
def test_their_ledgers_name_the_same_entries(architecture: str, way: str, tmp_path: Path) -> None:
    model, twin, inputs = both(architecture, way, tmp_path)
    books = [attribute(one, inputs, 1, "lrp_conservative", ledger=True).ledger for one in (model, twin)]
    assert books[0] == books[1]


@pytest.mark.parametrize("way", WAYS)
def test_an_explainer_of_a_dispatched_model(way: str, tmp_path: Path) -> None:
    model, tokenizer = load("sentiment")
    text = "a gorgeous, witty, seductive movie."
    expected = Explainer(model, tokenizer)(text)
    assert Explainer(WAYS[way](copy.deepcopy(model), tmp_path), tokenizer)(text).scores == expected.scores


def test_a_model_that_is_only_empty_is_refused() -> None:
    model, inputs = tiny("BertForSequenceClassification")
    with pytest.raises(ModelError, match="no weights yet"):
        attribute(model.to("meta"), inputs, 1)


def test_inputs_go_where_weights_are(tmp_path: Path) -> None:
    """Not to where they are not."""
    model, twin, _ = both("BertForSequenceClassification", "cpu", tmp_path)
    assert device_of(model) == device_of(twin) == torch.device("cpu")
