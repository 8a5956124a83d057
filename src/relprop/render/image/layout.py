"""Maps -> a grid, and the words and colours around it: what every picture renderer draws, before any markup."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from hashlib import blake2b

import numpy as np

from relprop.render.caption import Caption, number, shown_target, sums_line
from relprop.render.grid import RELATIVE, GridRow, MapGrid, map_grid
from relprop.render.image.overlay import Bound, ImageMap, Numbers, Pixels, painted
from relprop.render.palette import SIGNED, Film
from relprop.render.visible import visible


def grid(maps: Sequence[ImageMap]) -> MapGrid[ImageMap]:
    """Maps of one picture and target in a row, maps of one method in a column, in the order they come."""
    return map_grid(maps, lambda one: (_digest(one.image), caption(one).subject))


def _digest(image: Pixels) -> Hashable:
    return image.shape, blake2b(image.tobytes()).digest()


def caption(image_map: ImageMap) -> Caption:
    """The words around a map, safe to show; the scores are told by their range."""
    low, high = (number(float(end)) for end in (image_map.scores.min(), image_map.scores.max()))
    return Caption(
        method=visible(image_map.method),
        target=shown_target(visible(image_map.target), image_map.value, image_map.quantity),
        prediction=f"predicted {visible(image_map.prediction)}" if image_map.prediction else "",
        total=f"scores {low} to {high}",
        note=visible(image_map.note) if image_map.note else "",
        sums=sums_line(image_map),
    )


def shared_note(row: GridRow[ImageMap]) -> str:
    """The note of all maps of a picture, such as its file's name, which is told once; nothing where they differ."""
    notes = {caption(cell).note for cell in row.cells if cell}
    return notes.pop() if len(notes) == 1 else ""


def described(image_map: ImageMap) -> str:
    """The map in words, for those who cannot see it: where it is strongest."""
    words = caption(image_map)
    scores = image_map.scores
    parts = [f"{words.method}, {words.target}"]
    if scores.max() > 0:
        parts.append(f"{'supported most' if image_map.signed else 'strongest'} {_where(scores)}")
    if image_map.signed and scores.min() < 0:
        parts.append(f"opposed most {_where(-scores)}")
    return "; ".join(parts if len(parts) > 1 else [*parts, "all scores are 0"])


def _where(scores: Numbers) -> str:
    """The ninth of the picture that holds the highest score."""
    row, column = np.unravel_index(np.argmax(scores), scores.shape)
    down = ("top", "middle", "bottom")[int((row + 0.5) / scores.shape[0] * 3)]
    across = ("left", "centre", "right")[int((column + 0.5) / scores.shape[1] * 3)]
    return f"at the {down} {across}"


def scale(film: Film, width: int) -> tuple[Pixels, Numbers]:
    """A legend's greys and shades, from the least to the most, over the grey where 0 is told best from the ends."""
    least, ground = (-1, 255) if film is SIGNED else (0, 0)
    return np.full((1, width), ground, np.uint8), np.linspace(least, 1, width)[None]


def strip(film: Film, width: int) -> Pixels:
    """A legend's pixels."""
    return painted(*scale(film, width), film)


def ends(film: Film) -> tuple[str, str]:
    """What the ends of a colour bar mean."""
    return ("opposes", "supports") if film is SIGNED else ("little", "much (neither for nor against)")


def scale_note(film: Film, bound: Bound, limits: Mapping[str, float | None]) -> str:
    """What full colour stands for, where `limits` are what `bounds` made of the bound."""
    shared = next(iter(limits.values()))
    if bound == "method" or shared is None:
        return f"{RELATIVE} {bound or 'map'}"
    return f"full colour from {'±' if film is SIGNED else ''}{number(shared).removeprefix('+')} in every map"
