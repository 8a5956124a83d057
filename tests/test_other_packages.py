"""Models and weights of packages that relprop does not need: timm, torchvision and torchao.

They are not installed with the tests (their builds must fit torch's own). In an environment that has them:

    python -m pytest -m slow tests/test_other_packages.py
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from relprop import attribute
from relprop.errors import UnruledOpError
from relprop.registry import METHODS

pytestmark = pytest.mark.slow


def package(name: str) -> Any:
    """It, or a skip: also where a build for another torch cannot be loaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return __import__(name, fromlist=["*"])
        except (ImportError, RuntimeError) as error:
            pytest.skip(f"{name} cannot be imported: {error}")


def timm_model(name: str, **options: Any) -> Any:
    return package("timm").create_model(name, pretrained=False, img_size=64, num_classes=5, **options)


def timm_swin(name: str) -> Any:
    small = {"window_size": 4, "depths": (1, 1, 1, 1), "embed_dim": 24, "num_heads": (1, 2, 4, 8)}
    return timm_model(name, **small)


def torchvision_swin(version: int) -> Any:
    swin = package("torchvision.models.swin_transformer")
    kinds = {2: {"block": swin.SwinTransformerBlockV2, "downsample_layer": swin.PatchMergingV2}}.get(version, {})
    return swin.SwinTransformer([4, 4], 24, [1, 1], [2, 2], [4, 4], num_classes=5, **kinds)


PICTURES = {
    "timm swin": (lambda: timm_swin("swin_tiny_patch4_window7_224"), 4),
    "timm swin v2": (lambda: timm_swin("swinv2_tiny_window8_256"), 4),
    "timm vit": (lambda: timm_model("vit_tiny_patch16_224", depth=2, embed_dim=48), 16),
    "timm beit": (lambda: timm_model("beit_base_patch16_224", depth=2, embed_dim=48, num_heads=4), 16),
    "torchvision swin": (lambda: torchvision_swin(1), 4),
    "torchvision swin v2": (lambda: torchvision_swin(2), 4),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_read_by_patches(name: str) -> None:
    """Also where states are [batch, height, width, features]: every patch tells its pixels, and the ledger closes."""
    make, patch = PICTURES[name]
    torch.manual_seed(0)
    model = make().eval().double()
    for parameter in model.parameters():  # zero biases and heads would hide mistakes
        torch.nn.init.normal_(parameter, std=0.05)
    pixels = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    found = attribute(model, pixels, 1, ledger=True)
    assert found.ledger is not None
    assert all(ledger.closes(1e-8) for ledger in found.ledger)
    assert torch.allclose(found.value, model(pixels)[:, 1], rtol=1e-12)
    side = 64 // patch
    windows = next(iter(found.windows.values()))[0, -side * side :]
    corners = torch.cartesian_prod(torch.arange(0, 64, patch), torch.arange(0, 64, patch))
    assert windows[:, 1:, 0].tolist() == corners.tolist()
    assert windows[:, 1:, 1].tolist() == (corners + patch - 1).tolist()
    alone = attribute(model, pixels[1:], 1)
    assert torch.allclose(alone.scores[0], found.scores[1], rtol=1e-9, atol=1e-12)


WEIGHTS = ("Int8WeightOnlyConfig", "IntxWeightOnlyConfig", "Float8WeightOnlyConfig")
ACTIVATIONS = ("Int8DynamicActivationInt8WeightConfig", "Int8DynamicActivationIntxWeightConfig")
IDS = torch.tensor([[2, 5, 6, 7, 8, 3], [2, 9, 6, 7, 8, 3]])


def bert() -> BertForSequenceClassification:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    return BertForSequenceClassification(BertConfig(vocab_size=50, num_labels=3, initializer_range=0.2, **sizes)).eval()


def quantised(model: Any, config: str) -> Any:
    quantization = package("torchao.quantization")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantization.quantize_(model, getattr(quantization, config)())
    return model


@pytest.mark.parametrize("method", ["lrp_ah_ln", "lrp_conservative", "gradient_x_input", "occlusion"])
@pytest.mark.parametrize("config", WEIGHTS)
def test_weights_of_few_bits(config: str, method: str) -> None:
    """Scores of the same model with rounded weights, and its own value."""
    model = quantised(bert(), config)
    found, whole = (attribute(one, {"input_ids": IDS}, 1, method) for one in (model, bert()))
    assert torch.allclose(found.value, model(IDS).logits[:, 1])
    assert torch.corrcoef(torch.stack([found.scores.flatten(), whole.scores.flatten()]))[0, 1] > 0.9


@pytest.mark.parametrize("before", [False, True], ids=["at once", "explained before"])
@pytest.mark.parametrize("method", [name for name in METHODS.names() if METHODS[name].gradients])
@pytest.mark.parametrize("config", ACTIVATIONS)
def test_rounded_activations_are_refused(config: str, method: str, before: bool) -> None:
    """They have no gradient: scores near 0 would come out. Also of a model that is quantised after it was explained."""
    package("torchao.quantization")
    model, options = bert(), {"mask": torch.ones(2, 4)} if method == "mask_lrp" else {}
    if before:
        attribute(model, {"input_ids": IDS}, 1, method, **options)
    with pytest.raises(UnruledOpError, match=r'"linear".* without a gradient|a layer with \w+ weights'):
        attribute(quantised(model, config), {"input_ids": IDS}, 1, method, **options)
