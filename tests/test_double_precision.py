"""Relevance that magnifies rounding errors is carried in float64; the model and its numbers stay as they are."""

import copy
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn

from models import tiny
from relprop import Explainer, attribute
from relprop.engine import double_precision, passes
from relprop.engine.double_precision import DoublePrecision
from relprop.heads import SAMPLE, read_conllu
from test_untouched import assert_untouched, state_of

FLOAT32 = "relevance was carried in float32"
SENTENCES = [" ".join(word.text for word in one.words) for one in read_conllu(SAMPLE)[:64]]


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest score."""
    return float((found.double() - expected.double()).abs().max() / expected.double().abs().max())


@pytest.mark.parametrize(
    ("method", "options", "count"),
    [("lrp", {}, 12), ("partial_lrp", {}, 48), ("transformer_attribution", {}, 8), ("mask_lrp", {}, 8),
     ("mask_lrp", {"variant": "released"}, 8), ("lrp", {"variant": "released"}, 8),
     pytest.param("lrp", {}, 64, marks=pytest.mark.slow), pytest.param("partial_lrp", {}, 64, marks=pytest.mark.slow)],
)  # fmt: skip
def test_real_sentences_in_a_batch_are_as_one_by_one(method: str, options: dict[str, Any], count: int) -> None:
    """In float32 `lrp` was off by up to 6 % of the largest score."""
    explainer, texts = Explainer("sentiment"), SENTENCES[:count]
    together = explainer(texts, method=method, batch_size=16, progress=False, **options)
    for one, text in zip(together, texts, strict=True):
        alone = explainer([text], method=method, progress=False, **options)[0]
        assert distance(torch.tensor(one.scores), torch.tensor(alone.scores)) < 1e-4, text


@pytest.mark.parametrize("method", ["lrp", "partial_lrp"])
@pytest.mark.parametrize(
    "name",
    ["BertForSequenceClassification", "LlamaForSequenceClassification", "GPT2ForSequenceClassification",
     "BartForSequenceClassification", "ViTForImageClassification"],
)  # fmt: skip
def test_scores_are_those_of_the_model_in_float64(name: str, method: str) -> None:
    """In the model's dtype; the value is its own to the bit. (Llama's norms compute in float32 even there.)"""
    model, inputs = tiny(name, torch.float32)
    if method == "partial_lrp" and name.startswith("Bart"):
        pytest.skip("an encoder-decoder has no one map per block")
    before = state_of(model)
    found = attribute(model, inputs, 1, method)
    assert_untouched(before, model)
    exact = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
    expected = attribute(copy.deepcopy(model).double(), exact, 1, method)
    for part, scores in found.parts.items():
        assert scores.dtype == torch.float32
        assert distance(scores, expected.parts[part]) < 1e-5
    assert torch.equal(found.value, attribute(model, inputs, 1, "gradient_x_input").value)
    assert not any(FLOAT32 in sentence for sentence in found.warnings)


class Twin(nn.Module):
    """Two tokenwise layers and a residual sum. `strict`: with casts, buffers and checks of single precision."""

    scratch: Tensor

    def __init__(self, strict: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.mix, self.head = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.register_buffer("scratch", torch.zeros(1, 5, 6))
        self.strict = strict
        self.kept: Tensor | None = None

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        y = self.mix(x)
        if self.strict:
            assert x.dtype == y.dtype == self.mix.weight.dtype == torch.float32
            self.kept = torch.ones(6) if self.kept is None else self.kept
            y = y.float().to(torch.float32) * self.kept * torch.finfo(y.dtype).tiny / torch.finfo(torch.float32).tiny
            rows = torch.zeros(y.shape)
            rows[:, :] = y
            self.scratch.copy_(rows)
            y = self.scratch.type_as(x)
            weights = torch.zeros(5, 5).softmax(-1, dtype=torch.float32)
        else:
            weights = torch.full((5, 5), 0.2, dtype=x.dtype)
        return self.head((weights @ (x + y)).tanh()[:, 0])


def test_a_model_that_casts_writes_and_checks_its_dtype() -> None:
    """It sees the dtypes that it knows, and computes in float64 all the same."""
    ids = torch.tensor([[1, 7, 3, 9, 2]])
    strict = Twin(strict=True)
    found = attribute(strict, {"input_ids": ids}, 1, "lrp")
    expected = attribute(Twin(strict=False).double(), {"input_ids": ids}, 1, "lrp")
    assert distance(found.scores, expected.scores) < 1e-6
    assert not any(FLOAT32 in sentence for sentence in found.warnings)
    tensors = (*strict.parameters(), *strict.buffers(), strict.kept)
    assert {one.dtype for one in tensors if one is not None} == {torch.float32}


def test_a_device_without_float64_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(double_precision, "_has_double", lambda device: False)
    model, inputs = tiny("BertForSequenceClassification", torch.float32)
    found = attribute(model, inputs, 1, "lrp")
    assert any(FLOAT32 in one and 'the device "cpu" has no float64' in one for one in found.warnings)
    assert found.scores.dtype == torch.float32


@pytest.mark.parametrize(("other", "reason"), [(1.5, "it gives other numbers in float64"), (None, "does not run")])
def test_where_float64_does_not_do_float32_is_used_and_told(
    monkeypatch: pytest.MonkeyPatch, other: float | None, reason: str
) -> None:
    """A model that computes something else in float64, or nothing."""
    model, inputs = Twin(strict=False), {"input_ids": torch.tensor([[1, 7, 3, 9, 2]])}

    def forward(input_ids: Tensor) -> Tensor:
        result = Twin.forward(model, input_ids)
        with torch._C.DisableTorchFunction():
            if result.dtype == torch.float32:
                return result
        if other is None:
            raise TypeError("expected float32")
        return result * other

    model.forward = forward  # type: ignore[method-assign]
    found = attribute(model, inputs, 1, "lrp")
    assert any(FLOAT32 in one and reason in one for one in found.warnings)
    with monkeypatch.context() as patch:
        patch.setattr(passes, "in_single_precision", lambda model: False)
        assert torch.equal(found.scores, attribute(model, inputs, 1, "lrp").scores)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast_are_the_users_choice(dtype: torch.dtype) -> None:
    """They run as they are, with the warning that they had."""
    model, inputs = tiny("BertForSequenceClassification", torch.float32)
    with torch.autocast("cpu", dtype):
        assert any("too coarse" in one for one in attribute(model, inputs, 1, "lrp").warnings)
    half = copy.deepcopy(model).to(dtype)
    assert any("too coarse" in one for one in attribute(half, inputs, 1, "lrp").warnings)


def test_no_copy_of_all_parameters_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the forward pass no cast parameter is alive, though the graph needs them on its way back."""
    model, inputs = tiny("BertForSequenceClassification", torch.float32)
    cast: list[ref[Tensor]] = []
    wide = DoublePrecision._wide

    def noted(self: DoublePrecision, value: Any) -> Any:
        result = wide(self, value)
        if isinstance(value, nn.Parameter):
            cast.append(ref(result))
        return result

    monkeypatch.setattr(DoublePrecision, "_wide", noted)
    alive: list[int] = []

    def target(outputs: Any) -> Tensor:
        alive.append(sum(one() is not None for one in cast))
        logits: Tensor = outputs.logits
        return logits[:, 1]

    found = attribute(model, inputs, target, "lrp")
    assert len(cast) > 20
    assert alive[-1] == 0
    assert found.scores.abs().sum() > 0
