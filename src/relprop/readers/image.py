"""Pictures: opened, made pixels, and the scores of patches or pixels put back on the picture."""

from __future__ import annotations

import inspect
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NoReturn

import torch
from PIL import Image
from torch import Tensor, nn

from relprop.engine.model_call import device_of
from relprop.engine.wrappers import arguments_of
from relprop.errors import InputError, ModelError
from relprop.readers.patches import patch_grid
from relprop.readers.picture import Numbers, Processor, frame, opened_picture, pixels
from relprop.render.image.part import Frame, ImagePart
from relprop.types import Attribution


@dataclass(frozen=True)
class PixelRow:
    """One image as the model will read it."""

    picture: Image.Image
    values: Tensor  # [colours, height, width]
    frame: Frame
    name: str


class ImageReader:
    """A model's image processor, and where its pixels lie on a picture."""

    name = "images"
    explains: tuple[str, ...] = ("pixel_values",)
    pads_right = True  # pictures of equal size share a batch

    def __init__(self, model: nn.Module, processor: Processor) -> None:
        self.model = model
        self.processor = processor
        taken = arguments_of(model)
        if "pixel_values" not in taken:  # models outside of transformers call their first argument as they like
            self.explains = (next(iter(inspect.signature(model.forward).parameters)),)
        self._frames: dict[tuple[int, int], Frame] = {}

    def read(self, given: object, max_length: int | None = None) -> PixelRow:
        if max_length is not None:
            raise InputError("max_length is for texts; an image is read whole")
        if isinstance(given, tuple) and "input_ids" in arguments_of(self.model):
            raise InputError(
                "to read a text beside a picture the explainer needs the model's processor, with an image processor "
                "and a tokenizer: Explainer(model, processor)"
            )
        picture = opened_picture(given)
        values = pixels(self.processor, picture)
        if picture.size not in self._frames:
            self._frames[picture.size] = frame(self.processor, picture.size)
        name = os.path.basename(os.fsdecode(given)) if isinstance(given, str | os.PathLike) else ""
        return PixelRow(picture, values, self._frames[picture.size], name)

    def batches(self, rows: Sequence[PixelRow], size: int) -> list[list[int]]:
        """Images of equal size together: processors may keep a picture's shape."""
        order = sorted(range(len(rows)), key=lambda i: tuple(rows[i].values.shape))
        groups = [list(group) for _, group in groupby(order, key=lambda i: rows[i].values.shape)]
        return [group[k : k + size] for group in groups for k in range(0, len(group), size)]

    def inputs(self, rows: Sequence[PixelRow]) -> dict[str, Tensor]:
        return {self.explains[0]: self._as_input(torch.stack([row.values for row in rows]))}

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[PixelRow], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        """What options mean for images: integrated gradients starts from black."""
        if "baseline" not in known:
            return given
        black = [pixels(self.processor, Image.new("RGB", row.picture.size)) for row in rows]
        (name,) = self.explains
        return {"baseline": {name: torch.stack(black).to(inputs[name])}, **given}

    def hidden(self, rows: Sequence[PixelRow], inputs: dict[str, Tensor], replacement: str | int | None) -> NoReturn:
        raise InputError("evaluate compares methods on texts and graphs; for images see relprop.metrics")

    def parts(self, row: PixelRow, found: Attribution, number: int) -> tuple[ImagePart, ...]:
        scores, rest = _on_grid(found, number, row.values)
        (name,) = found.parts
        return (ImagePart(name, row.picture.size, scores, row.frame, rest, row.name, row.picture),)

    def _as_input(self, values: Tensor) -> Tensor:
        """Where and as what the model computes."""
        first = next(parameter for parameter in self.model.parameters() if parameter.is_floating_point())
        return values.to(device_of(self.model), first.dtype)


def _on_grid(found: Attribution, number: int, values: Tensor) -> tuple[Numbers, float]:
    """Scores of patches or of pixels as [rows, columns], and what other tokens have."""
    ((part, every),) = found.parts.items()
    scores = every[number].double().cpu()
    colours, height, width = values.shape[-3:]
    if len(scores) == height * width:
        return scores.view(height, width).numpy(), 0.0
    if len(scores) == colours * height * width:
        return scores.view(colours, height, width).sum(0).numpy(), 0.0
    windows = found.windows.get(part)
    if windows is None:
        raise ModelError(f'"{found.method}" gives {len(scores)} scores that are no windows of the image')
    grid = patch_grid(windows[number if len(windows) > 1 else 0])  # several targets share a pass over one example
    others = torch.ones(len(scores), dtype=torch.bool).index_fill(0, grid.places, False)
    return scores[grid.places].view(grid.rows, grid.columns).numpy(), scores[others].sum().item()
