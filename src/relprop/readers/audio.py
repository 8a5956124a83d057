"""Sounds: read by the model's feature extractor, and the scores of frames put back on the seconds they were made of."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from relprop.engine.model_call import call, device_of, evaluating
from relprop.engine.restoring import restoring
from relprop.engine.wrappers import arguments_of
from relprop.errors import InputError, ModelError
from relprop.readers.sound import opened_sound
from relprop.readers.timeline import Timeline, band_hertz, features, timeline
from relprop.render.audio.part import AudioPart, Sound, Stretch
from relprop.types import Attribution

ARGUMENTS = ("input_values", "input_features")  # by which models of sound take their frames or samples
SHORT = 0.5  # seconds: sounds below it may be too short for a model, which is tried
FINEST = 0.01  # seconds: units that follow each other more closely are joined
JOINED = 0.02  # seconds of what they are joined to
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class SoundRow:
    """One sound as the model will read it."""

    sound: Sound
    tensors: dict[str, Tensor]  # without a batch axis


class AudioReader:
    """A model's feature extractor, and where its frames lie on a sound."""

    name = "sounds"
    pads_right = True  # sounds of equal length share a batch

    def __init__(self, model: nn.Module, processor: Any) -> None:
        self.model = model
        self.extractor = extractor_of(processor)
        self.tokenizer = getattr(processor, "tokenizer", None)
        self.explains: tuple[str, ...] = (sound_argument(processor),)
        rate = getattr(self.extractor, "sampling_rate", None)
        if not isinstance(rate, int) or rate < 1:
            raise ModelError("the feature extractor does not say at which rate it reads sounds (sampling_rate)")
        self.rate = rate

    @property
    def _argument(self) -> str:
        return self.explains[0]

    @cached_property
    def timeline(self) -> Timeline:
        return timeline(self.extractor, self._argument, self.rate)

    def read(self, given: object, max_length: int | None = None) -> SoundRow:
        if max_length is not None:
            raise InputError("max_length is for texts; a sound is read whole")
        sound = opened_sound(given, self.rate)
        if sound.duration < SHORT:
            self._check_length(sound)
        tensors = features(self.extractor, sound.samples, self.rate)
        if self._argument not in tensors:
            raise ModelError(f'the feature extractor gives {", ".join(tensors)}, and no "{self._argument}"')
        frames = tensors[self._argument].shape[self.timeline.axis]
        readable = self.timeline.first + self.timeline.step * frames
        if sound.duration > readable + 2 * self.timeline.step:
            raise InputError(
                f"the sound lasts {sound.duration:.2f} s, and the model reads {readable:.2f} s at once: cut it into "
                "pieces of that length"
            )
        return SoundRow(sound, self._taken(tensors))

    def _taken(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the model takes of the features."""
        taken = inspect.signature(self.model.forward).parameters
        return {name: value for name, value in tensors.items() if name in taken}

    def _check_length(self, sound: Sound) -> None:
        """Raise for a sound that is too short for the model's kernels: it fails, and longer ones do not.

        What is long enough is found by trying, as settings of kernels and strides differ from model to model.
        """
        short, enough = len(sound.samples), self.rate
        if self._runs(short) or not self._runs(enough):
            return
        while enough - short > 1:
            middle = (short + enough) // 2
            short, enough = (short, middle) if self._runs(middle) else (middle, enough)
        raise InputError(
            f"the sound has {len(sound.samples):,} samples at {self.rate:,} Hz, and the model reads sounds from "
            f"{enough:,} samples on ({enough / self.rate:.3f} s)"
        )

    @restoring
    def _runs(self, count: int) -> bool:
        """Whether extractor and model read so many samples without an error."""
        silence = Sound(np.zeros(count, np.float32), self.rate)
        model: Any = self.model
        heard = model.get_encoder() if "decoder_input_ids" in arguments_of(model) else model
        try:
            tensors = self._taken(features(self.extractor, silence.samples, self.rate))
            with torch.no_grad(), evaluating(model):
                call(heard, self.inputs([SoundRow(silence, tensors)]))
        except (InputError, ModelError):
            return False
        return True

    def batches(self, rows: Sequence[SoundRow], size: int) -> list[list[int]]:
        """Sounds of equal length together: no padding that a model might hear."""

        def shape(i: int) -> tuple[int, ...]:
            return tuple(rows[i].tensors[self._argument].shape)

        groups = [list(group) for _, group in groupby(sorted(range(len(rows)), key=shape), key=shape)]
        return [group[k : k + size] for group in groups for k in range(0, len(group), size)]

    def inputs(self, rows: Sequence[SoundRow]) -> dict[str, Tensor]:
        return {name: self._as_input(torch.stack([row.tensors[name] for row in rows])) for name in rows[0].tensors}

    def _as_input(self, values: Tensor) -> Tensor:
        """Where and as what the model computes."""
        values = values.to(device_of(self.model))
        if not values.is_floating_point():
            return values
        return values.to(next(one for one in self.model.parameters() if one.is_floating_point()).dtype)

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[SoundRow], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        """What options mean for sounds: integrated gradients starts from silence."""
        if "baseline" not in known:
            return given
        quiet = [features(self.extractor, np.zeros_like(row.sound.samples), self.rate) for row in rows]
        silence = torch.stack([one[self._argument] for one in quiet]).to(inputs[self._argument])
        return {"baseline": {self._argument: silence}, **given}

    def hidden(self, rows: Sequence[SoundRow], inputs: dict[str, Tensor], replacement: str | int | None) -> NoReturn:
        raise InputError("evaluate compares methods on texts and graphs, not on sounds")

    def parts(self, row: SoundRow, found: Attribution, number: int) -> tuple[AudioPart, ...]:
        scores = found.parts[self._argument][number].double().cpu().numpy()
        windows = found.windows.get(self._argument)
        values = row.tensors[self._argument]
        if windows is None:
            scores, frames = _by_frame(scores, values, self.timeline.axis, found.method)
        else:
            frames = windows[min(number, len(windows) - 1)].cpu().numpy().astype(np.float64)  # targets share one
        real = (frames[..., 0] <= frames[..., 1]).all(1)
        edges = self.timeline.edges(*frames[:, self.timeline.axis].T)
        real &= (edges.mean(1) < row.sound.duration) & (edges.mean(1) >= 0)
        rest = float(scores[~real].sum())
        units, joined = self._stretches(edges[real].clip(0, row.sound.duration), frames[real], scores[real], values)
        sound = row.sound
        own = (sound.duration, sound.rate, rest, sound.file, sound.note, sound)
        return (AudioPart(self._argument, units, tuple(joined.tolist()), *own),)

    def _stretches(
        self, edges: Numbers, frames: Numbers, scores: Numbers, values: Tensor
    ) -> tuple[tuple[Stretch, ...], Numbers]:
        """Units in seconds, with their bands where rows read patches; those too fine to be told apart are joined."""
        other = next((axis for axis in range(frames.shape[1]) if axis != self.timeline.axis), None)
        if other is not None and len(np.unique(frames[:, other], axis=0)) > 1:
            hertz = self._hertz(other)
            low, high = hertz(frames[:, other, 0] - 0.5), hertz(frames[:, other, 1] + 0.5)
            every = zip(edges.tolist(), low.tolist(), high.tolist(), strict=True)
            return tuple(Stretch(*time, *band) for time, *band in every), scores
        middles = edges.mean(1)
        if len(middles) > 2 and float(np.median(np.diff(middles))) < FINEST:
            edges, scores = _joined(edges, middles, scores)
        return tuple(Stretch(*time) for time in edges.tolist()), scores

    def _hertz(self, axis: int) -> Any:
        if axis not in self._bands:
            self._bands[axis] = band_hertz(self.extractor, self._argument, self.rate, axis)
        return self._bands[axis]

    @cached_property
    def _bands(self) -> dict[int, Any]:
        return {}


def extractor_of(processor: Any) -> Any:
    """The feature extractor of a processor, or the processor itself."""
    return getattr(processor, "feature_extractor", None) or processor


def sound_argument(processor: Any) -> str:
    """By which argument the model takes sounds; "" where the processor reads none."""
    names = getattr(extractor_of(processor), "model_input_names", None) or []
    return next((name for name in ARGUMENTS if name in names), "")


def _by_frame(scores: Numbers, values: Tensor, axis: int, method: str) -> tuple[Numbers, Numbers]:
    """Scores of single numbers of the input added to frames, and the frames' windows [frames, axes, 2]."""
    shape = tuple(values.shape)
    if len(scores) == values.numel():
        scores = np.moveaxis(scores.reshape(shape), axis, -1).reshape(-1, shape[axis]).sum(0)
    if len(scores) != shape[axis]:
        raise ModelError(f'"{method}" gives {len(scores)} scores that are no frames of the sound')
    frames = np.zeros((len(scores), len(shape), 2))
    frames[:, axis] = np.arange(len(scores))[:, None]
    return scores, frames


def _joined(edges: Numbers, middles: Numbers, scores: Numbers) -> tuple[Numbers, Numbers]:
    """Stretches of equal length with the sums of the scores of the units whose middles lie in them."""
    bins = (middles / JOINED).astype(np.int64)
    count = int(bins.max()) + 1
    joined = np.bincount(bins, scores, count).astype(np.float64)
    starts = np.arange(count) * JOINED
    return np.stack([starts, np.minimum(starts + JOINED, edges.max())], -1), joined
