"""Wrappers that only pass calls on are taken off, whatever takes the model: labels and numbers are those inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import relprop
from relprop.engine.wrappers import check_model, unwrapped
from relprop.errors import ModelError
from relprop.metrics import Tokens, faithfulness
from tokenizers_for_tests import LABELS, bert, wordpiece


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


WRAPPERS: dict[str, Callable[[nn.Module], Any]] = {
    "torch.compile": torch.compile,
    "DataParallel": nn.DataParallel,
    "DistributedDataParallel": nn.parallel.DistributedDataParallel,
    "AveragedModel": AveragedModel,
    "two of them": lambda model: torch.compile(nn.DataParallel(model)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_changes_nothing(name: str, process_group: None) -> None:
    """Labels by name, scores, the check and metrics of several labels, which read the config."""
    tokenizer = wordpiece()
    model = bert(tokenizer)
    model.config.problem_type = "multi_label_classification"
    wrapped = WRAPPERS[name](model)
    own, explainer = relprop.Explainer(model, tokenizer), relprop.Explainer(wrapped, tokenizer)
    assert explainer.labels == LABELS
    found, plain = (one("a good film", target="positive") for one in (explainer, own))
    assert found.scores == plain.scores
    inputs = own.inputs(["a good film"])
    assert relprop.attribute(wrapped, inputs, "negative").scores.equal(own_scores(model, inputs))
    assert relprop.check(wrapped, inputs).ledger.value == relprop.check(model, inputs).ledger.value
    tokens = Tokens(inputs, torch.ones_like(inputs["input_ids"], dtype=torch.bool), tokenizer.mask_token_id)
    curves = [faithfulness(one, tokens, [torch.tensor([plain.scores])])[0]["aopc"] for one in (wrapped, model)]
    assert curves[0].summary() == curves[1].summary()


def own_scores(model: nn.Module, inputs: Any) -> torch.Tensor:
    return relprop.attribute(model, inputs, "negative").scores


class Softened(nn.Module):
    """A user's own wrapper that computes something."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs).logits / 2


def test_a_wrapper_that_computes_is_part_of_the_model() -> None:
    tokenizer = wordpiece()
    model = bert(tokenizer)
    inputs = relprop.Explainer(model, tokenizer).inputs(["a good film"])
    assert unwrapped(Softened(model)).module is model
    halved, whole = (relprop.attribute(one, inputs, 1).value for one in (Softened(model).eval(), model))
    torch.testing.assert_close(halved, whole / 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_be_watched_is_refused_in_a_sentence() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(ModelError, match=r"traced or scripted by torch\.jit; give the model that it was made from"):
        check_model(torch.jit.trace(layer, torch.zeros(1, 2)))
    with pytest.raises(ModelError, match="an exported program cannot be explained; give the model"):
        check_model(torch.export.export(layer, (torch.zeros(1, 2),)))
    with pytest.raises(ModelError, match=r"a model is a torch\.nn\.Module, got dict"):
        check_model({})
