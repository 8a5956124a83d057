"""What relprop does on an accelerator that is not there; `test_devices.py` runs this file in a process of its own."""

import copy
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tokenizers_for_tests as tokenizers
from graph_models import ASPIRIN, MOLECULES, POINTS, graphormer, points
from language_models import explainer_of
from models import tiny
from relprop import Explainer, attribute
from relprop.errors import RelpropError
from relprop.graph.graph import batch
from relprop.heads import SAMPLE, identify, read_conllu
from relprop.metrics import Tokens, ceiling, model_randomisation, normalise, pixel_perturbation
from relprop.registry import METHODS
from relprop.types import Ledger
from remote_device import DEVICE, RemoteTensor, WrongDeviceError, remote_device, to_cpu, to_remote
from test_images import VIT
from test_questions import CONTEXT, QUESTION
from test_questions import reader as question_reader

TEXTS = ["a gorgeous, witty, seductive movie.", "dull."]


# The device itself.

REFUSED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "sum": lambda here, there: here + there,
    "in place": lambda here, there: there.add_(here),
    "product": lambda here, there: there @ here,
    "list": lambda here, there: torch.cat([here, there]),
    "index": lambda here, there: here[there.long()],
    "index of a gather": lambda here, there: there.gather(0, here.long()),
    "values": lambda here, there: there.index_put((here.long(),), here),
    "stack of numbers": lambda here, there: torch.stack([here.sum(), there.sum()]),
    "comparison": lambda here, there: torch.equal(here, there),
    "generator": lambda here, there: torch.rand(3, generator=torch.Generator(), device=there.device),
    "noise": lambda here, there: there.normal_(generator=torch.Generator()),
    "numpy": lambda here, there: np.asarray(there),
}
TAKEN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a number": lambda here, there: there + here.sum(),
    "an index": lambda here, there: there[here.long()],
    "a list as index": lambda here, there: there[[1, 0]],
    "moved": lambda here, there: here.to(there.device) + there,
    "moved like": lambda here, there: here.to(there) * there,
    "made there": lambda here, there: torch.arange(3, device=there.device) + there,
    "from a list": lambda here, there: torch.tensor([1.0, 2.0, 3.0], device=there.device) + there,
    "new": lambda here, there: there.new_tensor([1.0, 2.0, 3.0]) + there,
    "written to": lambda here, there: there.clone().copy_(here),
}


def here_and_there() -> tuple[Tensor, Tensor]:
    return torch.arange(3.0), RemoteTensor(torch.tensor([2.0, 0.0, 1.0]))


@pytest.mark.parametrize("name", REFUSED)
def test_the_device_refuses(name: str) -> None:
    with remote_device(), pytest.raises(WrongDeviceError):
        REFUSED[name](*here_and_there())


@pytest.mark.parametrize("name", TAKEN)
def test_the_device_takes(name: str) -> None:
    here, there = here_and_there()
    expected = TAKEN[name](here, there.numbers)
    with remote_device():
        found = TAKEN[name](here, there)
    assert found.device == DEVICE
    assert torch.equal(to_cpu(found), expected)


# Methods.


def padded(architecture: str) -> tuple[nn.Module, dict[str, Tensor]]:
    model, inputs = tiny(architecture)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["attention_mask"][1, 5:] = 0
    return model, inputs


@cache
def local(kind: str) -> tuple[nn.Module, Mapping[str, Tensor]]:
    """A tiny model and a batch of two."""
    if kind == "text":
        return padded("BertForSequenceClassification")
    if kind == "decoder":
        return padded("LlamaForSequenceClassification")
    if kind == "image":
        return tiny("ViTForImageClassification")
    graphs = [points(4, [(0, 1), (1, 2), (2, 3)]), points(3, [(0, 1), (1, 2)], 1)]
    return graphormer(POINTS), batch(graphs, dtype=torch.float64)


@cache
def remote(kind: str) -> tuple[nn.Module, Mapping[str, Tensor]]:
    model, inputs = local(kind)
    return to_remote(copy.deepcopy(model)), {name: RemoteTensor(value) for name, value in inputs.items()}


FEW = {"steps": 3, "samples": 3}  # of a path or of noise: enough to run every line


def assert_same(kind: str, method: str, target: object = 1, **options: object) -> None:
    options |= {name: count for name, count in FEW.items() if name in METHODS[method].options}
    expected = attribute(*local(kind), target, method, **options)
    with remote_device():
        found = attribute(*remote(kind), target, method, **options)
    for one, other in ((found.scores, expected.scores), (found.value, expected.value)):
        torch.testing.assert_close(to_cpu(one), other, rtol=1e-9, atol=1e-9 * float(other.abs().max()))
    for own, known in zip(found.ledger or (), expected.ledger or (), strict=True):
        assert booked(own) == pytest.approx(booked(known), rel=1e-9, abs=1e-9 * abs(known.value))


def booked(ledger: Ledger) -> dict[str, float]:
    """What went where. Strides may differ by device, and with them the calls that change nothing."""
    totals = Counter[str]()
    for entry in ledger.entries:
        totals[entry.kind] += entry.value
    return dict(totals) | {"value": ledger.value}


@pytest.mark.sliced
@pytest.mark.parametrize("method", [record.name for record in METHODS])
@pytest.mark.parametrize("kind", ["text", "image", "graph"])
def test_every_method_stays_on_the_device(kind: str, method: str) -> None:
    assert_same(kind, method)
    for option in ("ledger", "checkpoint"):
        if option in METHODS[method].options:
            assert_same(kind, method, **{option: True})


@pytest.mark.sliced
@pytest.mark.parametrize("method", ["lrp_conservative", "transformer_attribution", "occlusion", "shapley"])
@pytest.mark.parametrize("target", [None, (1, 0), [0, 1], [None, (0, 1)]], ids=str)
@pytest.mark.parametrize("kind", ["text", "decoder"])
def test_every_target_stays_on_the_device(kind: str, target: object, method: str) -> None:
    assert_same(kind, method, target)


# A tensor made without its device is found. As a mistake in relprop would, and the model's own code does not, each of
# these makes its tensors on the CPU.


@pytest.mark.parametrize("factory", ["arange", "zeros", "full", "tensor", "eye"])
def test_a_forgotten_device_is_found(factory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = getattr(torch, factory)

    def forgetful(*args: Any, **kwargs: Any) -> Tensor:
        if sys._getframe(1).f_globals["__name__"].startswith("relprop."):
            kwargs.pop("device", None)
        return make(*args, **kwargs)  # type: ignore[no-any-return]

    failed = []
    fresh = remote.__wrapped__("text")  # nothing is known of it yet
    with remote_device():
        monkeypatch.setattr(torch, factory, forgetful)
        for method in ("lrp_conservative", "rollout", "attention_last"):
            try:
                attribute(*fresh, 1, method)
            except (WrongDeviceError, RelpropError) as error:
                failed.append(isinstance(error, WrongDeviceError) or isinstance(error.__cause__, WrongDeviceError))
        monkeypatch.undo()
    assert any(failed)


# Readers, tasks and metrics: from what a user gives to what he gets.


@cache
def explainers() -> dict[str, Explainer]:
    return {
        "text": Explainer(*tokenizers.tiny("bert")),
        "image": Explainer(tiny("ViTForImageClassification")[0], VIT),
        "graph": Explainer(graphormer(MOLECULES)),
        "question": question_reader(),
        "decoder": explainer_of("LlamaForCausalLM"),
        "encoder-decoder": explainer_of("T5ForConditionalGeneration"),
    }


def pictures() -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8))


def scores(explanations: Any) -> list[np.ndarray]:
    return [np.asarray(part.scores) for one in explanations for part in one.parts]


def generated(explanation: Any) -> list[np.ndarray]:
    return [*scores([explanation]), np.array([step.value for step in explanation.steps])]


def table(evaluation: Any) -> list[np.ndarray]:
    return [curve.values for curves in evaluation.curves.values() for curve in curves.values()]


def heads_found(explainer: Explainer) -> list[np.ndarray]:
    sentence = read_conllu(SAMPLE)[0]
    return [np.asarray(identify(explainer.model, explainer.tokenizer, [sentence]).offset_rows)]


JOBS: dict[str, tuple[str, Callable[[Explainer], list[np.ndarray]]]] = {
    "texts": ("text", lambda e: scores(e(TEXTS, ledger=True))),
    "several methods": ("text", lambda e: scores(chain(*e(TEXTS, method=["rollout", "lrp", "gradient"])))),
    "images": ("image", lambda e: scores(e(pictures()))),
    "graphs": ("graph", lambda e: scores(e([ASPIRIN, "CCO"]))),
    "answers": ("question", lambda e: scores([e(question=QUESTION, context=CONTEXT)])),
    "next token": ("decoder", lambda e: scores(e(["w20 w21 w22", "w23"]))),
    "generation": ("decoder", lambda e: generated(e("w20 w21 w22", generate=2))),
    "seq2seq": ("encoder-decoder", lambda e: generated(e("w20 w21 w22", generate=2))),
    "heads": ("text", heads_found),
    "tokens hidden": ("text", lambda e: table(e.evaluate(TEXTS, methods=["lrp_conservative"], replacement=5))),
    "tokens left out": ("text", lambda e: table(e.evaluate(TEXTS, methods=["rollout"], replacement=None))),
    "nodes left out": ("graph", lambda e: table(e.evaluate([ASPIRIN, "CCO"], methods=["rollout"]))),
}


@pytest.mark.parametrize("job", JOBS)
def test_from_what_is_given_to_what_is_got(job: str) -> None:
    kind, work = JOBS[job]
    explainer = explainers()[kind]
    model = copy.deepcopy(explainer.model).double()
    expected = work(Explainer(model, explainer.tokenizer))
    with remote_device():
        found = work(Explainer(to_remote(model), explainer.tokenizer))
    assert found
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * np.nanmax(np.abs(other)))


def pixels_hidden(model: Any, inputs: Mapping[str, Tensor]) -> np.ndarray:
    images = inputs["pixel_values"].sigmoid()
    prepare = normalise([0.5] * images.shape[1], [0.5] * images.shape[1])
    found = pixel_perturbation(model, images, images.sum(1), [0, 1], prepare=prepare, fractions=[0.0, 0.5])
    return np.stack([found.positive, found.negative])


def best_order(model: Any, inputs: Mapping[str, Tensor]) -> np.ndarray:
    content = inputs["attention_mask"] != 0
    return ceiling(model, Tokens(inputs, content, 0), [0, 1], beam=1).values


def randomised(model: Any, inputs: Mapping[str, Tensor]) -> np.ndarray:
    return model_randomisation(model, lambda one: attribute(one, inputs, 1).scores).spearman


METRIC_JOBS: dict[str, tuple[str, Callable[[Any, Mapping[str, Tensor]], np.ndarray]]] = {
    "pixels": ("image", pixels_hidden),
    "ceiling": ("text", best_order),
    "randomisation": ("text", randomised),
}


@pytest.mark.parametrize("job", METRIC_JOBS)
def test_metrics_take_a_model_and_inputs_of_the_device(job: str) -> None:
    kind, work = METRIC_JOBS[job]
    expected = work(*local(kind))
    with remote_device():
        found = work(*remote(kind))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
