"""Sounds: opened whatever their channels and rate, and made what the model reads: one channel at its own rate."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction
from io import BytesIO
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from relprop.errors import InputError, RelpropError
from relprop.render.audio.part import Sound

Array = NDArray[Any]
CHANNELS = 16  # more than that are taken for samples
LOUDEST = 32.0  # floats beyond it were meant as whole numbers of 16 bits
_FORMS = 'a sound is a path, (samples, rate) or {"array": samples, "sampling_rate": rate}, of one or several channels'


def opened_sound(given: object, rate: int) -> Sound:
    """A path, (samples, rate) or a dict of the datasets package as one channel at this rate.

    Channels are averaged and other rates resampled; the sound's note says so.
    """
    samples: Array
    if isinstance(given, Sound):
        samples, own, file = given.samples, given.rate, given.file
    elif isinstance(given, str | os.PathLike | BytesIO):
        samples, own = _from_file(given)
        file = "" if isinstance(given, BytesIO) else os.path.basename(os.fsdecode(given))
    else:
        (samples, own), file = _from_memory(given), ""
    samples = _as_floats(samples)
    notes = []
    if samples.ndim == 2:
        notes += [f"{samples.shape[1]} channels averaged"] if samples.shape[1] > 1 else []
        samples = samples.mean(1)
    if not len(samples):
        raise InputError("the sound is empty: it has no samples")
    if own != rate:
        from scipy.signal import resample_poly

        ratio = Fraction(rate, own).limit_denominator(1 << 16)
        samples = resample_poly(samples, ratio.numerator, ratio.denominator)
        notes.append(f"resampled from {own:,} to {rate:,} Hz")
    if not samples.any():
        notes.append("the sound is silent")
    return Sound(np.ascontiguousarray(samples, dtype=np.float32), rate, file, "; ".join(notes))


def _from_file(given: str | os.PathLike[str] | BytesIO) -> tuple[Array, int]:
    name = "the sound" if isinstance(given, BytesIO) else f'"{os.fsdecode(given):.200}"'
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: the package is there, and its library is not
        raise RelpropError('files of sound need the soundfile package: pip install "relprop[audio]"') from None
    if not isinstance(given, BytesIO) and not os.path.exists(given):
        raise InputError(f"there is no sound {name}: {_FORMS}")
    try:
        if isinstance(given, BytesIO):
            given.seek(0)  # it may be read again
        samples, rate = soundfile.read(given, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError, ValueError, TypeError, MemoryError) as error:
        reason = str(error).split(": ")[-1]
        raise InputError(f"{name} is no sound that can be read (wav, flac, ogg, mp3): {reason:.200}") from None
    return samples, int(rate)


def _from_memory(given: object) -> tuple[Array, int]:
    if isinstance(given, Mapping) and {"array", "sampling_rate"} <= set(given):
        given = (given["array"], given["sampling_rate"])
    if isinstance(given, np.ndarray | Tensor):
        raise InputError("samples alone do not tell their rate: give (samples, rate), such as (array, 16000)")
    if not isinstance(given, tuple) or len(given) != 2:
        raise InputError(f"{_FORMS}; got {type(given).__name__}")
    samples, rate = given
    samples = samples.detach().cpu().float().numpy() if isinstance(samples, Tensor) else samples
    if not _is_rate(rate):
        got = type(rate).__name__ if hasattr(rate, "shape") else f"{rate!r:.80}"
        raise InputError(
            f"the rate of a sound is a whole number of samples per second, as in (array, 16000); got {got}"
        )
    try:
        array = np.asarray(samples)
    except (ValueError, TypeError):
        raise InputError(f"{_FORMS}; got samples of type {type(samples).__name__}") from None
    if array.dtype.kind not in "iuf" or array.ndim not in (1, 2):
        raise InputError(f"samples are numbers [samples] or [samples, channels], got {array.dtype} {list(array.shape)}")
    return _channels_last(array), int(rate)


def _channels_last(array: Array) -> Array:
    """torchaudio has channels first, soundfile last: they are the shorter axis."""
    if array.ndim == 1:
        return array
    if min(array.shape) > CHANNELS:
        raise InputError(f"samples are [samples] or [samples, channels], got {list(array.shape)}")
    return array.T if array.shape[0] < array.shape[1] else array


def _as_floats(samples: Array) -> NDArray[np.float64]:
    """Whole numbers scaled to -1 to 1."""
    kind = samples.dtype.kind
    if kind in "iu":
        half = 2.0 ** (8 * samples.dtype.itemsize - 1)
        return samples.astype(np.float64) / half - (1.0 if kind == "u" else 0.0)
    if not np.isfinite(samples).all():
        raise InputError("the sound has samples that are not finite numbers")
    if samples.size and np.abs(samples).max() > LOUDEST:
        raise InputError(
            f"samples of a sound lie between -1 and 1, and these go up to {np.abs(samples).max():,.0f}: divide those "
            "of 16 bits by 32768, or give them as int16"
        )
    return samples.astype(np.float64)


def _is_rate(value: Any) -> bool:
    plain = isinstance(value, Real) and not isinstance(value, bool)
    return plain and 0 < value < 10_000_000 and int(value) == value
