"""Transforms of torchvision and timm in the place of an image processor: a picture -> a tensor of pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from relprop.errors import InputError, ModelError
from relprop.targets import Labels


class ImageTransform:
    """A function of one picture, called as image processors are. `labels`: the class names that came with it."""

    model_input_names = ("pixel_values",)

    def __init__(self, transform: Callable[[Image.Image], Tensor], labels: Labels | None = None) -> None:
        self.transform = transform
        self.labels = labels
        self._check()

    def __call__(self, images: Sequence[Image.Image], return_tensors: str = "pt") -> dict[str, Tensor]:
        return {"pixel_values": torch.stack([self.transform(image) for image in images])}

    def _check(self) -> None:
        """Raise unless the same picture becomes the same pixels."""
        noise = Image.effect_noise((256, 256), 64).convert("RGB")
        first, second = self.transform(noise), self.transform(noise)
        if not isinstance(first, Tensor) or first.dim() != 3 or not first.is_floating_point():
            what = f"{first.dtype} {list(first.shape)}" if isinstance(first, Tensor) else type(first).__name__
            raise InputError(
                f"a transform turns a picture into floats [colours, height, width], this one gives {what}: end it "
                "with ToTensor and Normalize, as the model was trained"
            )
        if first.shape != second.shape or not torch.equal(first, second):
            raise InputError("the transform is random, as for training: give the one for evaluation")


def labels_with(processor: object) -> Labels | None:
    """The class names that came with a transform."""
    return processor.labels if isinstance(processor, ImageTransform) else None


def as_processor(model: nn.Module, given: Any) -> Any:
    """What was given, made an image processor where it is a transform, timm's data config or torchvision's weights.

    Where nothing was given, a model of timm says itself how it reads pictures.
    """
    if given is None and isinstance(getattr(model, "pretrained_cfg", None), Mapping):
        return _of_timm(_timm_data().resolve_data_config({}, model=model))
    if isinstance(given, Mapping) and {"input_size", "mean"} <= set(given):
        return _of_timm(given)
    if hasattr(given, "transforms") and isinstance(getattr(given, "meta", None), Mapping):  # weights of torchvision
        names = given.meta.get("categories")
        return ImageTransform(given.transforms(), dict(enumerate(names)) if names else None)
    if callable(given) and not hasattr(given, "model_input_names") and not hasattr(given, "tokenizer"):
        if hasattr(model, "encode_image") and hasattr(model, "encode_text"):
            raise ModelError(
                "the model compares pictures with texts, as open_clip's do, and a picture alone has no score: explain "
                "relprop.attribute(model, {picture and text}, target=a function of both features), or a module that "
                "scores pictures by fixed texts"
            )
        return ImageTransform(given)
    return given


def _of_timm(config: Mapping[str, Any]) -> ImageTransform:
    return ImageTransform(_timm_data().create_transform(**{**config, "is_training": False}))


def _timm_data() -> Any:
    try:
        import timm.data
    except ImportError:
        raise ModelError("timm's way to read pictures needs the timm package: pip install timm") from None
    return timm.data
