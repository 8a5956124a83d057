"""Quantisers of other packages: explained where a gradient exists, refused in a sentence where there is none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import relprop
from relprop.errors import UnruledOpError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
TEXT = "a gorgeous, witty, seductive movie."


def torchao(model: nn.Module, name: str) -> nn.Module:
    quantization = pytest.importorskip("torchao.quantization")
    quantization.quantize_(model, getattr(quantization, name)())
    return model


def quanto(model: nn.Module) -> nn.Module:
    package = pytest.importorskip("optimum.quanto")
    package.quantize(model, weights=package.qint8)
    package.freeze(model)
    return model


def bitsandbytes(model: nn.Module, bits: int) -> nn.Module:
    package = pytest.importorskip("bitsandbytes")
    for name, layer in [(name, one) for name, one in model.named_modules() if isinstance(one, nn.Linear)]:
        sizes: dict[str, Any] = {"bias": layer.bias is not None}
        if bits == 8:
            made = package.nn.Linear8bitLt(layer.in_features, layer.out_features, has_fp16_weights=False, **sizes)
        else:
            made = package.nn.Linear4bit(layer.in_features, layer.out_features, compute_dtype=torch.float32, **sizes)
        made.load_state_dict(layer.state_dict())
        owner, _, last = name.rpartition(".")
        setattr(model.get_submodule(owner), last, made)
    return model.to("cpu")


QUANTISED: dict[str, Callable[[nn.Module], nn.Module]] = {
    "torchao, int8 weights": lambda model: torchao(model, "Int8WeightOnlyConfig"),
    "torchao, float8 weights": lambda model: torchao(model, "Float8WeightOnlyConfig"),
    "quanto, int8 weights": quanto,
    "bitsandbytes, 8 bits": lambda model: bitsandbytes(model, 8),
    "bitsandbytes, 4 bits": lambda model: bitsandbytes(model, 4),
}


@pytest.mark.parametrize("quantiser", QUANTISED)
@pytest.mark.parametrize("method", ["lrp_conservative", "lrp_ah_ln", "rollout", "occlusion"])
def test_rounded_weights_are_explained(quantiser: str, method: str) -> None:
    """The value is the quantised model's own; scores are near those of the float model."""
    plain = relprop.Explainer("sentiment")
    model = QUANTISED[quantiser](copy.deepcopy(plain.model)).eval()
    found = relprop.Explainer(model, plain.tokenizer)(TEXT, target=1, method=method)
    with torch.no_grad():
        value = model(**plain.inputs([TEXT])).logits[0, 1].item()
    assert found.value == pytest.approx(value, abs=1e-4)
    assert np.corrcoef(found.scores, plain(TEXT, target=1, method=method).scores)[0, 1] > 0.98


@pytest.mark.parametrize("method", ["lrp_conservative", "occlusion"])
def test_rounded_activations_have_no_gradient(method: str) -> None:
    plain = relprop.Explainer("sentiment")
    model = torchao(copy.deepcopy(plain.model), "Int8DynamicActivationInt8WeightConfig").eval()
    with pytest.raises(
        UnruledOpError, match=r'"linear" in ".*query".* explain the model as it was before quantisation'
    ):
        relprop.Explainer(model, plain.tokenizer)(TEXT, target=1, method=method)
