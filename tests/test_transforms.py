"""Models of pictures outside of transformers: transforms in place of a processor, arguments and labels of their own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import relprop
from relprop.errors import InputError, ModelError, RelpropError, TargetError

NAMES = ("cat", "dog", "bird")
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8))


class PlainViT(nn.Module):
    """As timm and torchvision write it: no config, one argument `x`, a tensor of logits."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(3, 16, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.patches(x).flatten(2).mT
        out: Tensor = self.head(self.blocks(torch.cat([self.token.expand(len(x), -1, -1), rows], 1))[:, 0])
        return out


def transform(picture: Image.Image) -> Tensor:
    """The middle square, scaled, as a tensor."""
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    square = picture.crop((left, top, left + side, top + side)).resize((32, 32), Image.Resampling.BILINEAR)
    return (torch.from_numpy(np.array(square)).permute(2, 0, 1).float() / 255 - 0.5) / 0.25


def test_a_transform_reads_pictures() -> None:
    """Value and scores are the model's own; the frame is the square that the transform shows."""
    model = PlainViT().eval()
    explainer = relprop.Explainer(model, transform)
    found = explainer(PICTURE, target=1)
    pixels = transform(PICTURE)[None]
    assert found.value == pytest.approx(model(pixels)[0, 1].item(), abs=1e-6)
    own = relprop.attribute(model, {"x": pixels}, 1, "lrp_full")
    assert found.part.name == "x"
    assert found.part.scores.shape == (4, 4)
    assert found.accounted == pytest.approx(own.scores.sum().item(), abs=1e-5)
    frame = found.part.frame
    assert (frame.left, frame.right) == pytest.approx((10, 50), abs=0.5)
    both = explainer([PICTURE, PICTURE.rotate(90)], target=1)
    assert both[0].part.scores == pytest.approx(found.part.scores, abs=1e-5)
    assert explainer(PICTURE, method="integrated_gradients", target=1).accounted


@pytest.mark.parametrize("labels", [NAMES, dict(enumerate(NAMES))], ids=["a sequence", "a table"])
def test_labels_can_be_given(labels: Any) -> None:
    """For targets, predictions and differences; the numbers are those of the indices."""
    explainer, plain = (relprop.Explainer(PlainViT().eval(), transform, labels=one) for one in (labels, None))
    assert explainer.labels == dict(enumerate(NAMES))
    found, index = explainer(PICTURE, target="Bird"), plain(PICTURE, target=2)
    assert (found.target, index.target) == ("bird", "2")
    assert found.value == index.value
    assert found.prediction == NAMES[int(index.prediction)]
    assert explainer(PICTURE).target == explainer(PICTURE).prediction
    assert explainer(PICTURE, target=("dog", 0)).target == "dog - cat"
    with pytest.raises(RelpropError, match='did you mean "bird"'):
        explainer(PICTURE, target="brid")


def test_labels_must_fit() -> None:
    with pytest.raises(TargetError, match="2 labels were given, and the model has 3 classes"):
        relprop.Explainer(PlainViT().eval(), transform, labels=["cat", "dog"])(PICTURE)
    with pytest.raises(TargetError, match="labels name the classes of a classifier"):
        relprop.Explainer("stories", labels=["a"])


def test_labels_in_place_of_those_of_a_config() -> None:
    """A classifier of texts with names that say nothing."""
    explainer = relprop.Explainer("sentiment", labels=["boo", "hooray"])
    found = explainer("a gorgeous, witty, seductive movie.", target="hooray")
    assert (found.target, found.prediction) == ("hooray", "hooray")
    assert found.scores == relprop.explain("a gorgeous, witty, seductive movie.", target="positive").scores


def test_weights_of_torchvision_bring_transform_and_labels() -> None:
    """Their enum has `transforms()` and `meta["categories"]`."""
    weights = SimpleNamespace(transforms=lambda: transform, meta={"categories": list(NAMES)})
    found = relprop.Explainer(PlainViT().eval(), weights)(PICTURE, target="dog")
    assert found.value == relprop.Explainer(PlainViT().eval(), transform)(PICTURE, target=1).value


WRONG: dict[str, tuple[Any, str]] = {
    "random": (lambda picture: transform(picture) + torch.randn(1), "random, as for training"),
    "a picture": (lambda picture: picture, "gives Image: end it with ToTensor"),
    "whole numbers": (lambda picture: transform(picture).byte(), "gives torch.uint8"),
    "a batch": (lambda picture: transform(picture)[None], r"gives torch.float32 \[1, 3, 32, 32\]"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_transforms_that_cannot_be_used(wrong: str) -> None:
    given, sentence = WRONG[wrong]
    with pytest.raises(InputError, match=sentence):
        relprop.Explainer(PlainViT().eval(), given)


def test_a_wrapped_model_of_pictures() -> None:
    """The argument's name and the labels are found inside."""
    model = PlainViT().eval()
    found = relprop.Explainer(nn.DataParallel(model), transform, labels=NAMES)(PICTURE, target="dog")
    assert found.value == relprop.Explainer(model, transform)(PICTURE, target=1).value


def test_a_picture_alone_has_no_score_in_a_model_of_pictures_and_texts() -> None:
    """Its features are no classes."""
    model = PlainViT().eval()
    model.encode_image = model.encode_text = model.forward
    with pytest.raises(ModelError, match="compares pictures with texts"):
        relprop.Explainer(model, transform)


@pytest.fixture(scope="module")
def vision() -> Any:
    """torchvision; a build for another torch has no compiled operations, which no Transformer needs."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        torch.ops.torchvision.nms  # noqa: B018
    except AttributeError:
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return pytest.importorskip("torchvision")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "eva02_tiny_patch14_224"])
def test_models_of_timm(vision: Any, name: str) -> None:
    """By themselves, by their data config and by its transform: the same scores, and a ledger that closes."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False).eval()
    config = timm.data.resolve_data_config({}, model=model)
    made = timm.data.create_transform(**config)
    found = [relprop.Explainer(model, one)(PICTURE, target=7) for one in (None, config, made)]
    assert found[0].value == pytest.approx(model(made(PICTURE)[None])[0, 7].item(), abs=1e-5)
    assert all(np.array_equal(one.part.scores, found[0].part.scores) for one in found)
    assert found[0].ledger is not None
    assert found[0].ledger.closes(1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["vit_b_32", "swin_t"])
def test_models_of_torchvision(vision: Any, name: str) -> None:
    torch.manual_seed(0)
    model = vision.models.get_model(name).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    weights = vision.models.get_model_weights(name).DEFAULT
    found = relprop.Explainer(model, weights)(PICTURE, target="goldfish")
    assert found.value == pytest.approx(model(weights.transforms()(PICTURE)[None])[0, 1].item(), abs=1e-4)
    assert np.abs(found.part.scores).max() > 0
    assert found.ledger is not None
    assert found.ledger.closes(1e-2)


class ByTexts(nn.Module):
    """A classifier of pictures by fixed texts, as docs/wrappers.md has it."""

    def __init__(self, clip: Any, texts: Tensor) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("texts", clip.encode_text(texts, normalize=True).detach())

    def forward(self, image: Tensor) -> Tensor:
        scores: Tensor = self.clip.logit_scale.exp() * self.clip.encode_image(image, normalize=True) @ self.texts.T
        return scores


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_models_of_open_clip(vision: Any) -> None:
    """A similarity has two parts whose ledger closes; a classifier by fixed texts is one of pictures."""
    open_clip = pytest.importorskip("open_clip")
    torch.manual_seed(0)
    sizes = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8, "head_width": 16}
    texts = {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 4, "layers": 2}
    model = open_clip.model.CLIP(32, sizes, texts).eval()
    tokenizer = open_clip.SimpleTokenizer(context_length=16)
    given = {"image": transform(PICTURE)[None], "text": tokenizer(["a photo of a dog"])}
    found = relprop.attribute(model, given, lambda out: (out[0] * out[1]).sum(-1) * out[2], ledger=True)
    assert {name: tuple(one.shape) for name, one in found.parts.items()} == {"image": (1, 17), "text": (1, 16)}
    assert found.ledger is not None
    assert found.ledger[0].closes(1e-3)
    network = ByTexts(model, tokenizer(list(NAMES))).eval()
    one = relprop.Explainer(network, transform, labels=NAMES)(PICTURE, target="dog")
    assert one.value == pytest.approx(network(transform(PICTURE)[None])[0, 1].item(), abs=1e-5)
    assert one.part.scores.shape == (4, 4)
