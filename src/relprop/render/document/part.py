"""`DocumentPart`: the words of a page with their boxes and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from PIL import Image

from relprop.errors import InputError
from relprop.part import Words
from relprop.render.text.part import TextPart

if TYPE_CHECKING:
    from relprop.render.document.layout import DocumentMap

WordBox = tuple[int, int, int, int]  # left, top, right and bottom, in thousandths of the page
_EDGES = ("left", "top", "right", "bottom")


@dataclass(frozen=True, eq=False, repr=False)
class DocumentPart(TextPart):
    """The tokens or words of one page, with a question before them where one is asked; one score per unit."""

    kind: ClassVar[str] = "document"
    rendering: ClassVar[str] = "relprop.render.document"
    whole_columns: ClassVar[tuple[str, ...]] = (*TextPart.whole_columns, *_EDGES)

    boxes: tuple[WordBox | None, ...] = ()  # per unit; None for special tokens and for a question
    size: tuple[float, float] | None = None  # the page's width and height, where they are known
    file: str = ""  # the picture's file
    image: Image.Image | None = None  # the page's picture

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.boxes) != len(self.units):
            raise ValueError(f"{len(self.units)} units, {len(self.boxes)} boxes")

    def _grouped_fields(self, groups: Sequence[Sequence[int]], steps: Sequence[Sequence[int]]) -> dict[str, Any]:
        """With the box that holds all of a group's."""
        boxes = tuple(_around([box for i in group if (box := self.boxes[i]) is not None]) for group in groups)
        return {**super()._grouped_fields(groups, steps), "boxes": boxes}

    def columns(self) -> dict[str, Sequence[object]]:
        found = super().columns()
        scores = found.pop("score")
        edges = {name: [None if box is None else box[k] for box in self.boxes] for k, name in enumerate(_EDGES)}
        return {**found, **edges, "score": scores}

    def to_dict(self) -> dict[str, object]:
        """The numbers, without the picture."""
        own = {field.name for field in fields(TextPart)}
        plain = TextPart(**{name: getattr(self, name) for name in own}).to_dict()
        more = {"boxes": [box and list(box) for box in self.boxes], "size": self.size and list(self.size)}
        return {**plain, "kind": self.kind, **more, "file": self.file}

    @classmethod
    def from_dict(cls, data: dict[str, Any], attached: Any = None) -> Self:
        """`attached`: the page's picture, where it is to be drawn on."""
        size = None if data.get("size") is None else tuple(data["size"])
        if size is not None and (len(size) != 2 or min(size) <= 0):
            raise ValueError(f"a page of {size}")
        boxes = tuple(None if box is None else tuple(box) for box in data["boxes"])
        if any(box is not None and len(box) != 4 for box in boxes):
            raise ValueError("a box has four edges")
        if attached is not None and size is not None and data.get("file") and attached.size != size:
            raise InputError(
                f"the explanation is of a page of {size[0]} x {size[1]} pixels, not of "
                f"{attached.size[0]} x {attached.size[1]}"
            )
        return super().from_dict({**data, "boxes": boxes, "size": size, "image": attached})

    @classmethod
    def drawing(cls, parts: Sequence[Self], words: Words) -> DocumentMap:  # type: ignore[override]
        from relprop.render.document.layout import document_map

        if len(parts) != 1:
            raise InputError(f"an explanation of {len(parts)} pages is not drawn: draw its parts one by one")
        (part,) = parts
        heatmap = TextPart.drawing([part], words)
        return document_map(heatmap, part.boxes, part.size, part.image, part.file)


def _around(boxes: Sequence[WordBox]) -> WordBox | None:
    """The smallest box that holds all."""
    if not boxes:
        return None
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)
