"""A page with its words: the picture under the boxes (a blank page, where there is none), and the words as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from relprop.render import fonts
from relprop.render.image.overlay import ImageMap
from relprop.render.typesetting import REGULAR
from relprop.types import Heatmap

THOUSANDTHS = 1000
LONGEST = 900  # pixels of a page's longer side as it is drawn
WordBox = tuple[int, int, int, int]


@dataclass(frozen=True)
class BoxedWord:
    """A word of the page: its box in thousandths, and the sum of its tokens' scores."""

    text: str
    box: WordBox
    score: float


@dataclass(frozen=True, eq=False)
class DocumentMap:
    """What is drawn: the page with its words, the words as text, and the picture's own scores where it has some."""

    page: ImageMap
    words: tuple[BoxedWord, ...]
    text: Heatmap
    picture: ImageMap | None = None

    @property
    def bound(self) -> float | None:
        """The score of full colour on the page: that of the strongest word."""
        return max((abs(word.score) for word in self.words), default=0.0) or None


def document_map(
    text: Heatmap,
    boxes: Sequence[WordBox | None],
    size: tuple[float, float] | None,
    image: Image.Image | None,
    note: str,
) -> DocumentMap:
    words = boxed_words(text, boxes)
    page = _blank(words, size) if image is None else _smaller(image)
    width, height = page.size
    scores = np.zeros((height, width))
    for word in sorted(words, key=lambda one: abs(one.score)):  # where boxes overlap, the stronger one shows
        left, top, right, bottom = pixel_box(word.box, page.size)
        scores[top:bottom, left:right] = word.score
    told = (text.method, text.target, text.value, text.prediction, note, text.signed)
    return DocumentMap(ImageMap(np.asarray(page), scores, *told, quantity=text.quantity), words, text)


def boxed_words(text: Heatmap, boxes: Sequence[WordBox | None]) -> tuple[BoxedWord, ...]:
    """The tokens of one word together: they share its box."""
    found: dict[tuple[int, int | None, WordBox], tuple[str, float]] = {}
    for unit, score, box in zip(text.units, text.scores, boxes, strict=True):
        if box is not None:
            said, total = found.get((unit.segment, unit.word, box), ("", 0.0))
            found[unit.segment, unit.word, box] = (said + unit.text, total + score)
    return tuple(BoxedWord(said, box, total) for (_, _, box), (said, total) in found.items())


def pixel_box(box: WordBox, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """A box in pixels of a page of this size, at least one of them."""
    left, top, right, bottom = (round(edge * size[k % 2] / THOUSANDTHS) for k, edge in enumerate(box))
    left, top = min(left, size[0] - 1), min(top, size[1] - 1)
    return left, top, max(left + 1, right), max(top + 1, bottom)


def _smaller(image: Image.Image) -> Image.Image:
    """The picture, at most as large as it is drawn."""
    scale = min(1.0, LONGEST / max(image.size))
    width, height = (max(1, round(side * scale)) for side in image.size)
    return image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)


def _blank(words: Sequence[BoxedWord], size: tuple[float, float] | None) -> Image.Image:
    """A white page with the words in their boxes; square, where its shape is not known."""
    wide, tall = size or (1.0, 1.0)
    scale = LONGEST / max(wide, tall)
    page = Image.new("RGB", (max(1, round(wide * scale)), max(1, round(tall * scale))), "white")
    draw = ImageDraw.Draw(page)
    for word in words:
        left, top, right, bottom = pixel_box(word.box, page.size)
        said, font = fonts.fitted(word.text, REGULAR)
        high = min(bottom - top, (right - left) / max(fonts.width(said, font), 0.1))
        if high >= 4:  # smaller letters are a smear
            letters = ImageFont.truetype(str(font), round(0.9 * high))
            draw.text(((left + right) / 2, (top + bottom) / 2), said, "black", letters, anchor="mm")
        draw.rectangle((left, top, right - 1, bottom - 1), outline=(190, 190, 190))
    return page
