"""Where on a sound the frames of a feature extractor lie: found by what it makes of clicks and tones.

As for pictures, no extractor's settings are trusted: names and meanings of hops, windows and padding differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relprop.errors import InputError, ModelError

Extractor = Any  # called with samples, sampling_rate and return_tensors
Numbers = NDArray[np.float64]
CLICKS = (0.2, 0.35, 0.5, 0.65, 0.8)  # seconds, within the second that is shown to the extractor
SPREAD = 0.2  # seconds over which a click may be heard
TONES = 24


@dataclass(frozen=True)
class Timeline:
    """Frame k of the features, along `axis`, is `first` + k `step` seconds into the sound."""

    axis: int
    first: float
    step: float

    def edges(self, low: Numbers, high: Numbers) -> Numbers:
        """[units, 2]: seconds of frames `low` to `high`, both included."""
        return self.first + self.step * np.stack([low - 0.5, high + 0.5], -1)


def features(extractor: Extractor, samples: NDArray[np.float32], rate: int) -> dict[str, Tensor]:
    """What the model reads of one sound: tensors without a batch axis."""
    try:
        found: Mapping[str, Any] = extractor(samples, sampling_rate=rate, return_tensors="pt")
        return {name: torch.as_tensor(value)[0] for name, value in found.items()}
    except Exception as error:  # a user's own extractor
        reason = next(iter(str(error).splitlines()), "")
        raise InputError(f"the feature extractor failed: {type(error).__name__}: {reason:.300}") from error


def timeline(extractor: Extractor, name: str, rate: int) -> Timeline:
    """The line through the frames where clicks at known times are heard."""
    hush = _values(extractor, name, rate, _hush(rate))
    clicks = [_values(extractor, name, rate, _hush(rate, time)) for time in CLICKS]
    if any(one.shape != hush.shape for one in clicks):
        raise ModelError("the feature extractor gives sounds of one length frames of several: it cannot be followed")
    raised = [np.abs(one - hush) if one.ndim == 1 else one - hush for one in clicks]
    lines = [_line(raised, axis) for axis in range(hush.ndim)]
    axis = int(np.argmax([slope for slope, *_ in lines]))
    slope, start, miss, spread = lines[axis]
    if slope <= 0 or miss > 2 or spread > SPREAD * slope:
        raise ModelError(
            "the feature extractor does not keep the order of time (or repeats the sound): its frames cannot be put on "
            "the sound"
        )
    return Timeline(axis, -start / slope, 1 / slope)


def _values(extractor: Extractor, name: str, rate: int, samples: NDArray[np.float32]) -> Numbers:
    return np.asarray(features(extractor, samples, rate)[name].double().numpy())


def _hush(rate: int, time: float | None = None) -> NDArray[np.float32]:
    """A second of hush, perhaps with one sample that is loud."""
    samples = np.random.default_rng(0).normal(0, 1e-4, rate)
    if time is not None:
        samples[round(time * rate)] = 1.0
    return samples.astype(np.float32)


def _line(raised: list[Numbers], axis: int) -> tuple[float, float, float, float]:
    """Where clicks lie along an axis, as a line over seconds: its slope and start, the largest miss, the spread."""
    profiles = [one.mean(tuple(k for k in range(one.ndim) if k != axis)) for one in raised]
    found = [_middle(profile) for profile in profiles]
    places = [middle for middle, _ in found]
    slope, start = np.polyfit(CLICKS, places, 1)
    miss = np.abs(np.polyval((slope, start), CLICKS) - places).max()
    return float(slope), float(start), float(miss), max(spread for _, spread in found)


def _middle(profile: Numbers) -> tuple[float, float]:
    """The middle of what stands out, and how far apart that lies."""
    above = profile - np.median(profile)
    above = np.where(above >= above.max() / 2, above, 0)
    places = np.flatnonzero(above)
    if not len(places) or above.sum() <= 0:
        return 0.0, 0.0
    return float((above * np.arange(len(above))).sum() / above.sum()), float(places[-1] - places[0])


def band_hertz(extractor: Extractor, name: str, rate: int, axis: int) -> Callable[[Numbers], Numbers]:
    """Maps bins along `axis` of the spectrogram to Hz, by the bins where pure tones are loudest."""
    tones = np.geomspace(60, 0.48 * rate, TONES)
    times = np.arange(rate) / rate
    hush, bins = _values(extractor, name, rate, _hush(rate)), []
    for tone in tones:
        samples = _hush(rate) + 0.5 * np.sin(2 * np.pi * tone * times)
        found = _values(extractor, name, rate, samples.astype(np.float32)) - hush
        profile = found.mean(tuple(k for k in range(found.ndim) if k != axis))
        bins.append(int(profile.argmax()))
    if np.any(np.diff(bins) < 0):
        raise ModelError("the feature extractor does not keep the order of frequencies: bands cannot be told in Hz")
    known, index = np.unique(bins, return_index=True)
    return lambda places: np.interp(places, known, tones[index])
