"""Videos: frames opened, made pixels, and the scores of patches put back on the frames."""

from __future__ import annotations

import inspect
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from PIL import Image, ImageSequence
from torch import Tensor, nn

from relprop.engine.model_call import device_of
from relprop.errors import InputError, ModelError
from relprop.model_config import config_value
from relprop.readers.picture import Picture, frame, opened_picture, reading
from relprop.render.image.part import Frame
from relprop.render.video.part import VideoPart
from relprop.types import Attribution

FORMS = "a video is an animated file (a GIF), a list or tuple of pictures, or an array [frames, height, width, 3]"


@dataclass(frozen=True)
class VideoRow:
    """One video as the model will read it."""

    frames: tuple[Picture, ...]  # those that the model reads
    numbers: tuple[int, ...]  # and their numbers in the video that was given
    values: Tensor  # [frames, colours, height, width]
    frame: Frame
    name: str


class VideoReader:
    """A model's processor of frames, and where its pixels lie on them."""

    name = "videos"

    def __init__(self, model: nn.Module, processor: Any) -> None:
        self.model = model
        self.processor = processor
        self._argument: str = getattr(model, "main_input_name", "pixel_values")
        self._by_videos = "images" not in inspect.signature(type(processor).__call__).parameters
        self._frames: dict[tuple[int, int], Frame] = {}

    @property
    def explains(self) -> tuple[str, ...]:
        return (self._argument,)

    @staticmethod
    def is_one(given: object) -> bool:
        """Whether a list is one video: of pictures, not of videos. An array [frames, height, width, 3] is one too."""
        if isinstance(given, Tensor | np.ndarray):
            return given.ndim == 4
        return isinstance(given, list | tuple) and bool(given) and all(_is_picture(one) for one in given)

    def read(self, given: object, max_length: int | None = None) -> VideoRow:
        if max_length is not None:
            raise InputError("max_length is for texts; of a video the model reads as many frames as it has places for")
        frames = opened_frames(given)
        if len({one.size for one in frames}) > 1:
            raise InputError(f"the frames of a video are of one size, got {sorted({one.size for one in frames})}")
        numbers = self._chosen(len(frames))
        own = tuple(frames[number] for number in numbers)
        if own[0].size not in self._frames:
            self._frames[own[0].size] = frame(self._first, own[0].size)
        name = os.path.basename(os.fsdecode(given)) if isinstance(given, str | os.PathLike) else ""
        return VideoRow(own, numbers, self._pixels(own), self._frames[own[0].size], name)

    def _chosen(self, count: int) -> tuple[int, ...]:
        """The frames that the model reads: all, or as many as it has places for, evenly chosen."""
        wanted = config_value(self.model, "num_frames", config_value(self.model, "frames_per_clip"))
        if not isinstance(wanted, int) or wanted == count:
            return tuple(range(count))
        if count < wanted:
            raise InputError(f"the model reads {wanted} frames, and the video has {count}: give one with more frames")
        return tuple(np.linspace(0, count - 1, wanted).round().astype(int).tolist())

    def _pixels(self, frames: Sequence[Picture]) -> Tensor:
        try:
            given = {"videos": [list(frames)]} if self._by_videos else {"images": list(frames)}
            found = self.processor(**given, return_tensors="pt")
        except Exception as error:  # a user's own processor
            reason = next(iter(str(error).splitlines()), "")
            raise InputError(f"the video processor failed: {type(error).__name__}: {reason}") from error
        values = next((value for value in found.values() if isinstance(value, Tensor) and value.dim() == 5), None)
        if values is None or values.shape[:2] != (1, len(frames)):
            raise ModelError("the video processor should give pixels [1, frames, colours, height, width]")
        return values[0]

    def _first(self, images: Sequence[Picture], return_tensors: str) -> dict[str, object]:
        """The processor as one of single pictures."""
        return {"pixel_values": self._pixels(images)}

    def batches(self, rows: Sequence[VideoRow], size: int) -> list[list[int]]:
        shapes = sorted({tuple(row.values.shape) for row in rows})
        groups = [[i for i, row in enumerate(rows) if tuple(row.values.shape) == shape] for shape in shapes]
        return [group[k : k + size] for group in groups for k in range(0, len(group), size)]

    def inputs(self, rows: Sequence[VideoRow]) -> dict[str, Tensor]:
        first = next(parameter for parameter in self.model.parameters() if parameter.is_floating_point())
        return {self._argument: torch.stack([row.values for row in rows]).to(device_of(self.model), first.dtype)}

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[VideoRow], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        """What options mean for videos: integrated gradients starts from black."""
        if "baseline" not in known:
            return given
        black = [self._pixels([Image.new("RGB", one.size) for one in row.frames]) for row in rows]
        return {"baseline": torch.stack(black).to(inputs[self._argument]), **given}

    def hidden(self, rows: Sequence[VideoRow], inputs: dict[str, Tensor], replacement: str | int | None) -> NoReturn:
        raise InputError("evaluate compares methods on texts and graphs, not on videos")

    def parts(self, row: VideoRow, found: Attribution, number: int) -> tuple[VideoPart, ...]:
        scores, times, rest = _on_frames(found, number, row.values)
        ends = tuple((row.numbers[first], row.numbers[last]) for first, last in times)
        images = tuple(row.frames[first] for first, _ in times)
        (name,) = found.parts
        size = row.frames[0].size
        return (VideoPart(name, size, scores.numpy(), row.frame, ends, rest, row.name, images),)


def _on_frames(found: Attribution, number: int, values: Tensor) -> tuple[Tensor, list[tuple[int, int]], float]:
    """Scores as [times, rows, columns], the first and last frame of each time, and what other tokens have."""
    ((part, every),) = found.parts.items()
    scores = every[number].double().cpu()
    frames, colours, height, width = values.shape
    for kinds in (1, colours):
        if len(scores) == frames * kinds * height * width:
            single = [(i, i) for i in range(frames)]
            return scores.view(frames, kinds, height, width).sum(1), single, 0.0
    windows = found.windows.get(part)
    if windows is None or windows.shape[-2] != values.dim():
        raise ModelError(f'"{found.method}" gives {len(scores)} scores that are no windows of the video')
    return _on_grid(scores, windows[number].cpu())


def _on_grid(scores: Tensor, windows: Tensor) -> tuple[Tensor, list[tuple[int, int]], float]:
    """Windows [units, (frames, colours, down, across), (first, last)] side by side in space and time."""
    patches = torch.nonzero((windows[..., 0] <= windows[..., 1]).all(1)).flatten()
    middle = windows[patches][:, (0, 2, 3)].sum(-1)
    places = [torch.unique(middle[:, axis], return_inverse=True)[1] for axis in range(3)]
    counts = [int(place.max()) + 1 for place in places]
    order = (places[0] * counts[1] + places[1]) * counts[2] + places[2]
    if not torch.equal(order.sort().values, torch.arange(counts[0] * counts[1] * counts[2])):
        raise ModelError(
            "the model's rows read windows of the video that lie on no grid: use a method that scores pixels "
            '(integrated_gradients, or at="input" where it is an option)'
        )
    patches = patches[order.argsort()]
    others = torch.ones(len(scores), dtype=torch.bool).index_fill(0, patches, False)
    ends = windows[patches][:: counts[1] * counts[2], 0]
    times = [(int(first), int(last)) for first, last in ends.tolist()]
    return scores[patches].view(*counts), times, scores[others].sum().item()


def opened_frames(given: object) -> list[Picture]:
    """The frames of an animated file or picture, of several pictures, or of an array."""
    if isinstance(given, str | os.PathLike):
        with reading(f'"{os.fsdecode(given):.200}"'), Image.open(given) as image:
            return _animation(image)
    if isinstance(given, Image.Image):
        with reading("the video"):
            return _animation(given)
    if isinstance(given, list | tuple):
        return [opened_picture(one) for one in given] if given else _refuse(given)
    if isinstance(given, Tensor | np.ndarray) and given.ndim == 4 and len(given):
        return [opened_picture(one) for one in given]
    return _refuse(given)


def _animation(image: Picture) -> list[Picture]:
    frames = [opened_picture(one.copy()) for one in ImageSequence.Iterator(image)]
    if len(frames) < 2:
        raise InputError(f"the file holds one picture, no video: {FORMS}")
    return frames


def _refuse(given: object) -> NoReturn:
    shape = f" of shape {list(given.shape)}" if isinstance(given, Tensor | np.ndarray) else ""
    raise InputError(f"{FORMS}; got {type(given).__name__}{shape}")


def _is_picture(one: object) -> bool:
    if isinstance(one, Image.Image):
        return getattr(one, "n_frames", 1) == 1
    return isinstance(one, Tensor | np.ndarray) and one.ndim == 3
