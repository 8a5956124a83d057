"""Pictures of a dataset whose class a pasted pattern decides; the pattern's pixels are the object."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from relprop.bench.datasets import Example, TriggeredPicture
from relprop.bench.kinds.listed_pictures import Listed, PictureObject
from relprop.errors import InputError
from relprop.metrics import SegmentedPicture


def list_triggered(name: str, examples: Sequence[Example]) -> list[Listed]:
    """All pictures of the dataset `name`, which must each have a trigger."""
    found = {
        str(number): example
        for number, example in enumerate(examples)
        if isinstance(example, TriggeredPicture) and example.trigger is not None
    }
    if len(found) < len(examples):
        raise InputError(f'"{name}" has pictures of which no part is known to decide: it needs a "trigger"')

    def open_triggered(pictures: Sequence[Listed], names: Mapping[int, str]) -> list[list[PictureObject]]:
        return [[_object(one.name, found[one.name])] for one in pictures]

    return [
        Listed(number, (_checksum(one), one.label, *(one.trigger or ())), open_triggered)
        for number, one in found.items()
    ]


def _object(name: str, example: TriggeredPicture) -> PictureObject:
    assert example.trigger is not None
    pixels = np.asarray(example.text)
    mask = np.zeros(pixels.shape, bool)
    mask[example.trigger.top : example.trigger.bottom, example.trigger.left : example.trigger.right] = True
    picture = SegmentedPicture(Image.fromarray(pixels).convert("RGB"), mask, np.zeros_like(mask), name)
    return PictureObject(picture, example.label)


def _checksum(example: TriggeredPicture) -> int:
    return zlib.crc32(np.asarray(example.text).tobytes())
