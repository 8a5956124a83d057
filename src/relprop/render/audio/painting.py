"""Pixels of a sound: its waveform on relevance, and its spectrogram under it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relprop.render import palette
from relprop.render.audio.layout import COLUMNS, AudioMap, envelope, patch_shades, shades, spectrogram
from relprop.render.image.overlay import painted
from relprop.render.palette import SIGNED, UNSIGNED, Film

Pixels = NDArray[np.uint8]
WAVE, SPECTRUM = 96, 128  # pixels down
DARK = np.array([31, 35, 40], dtype=np.uint8)  # of the wave


def film_of(one: AudioMap) -> Film:
    return SIGNED if one.words.signed else UNSIGNED


def wave_pixels(one: AudioMap, columns: int = COLUMNS, height: int = WAVE) -> Pixels:
    """The wave in dark on a ground of each column's colour."""
    grounds = np.array([_ground(shade, one.words.signed) for shade in shades(one, columns).tolist()], dtype=np.uint8)
    low, high = envelope(one, columns).T
    levels = 1 - 2 * (np.arange(height)[:, None] + 0.5) / height  # from 1 at the top to -1
    thin = 1 / height  # silence is a line
    wave = (levels <= np.maximum(high, thin)) & (levels >= np.minimum(low, -thin))
    pixels = np.broadcast_to(grounds, (height, columns, 3)).copy()
    pixels[wave] = DARK
    return pixels


def _ground(shade: float, signed: bool) -> palette.RGB:
    """Pale enough for the dark wave: from white to the colour of supporting, opposing or, unsigned, of strength."""
    ground = palette.colour(0.75 * shade)
    if signed:
        return ground
    red, green, blue = (round(255 + (pole - 255) * abs(shade)) for pole in palette.GLOW[4])
    return red, green, blue


def spectrum_pixels(one: AudioMap, columns: int = COLUMNS, height: int = SPECTRUM) -> Pixels:
    """The spectrogram in grey, high bands on top, under the scores; loud is dark under scores of both signs."""
    loud, film = spectrogram(one, columns), film_of(one)
    grey = (255 * (1 - loud if film is SIGNED else loud)).astype(np.uint8)
    pixels = painted(_taller(grey, height), _taller(patch_shades(one, columns), height), film)
    return np.asarray(pixels[::-1])


def _taller(rows: NDArray[Any], height: int) -> NDArray[Any]:
    """Each row repeated."""
    index = np.arange(height) * len(rows) // height
    return np.asarray(rows)[index]
