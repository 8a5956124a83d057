"""Words with their boxes on a page, for models that read both (and, some of them, the page's picture).

A box is no input of its own: it says where its word stands, as a position does. A unit is a word at its place.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from relprop.engine.model_call import device_of
from relprop.engine.wrappers import arguments_of
from relprop.errors import InputError, ModelError
from relprop.model_config import config_value
from relprop.readers import tokens
from relprop.readers.boxed_words import PAGE, Document, ThousandthsBox
from relprop.readers.context_windows import OVERLAP
from relprop.readers.image import ImageReader, PixelRow
from relprop.readers.picture import Picture, opened_picture
from relprop.readers.product import only_of
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow, TruncationWarning
from relprop.readers.words import WordList, word_units
from relprop.render.document.part import DocumentPart
from relprop.render.image.part import Frame, ImagePart
from relprop.tokenising import tokenise
from relprop.types import Attribution, Unit

if TYPE_CHECKING:
    from relprop.metrics import Tokens

BOXES, PIXELS = "bbox", "pixel_values"
NOWHERE: ThousandthsBox = (0, 0, 0, 0)
CORNER: ThousandthsBox = (PAGE, PAGE, PAGE, PAGE)  # where [SEP] stands, unless the tokenizer says otherwise
_EXPECTED = (
    "the model reads words with their boxes: give relprop.Document(words, boxes), or what its processor makes of one "
    "page"
)


@dataclass(frozen=True)
class DocumentRow(TokenRow):
    """One page, or a window of it, as the model will read it."""

    bbox: tuple[ThousandthsBox, ...] = ()  # per token
    placed: tuple[bool, ...] = ()  # which tokens are words of the page
    page: PixelRow | None = None  # where the model reads the picture
    image: Picture | None = None
    size: tuple[float, float] | None = None  # of the page
    file: str = ""

    def part(self, name: str, scores: Sequence[float]) -> DocumentPart:
        boxes = tuple(box if at else None for box, at in zip(self.bbox, self.placed, strict=True))
        text = super().part(name, scores)
        own = {field.name: getattr(text, field.name) for field in fields(text)}
        return DocumentPart(**own, boxes=boxes, size=self.size, file=self.file, image=self.image)


class DocumentReader(TextReader):
    """Words with boxes, and the page's picture where the model and its processor read it."""

    name = "documents"

    def __init__(self, model: nn.Module, processor: Any) -> None:
        super().__init__(model, getattr(processor, "tokenizer", None) or processor)
        if {"image", PIXELS} & arguments_of(model) == {"image"}:  # LayoutLMv2
            raise ModelError(
                f'{type(model).__name__} reads the page\'s picture by "image", which relprop cannot make: take '
                "LayoutLMv3, LayoutLM or LiLT, or give its own inputs to relprop.attribute"
            )
        images = getattr(processor, "image_processor", None)
        self._images: ImageReader | None = None
        if images is not None and PIXELS in arguments_of(model):
            if hasattr(images, "apply_ocr"):  # words and boxes are given: nothing is to be recognised
                images = partial(images, apply_ocr=False)
            self._images = ImageReader(model, images)
            self.explains = ("input_ids", PIXELS)

    def is_one(self, given: object) -> bool:
        return isinstance(given, Mapping)

    def read(self, given: object, max_length: int | None = None) -> DocumentRow:
        if isinstance(given, Mapping):
            return self._read_made(given)
        return self._read_words(_document(given), self.limit(max_length))

    def windows(self, question: Any, context: Any, max_length: int | None = None) -> list[TokenRow]:
        """The question with as much of the page as fits, again and again until the page is read."""
        if not isinstance(question, str) or not question.strip():
            raise InputError(f"a question is a text that is not empty, got {question!r:.80}")
        page, limit = _document(context), self.limit(max_length)
        lists = (WordList(question.split()), page.word_list)
        whole = self._tokenised(lists, page, {})
        count = len(whole["input_ids"])
        if limit is None or count <= limit:
            return [self._row(lists, page, whole, 0, self._pictured(page))]
        room = limit - (count - whole.sequence_ids().count(1))
        if room < 2:
            raise InputError(
                f"the question leaves no room for the page in the {limit} tokens that are read: shorten it"
            )
        cut = {"truncation": "only_second", "max_length": limit, "stride": min(OVERLAP, room // 2)}
        many = self._tokenised(lists, page, {**cut, "return_overflowing_tokens": True})
        pictured = self._pictured(page)
        return [self._row(lists, page, many, i, pictured) for i in range(len(many["input_ids"]))]

    def _read_words(self, page: Document, limit: int | None) -> DocumentRow:
        lists = (page.word_list,)
        made = self._tokenised(lists, page, {})
        count = len(made["input_ids"])
        cut = limit is not None and count > limit
        if cut:
            made = self._tokenised(lists, page, {"truncation": True, "max_length": limit})
        row = self._row(lists, page, made, 0, self._pictured(page))
        if not any(row.placed) or (limit is not None and len(row.units) > limit):
            raise InputError(f"a limit of {limit} tokens leaves no room for the words of the page")
        if not cut:
            return row
        note = f"the page has {count} tokens, {limit} are read: {tokens.lost((page.word_list.text,), row.units)}"
        if tokens.truncation_is_told():
            warnings.warn(note, TruncationWarning, stacklevel=2)
        return replace(row, cut=note)

    def _tokenised(self, lists: tuple[WordList, ...], page: Document, options: dict[str, Any]) -> Any:
        """What the tokenizer makes of the words; one of documents takes the boxes too, and splits the question."""
        tokenizer: Any = self.tokenizer
        options = {"return_attention_mask": False, "return_offsets_mapping": True, "verbose": False, **options}
        if not getattr(tokenizer, "is_fast", False):
            raise InputError("words with boxes need a fast tokenizer: only these know which word a token belongs to")
        texts: list[Any] = [list(one.words) for one in lists]
        if _takes_boxes(tokenizer):
            options["boxes"] = [list(box) for box in page.boxes]
            texts = [lists[0].text, texts[1]] if len(lists) > 1 else texts
        else:
            options["is_split_into_words"] = True
        try:
            return tokenise(tokenizer, *texts, **options)
        except Exception as error:  # a tokenizer of the user's own, or one with odd settings
            raise InputError(f"the tokenizer failed: {type(error).__name__}: {error!s:.300}") from error

    def _row(
        self, lists: tuple[WordList, ...], page: Document, made: Any, number: int, pictured: dict[str, Any]
    ) -> DocumentRow:
        """Window `number` of what the tokenizer made, or all of it."""
        many = bool(made["input_ids"]) and isinstance(made["input_ids"][0], list)
        one = {name: values[number] if many else values for name, values in made.items()}
        units = word_units(lists, self.tokenizer, one, made.word_ids(number), made.sequence_ids(number))
        placed = tuple(not unit.special and unit.segment == len(lists) - 1 for unit in units)
        own = one[BOXES] if BOXES in one else self._boxes(one["input_ids"], units, placed, page)
        ids = {name: values for name, values in tokens.ids_of(self.tokenizer, one).items() if name != BOXES}
        texts = tuple(each.text for each in lists)
        bbox = tuple((box[0], box[1], box[2], box[3]) for box in own)
        return DocumentRow(ids, units, None, texts, bbox=bbox, placed=placed, **pictured)

    def _boxes(
        self, ids: Sequence[int], units: Sequence[Unit], placed: Sequence[bool], page: Document
    ) -> list[ThousandthsBox]:
        """Every token at the box of its word; special tokens where the tokenizer, or the first of these models, has
        them ([LayoutLM] puts [SEP] into the corner); a question nowhere."""
        tokenizer: Any = self.tokenizer
        ends = tuple(getattr(tokenizer, "sep_token_box", CORNER))
        boxes = []
        for token, unit, own in zip(ids, units, placed, strict=True):
            if own and unit.word is not None:
                boxes.append(page.boxes[unit.word])
            else:
                boxes.append(ends if token == tokenizer.sep_token_id else NOWHERE)
        return boxes

    def _pictured(self, page: Document) -> dict[str, Any]:
        """The page's picture, as fields of a row; as pixels too where the model reads it."""
        if page.image is None:
            if self._images is not None:
                raise InputError(
                    "the model reads the page's picture too, and there is none: give it with the words and boxes"
                )
            return {"size": page.size}
        picture = opened_picture(page.image)
        file = os.path.basename(os.fsdecode(page.image)) if isinstance(page.image, str | os.PathLike) else ""
        pixels = None if self._images is None else self._images.read(page.image)
        return {"page": pixels, "image": picture, "size": picture.size, "file": file}

    # What a processor made.

    def _read_made(self, made: Mapping[str, Any]) -> DocumentRow:
        """What the model's own processor made of one page. The words are spelt by their tokens."""
        ids, boxes = (_only_row(made, name) for name in ("input_ids", BOXES))
        if ids is None or boxes is None or ids.dim() != 1 or boxes.shape != (len(ids), 4):
            raise InputError(f'{_EXPECTED}: "input_ids" [1, tokens] and "{BOXES}" [1, tokens, 4], got {_shapes(made)}')
        kept = _only_row(made, "attention_mask")
        kept = torch.ones_like(ids).bool() if kept is None else kept.bool()
        if boxes.is_floating_point():
            boxes = (boxes * PAGE).round().long()
        if boxes.min() < 0 or boxes.max() > PAGE:
            raise InputError(f'"{BOXES}" holds numbers from {boxes.min()} to {boxes.max()}: boxes are from 0 to {PAGE}')
        bbox = [(box[0], box[1], box[2], box[3]) for box in boxes[kept].tolist()]
        texts, units = self._spelt(ids[kept].tolist(), bbox, made, kept)
        own = {"input_ids": ids[kept].tolist()}
        if (types := _only_row(made, "token_type_ids")) is not None:
            own["token_type_ids"] = types[kept].tolist()
        last = max(unit.segment for unit in units)
        placed = tuple(not unit.special and unit.segment == last for unit in units)
        return DocumentRow(own, units, None, texts, bbox=tuple(bbox), placed=placed, **self._made_picture(made))

    def _spelt(
        self, ids: list[int], bbox: Sequence[ThousandthsBox], made: Any, kept: Tensor
    ) -> tuple[tuple[str, ...], tuple[Unit, ...]]:
        """Texts and units of ids alone. Tokens of one word share its box; a tokenizer's encoding knows them better."""
        special, names = set(self.tokenizer.all_special_ids), self.tokenizer.convert_ids_to_tokens(ids)
        known = getattr(made, "word_ids", None)
        where = kept.nonzero().flatten().tolist()
        try:
            words = [known(0)[i] for i in where] if known else list(bbox)
            segments = [made.sequence_ids(0)[i] or 0 for i in where] if known else [0] * len(ids)
        except (ValueError, IndexError, AttributeError):  # an encoding without its own tokenizer's notes
            words, segments = list(bbox), [0] * len(ids)
        units = [Unit(name, special=True) if i in special else None for i, name in zip(ids, names, strict=True)]
        texts = [""] * (max(segments) + 1)
        content = [i for i, unit in enumerate(units) if unit is None]
        for number, (_, group) in enumerate(groupby(content, key=lambda i: (segments[i], words[i]))):
            for first, i in enumerate(group):
                segment = segments[i]
                piece = self.tokenizer.convert_tokens_to_string([names[i]]).strip() or names[i]
                piece = piece.removeprefix("##")
                texts[segment] += " " if first == 0 and texts[segment] else ""
                start = len(texts[segment])
                texts[segment] += piece
                units[i] = Unit(piece, start, start + len(piece), segment=segment, word=number)
        return tuple(texts), tuple(unit for unit in units if unit is not None)

    def _made_picture(self, made: Mapping[str, Any]) -> dict[str, Any]:
        """The pixels, and a picture to draw on: what the model sees, between its darkest and its brightest."""
        pixels = _only_row(made, PIXELS)
        if self._images is None:
            return {}
        if pixels is None or pixels.dim() != 3:
            raise InputError(f"the model reads the page's picture too: the processor's output needs \"{PIXELS}\"")
        shown = pixels.double().numpy().transpose(1, 2, 0)
        shown = (shown - shown.min()) / max(float(shown.max() - shown.min()), 1e-12)
        picture = Image.fromarray(np.round(255 * shown).astype(np.uint8)).convert("RGB")
        row = PixelRow(picture, pixels, Frame(0, 0, *picture.size), "")
        return {"page": row, "image": picture, "size": picture.size}

    # Batches, options and parts.

    def batches(self, rows: Sequence[TokenRow], size: int) -> list[list[int]]:
        """As texts; pages whose pictures are of one size together."""

        def shape(i: int) -> tuple[int, ...]:
            page = _of(rows[i]).page
            return () if page is None else tuple(page.values.shape)

        found = []
        for batch in super().batches(rows, size):
            found += [list(group) for _, group in groupby(sorted(batch, key=shape), key=shape)]
        return found

    def inputs(self, rows: Sequence[TokenRow]) -> dict[str, Tensor]:
        batch = super().inputs(rows)
        boxes = tokens.even(self.tokenizer, [list(_of(row).bbox) for row in rows], NOWHERE).to(device_of(self.model))
        if config_value(self.model, "bbox_scale") is not None:  # such models read shares of the page
            first = next(parameter for parameter in self.model.parameters() if parameter.is_floating_point())
            boxes = boxes.to(first.dtype) / PAGE
        batch[BOXES] = boxes
        pages = [_of(row).page for row in rows]
        if self._images is not None:
            batch |= self._images.inputs([page for page in pages if page is not None])
        return batch

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[TokenRow], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        settled = super().options(known, given, rows, inputs)
        pages = [page for row in rows if (page := _of(row).page) is not None]
        if self._images is None or "baseline" not in known or "baseline" in given:
            return settled
        own, start = self._images.options(known, {}, pages, inputs)["baseline"], settled.get("baseline")
        both = {**(start if isinstance(start, Mapping) else {}), **(own if isinstance(own, Mapping) else {})}
        return {**settled, "baseline": both}

    def hidden(self, rows: Sequence[TokenRow], inputs: dict[str, Tensor], replacement: str | int | None) -> Tokens:
        if self._images is not None:
            raise InputError("evaluate is for models that read one input, not for those that read a picture too")
        return super().hidden(rows, inputs, replacement)

    def parts(self, row: TokenRow, found: Attribution, number: int) -> tuple[Any, ...]:
        """The words of the page, and its picture where the model reads it."""
        own = _of(row)
        words = own.part("input_ids", self.unpadded(found.parts["input_ids"][number], row))
        if self._images is None or own.page is None:
            return (words,)
        images: tuple[ImagePart, ...] = self._images.parts(own.page, only_of(found, self._images), number)
        return (words, *images)


def _of(row: TokenRow) -> DocumentRow:
    assert isinstance(row, DocumentRow)
    return row


def _document(given: object) -> Document:
    if isinstance(given, Document):
        return given
    got = f"{given!r:.60}" if isinstance(given, str) else type(given).__name__
    raise InputError(f"{_EXPECTED}; got {got}")


def _takes_boxes(tokenizer: Any) -> bool:
    return "boxes" in inspect.signature(type(tokenizer).__call__).parameters


def _only_row(made: Mapping[str, Any], name: str) -> Tensor | None:
    """The entry of the only example, or the tensor without an axis of examples; None where there is none."""
    value = made.get(name)
    if value is None:
        return None
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        value = torch.stack(value)
    value = torch.as_tensor(value)
    axes = {"input_ids": 1, "attention_mask": 1, "token_type_ids": 1, BOXES: 2, PIXELS: 3}[name]
    if value.dim() == axes + 1:
        if len(value) != 1:
            raise InputError(f'"{name}" holds {len(value)} pages: explain them one by one, in a list')
        value = value[0]
    return value


def _shapes(made: Mapping[str, Any]) -> str:
    return ", ".join(f'"{name}" {list(getattr(value, "shape", ()))}' for name, value in made.items()) or "nothing"
