"""What every renderer of sounds draws: a waveform, its spectrogram, and one score per stretch."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relprop.part import Words
from relprop.render.caption import Caption, number, shown_target, sum_of_scores
from relprop.render.visible import visible

Samples = NDArray[np.float32]
Numbers = NDArray[np.float64]
COLUMNS = 600  # of the drawn waveform and spectrogram
BINS = 64  # of the drawn spectrogram, on the mel scale
LOUD = 70.0  # decibels from the loudest to what is drawn as silence
WINDOW = 0.025  # seconds


@dataclass(frozen=True, eq=False)
class AudioMap:
    """A sound with one score per stretch of it, and the words around it."""

    samples: Samples
    rate: int
    edges: Numbers  # [units, 2] seconds
    bands: Numbers | None  # [units, 2] Hz, where units are patches of the spectrogram
    scores: Numbers  # [units]
    rest: float  # scores of what lies nowhere on the sound
    strongest: tuple[float, float]  # seconds
    words: Words
    note: str = ""

    @property
    def method(self) -> str:
        return self.words.method

    @property
    def duration(self) -> float:
        return len(self.samples) / self.rate

    @property
    def digest(self) -> bytes:
        """Tells one sound from another."""
        return blake2b(self.samples.tobytes(), salt=str(self.rate).encode()[:16]).digest()


def caption(one: AudioMap) -> Caption:
    """The words around a map, safe to show."""
    words, total = one.words, float(one.scores.sum()) + one.rest
    summed = sum_of_scores(total, words.beside, words.value)
    rest = f", of the scores {number(one.rest)} behind the sound or in class tokens" if one.rest else ""
    first, last = one.strongest
    strongest = f"strongest {first:.2f}-{last:.2f} s"
    return Caption(
        method=visible(words.method),
        target=shown_target(visible(words.target), words.value, words.quantity),
        prediction=f"predicted {visible(words.prediction)}" if words.prediction else "",
        total=f"{strongest} · {summed}{rest}",
        note=visible(one.note) if one.note else "",
    )


def shades(one: AudioMap, columns: int = COLUMNS) -> Numbers:
    """[columns]: the score of the unit whose middle is nearest, over the strongest. Patches are added over bands."""
    if not len(one.scores):
        return np.zeros(columns)
    middles, scores = one.edges.mean(1), one.scores
    if one.bands is not None:
        middles, index = np.unique(middles.round(6), return_inverse=True)
        scores = np.bincount(index.ravel(), scores).astype(np.float64)
    order = middles.argsort()
    middles, scores = middles[order], scores[order]
    times = (np.arange(columns) + 0.5) / columns * one.duration
    nearest = np.searchsorted((middles[1:] + middles[:-1]) / 2, times)
    bound = np.abs(scores).max() or 1.0
    return np.asarray(scores[nearest] / bound)


def patch_shades(one: AudioMap, columns: int = COLUMNS, bins: int = BINS) -> Numbers:
    """[bins, columns], low bands first: the mean score of the patches there; of frames, the same in every band."""
    if one.bands is None:
        return np.broadcast_to(shades(one, columns), (bins, columns))
    total, count = np.zeros((bins, columns)), np.zeros((bins, columns))
    across = (one.edges / one.duration * columns).round().astype(int)
    down = (_mel(one.bands) / _mel(one.rate / 2) * bins).round().astype(int)
    for (left, right), (low, high), score in zip(across, down, one.scores, strict=True):
        total[low : max(high, low + 1), left : max(right, left + 1)] += score
        count[low : max(high, low + 1), left : max(right, left + 1)] += 1
    mean = total / np.maximum(count, 1)
    return np.asarray(mean / (np.abs(mean).max() or 1.0))


def envelope(one: AudioMap, columns: int = COLUMNS) -> Numbers:
    """[columns, 2]: the least and the greatest sample of each column, over the loudest."""
    edges = np.linspace(0, len(one.samples), columns + 1).astype(int)
    pieces = [one.samples[low : max(high, low + 1)] for low, high in pairwise(edges)]
    loudest = float(np.abs(one.samples).max()) or 1.0
    return np.array([(piece.min(), piece.max()) for piece in pieces], dtype=np.float64) / loudest


def spectrogram(one: AudioMap, columns: int = COLUMNS, bins: int = BINS) -> Numbers:
    """[bins, columns] from 0 (silence) to 1 (loudest), on a mel scale with low bands first."""
    size = max(8, round(WINDOW * one.rate))
    padded = np.pad(one.samples.astype(np.float64), size // 2)
    starts = (np.arange(columns) * len(one.samples) / columns).astype(int)
    frames = padded[starts[:, None] + np.arange(size)] if len(padded) > size else np.zeros((columns, size))
    power = np.abs(np.fft.rfft(frames * np.hanning(size), 4 * size)) ** 2
    hertz = np.fft.rfftfreq(4 * size, 1 / one.rate)
    index = np.minimum((_mel(hertz) / _mel(one.rate / 2) * bins).astype(int), bins - 1)
    sums = np.stack([np.bincount(index, row, bins) for row in power])
    decibels = 10 * np.log10(np.maximum(sums, 1e-12))
    floor = max(decibels.max() - LOUD, -100.0)
    return np.asarray(((decibels - floor) / (decibels.max() - floor + 1e-9)).clip(0, 1).T)


def _mel(hertz: Any) -> Numbers:
    return np.asarray(2595 * np.log10(1 + np.asarray(hertz) / 700))


def mel_ticks(rate: int) -> list[tuple[float, str]]:
    """Places from 0 to 1 on the mel scale, and their frequencies."""
    wanted = [hertz for hertz in (500, 1000, 2000, 4000, 8000, 16000) if hertz <= rate / 2]
    return [(float(_mel(hertz) / _mel(rate / 2)), f"{hertz / 1000:g} kHz") for hertz in wanted]


def described(one: AudioMap) -> str:
    """The map in words, for those who cannot see it."""
    words = caption(one)
    return f"{words.method}, {words.target}; {words.total}"
