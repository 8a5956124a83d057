"""A picture with a text, read together by one processor: two-tower models, questions about pictures, VLMs."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any, NoReturn

import torch
from PIL import Image
from torch import Tensor, nn

from relprop.engine.model_call import device_of
from relprop.engine.wrappers import arguments_of
from relprop.errors import InputError, ModelError
from relprop.library_logging import quiet
from relprop.model_config import config_value
from relprop.readers import tokens
from relprop.readers.picture import Picture, opened_picture
from relprop.readers.pixel_places import PixelPlaces, element_boxes, on_grid, pixel_places, window_boxes
from relprop.readers.product import ProductReader, RowTuple
from relprop.readers.text import TextReader
from relprop.readers.tokens import TokenRow
from relprop.render.image.part import ImagePart
from relprop.render.text.part import TextPart
from relprop.types import Attribution, Unit

PIXELS, IDS = "pixel_values", "input_ids"
Made = dict[str, Tensor]  # what a processor makes of a picture and a text


@dataclass(frozen=True)
class PictureRow:
    """One picture as the model will read it, with what its processor says of it beside the pixels."""

    picture: Picture
    inputs: Made  # as the processor made them: with their own axis of examples, or packed
    black: Tensor  # the pixels of a black picture
    places: PixelPlaces
    name: str


class PlacedImageReader:
    """Pixels of any layout (patches in a row, tiles, a thumbnail), put back where they lie on the picture."""

    name = "images"
    explains: tuple[str, ...] = (PIXELS,)

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def read(self, given: object, max_length: int | None = None) -> NoReturn:
        raise InputError("the picture is read together with its text")

    def batches(self, rows: Sequence[PictureRow], size: int) -> list[list[int]]:
        """One by one: pictures make different numbers of patches, and processors pack them without padding."""
        return [[i] for i in range(len(rows))]

    def inputs(self, rows: Sequence[PictureRow]) -> dict[str, Tensor]:
        (row,) = rows
        return {name: self._as_input(value) for name, value in row.inputs.items()}

    def options(
        self, known: Collection[str], given: dict[str, object], rows: Sequence[PictureRow], inputs: dict[str, Tensor]
    ) -> dict[str, object]:
        """Integrated gradients starts from black."""
        (row,) = rows
        return {"baseline": {PIXELS: row.black.to(inputs[PIXELS])}, **given} if "baseline" in known else given

    def hidden(self, rows: Sequence[PictureRow], inputs: dict[str, Tensor], replacement: str | int | None) -> NoReturn:
        raise InputError("evaluate compares methods on texts and graphs; for images see relprop.metrics")

    def parts(self, row: PictureRow, found: Attribution, number: int) -> tuple[ImagePart, ...]:
        scores = found.parts[PIXELS][number].double().cpu().numpy()
        windows = found.windows.get(PIXELS)
        if windows is not None:
            own = windows[number if len(windows) > 1 else 0]
            places = row.places if own.shape[1] == row.inputs[PIXELS].dim() else row.places.first()
            boxes = window_boxes(places, own)
        else:
            elements = element_boxes(row.places, len(scores))
            if elements is None:
                raise ModelError(f'"{found.method}" gives {len(scores)} scores that are no windows of the image')
            boxes = elements
        grid, frame, rest = on_grid(boxes, scores, row.picture.size)
        return (ImagePart(PIXELS, row.picture.size, grid, frame, rest, row.name, row.picture),)

    def _as_input(self, values: Tensor) -> Tensor:
        """Where and as what the model computes."""
        if not values.is_floating_point():
            return values.to(device_of(self.model))
        first = next(parameter for parameter in self.model.parameters() if parameter.is_floating_point())
        return values.to(device_of(self.model), first.dtype)


class PromptReader(TextReader):
    """The text beside a picture. Tokens that only hold a place for the picture are no words."""

    def batches(self, rows: Sequence[TokenRow], size: int) -> list[list[int]]:
        return [[i] for i in range(len(rows))]

    def inputs(self, rows: Sequence[TokenRow]) -> dict[str, Tensor]:
        (row,) = rows
        return {name: torch.tensor([values], device=device_of(self.model)) for name, values in row.ids.items()}

    def unpadded(self, scores: Tensor, row: TokenRow) -> list[float]:
        values: list[float] = scores.double().tolist()
        return values

    @property
    def pads_right(self) -> bool:
        return False

    def parts(self, row: TokenRow, found: Attribution, number: int) -> tuple[TextPart, ...]:
        """A run of the same special token (the picture's place, padding) is one unit."""
        ((part),) = super().parts(row, found, number)
        runs = groupby(range(len(part.units)), key=lambda i: part.units[i].text if part.units[i].special else i)
        return (part.grouped([list(run) for _, run in runs]),)


class ImageTextReader(ProductReader):
    """What is given is a tuple of an image and a text, in either order."""

    def __init__(self, model: nn.Module, processor: Any) -> None:
        if getattr(processor, "tokenizer", None) is None or not callable(processor):
            raise ModelError(
                "the model reads a picture and a text together: give its processor, with an image processor and a "
                f"tokenizer, got {type(processor).__name__}"
            )
        self.processor = processor
        self._places: dict[tuple[object, ...], tuple[PixelPlaces, Tensor]] = {}
        super().__init__(model, (PlacedImageReader(model), PromptReader(model, processor.tokenizer)))

    def read(self, given: object, max_length: int | None = None) -> RowTuple:
        image, text = apart(given)
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"the text beside the picture is a string that is not empty, got {text!r:.80}")
        tokens.parts_of(text)
        picture = opened_picture(image)
        prompt, made = self._prompted(picture, text)
        ids: list[int] = made[IDS][0].tolist()
        self._check_length(len(ids), max_length)
        beside = {name: value for name, value in made.items() if _runs_along(value, len(ids))}
        rest = {name: value for name, value in made.items() if name not in beside}
        places, black = self._placed(picture.size, prompt, rest[PIXELS])
        name = os.path.basename(os.fsdecode(image)) if isinstance(image, str | os.PathLike) else ""
        units = _units(self.processor.tokenizer, ids, prompt, text)
        row = TokenRow({one: value[0].tolist() for one, value in beside.items()}, units, None, (text,), None, prompt)
        return PictureRow(picture, rest, black, places, name), row

    def inputs(self, rows: Sequence[RowTuple]) -> dict[str, Tensor]:
        """The text first: its first axis is always that of the examples, and packed pixels have none."""
        merged = super().inputs(rows)
        return {IDS: merged.pop(IDS), **merged}

    def size(self, row: RowTuple) -> int:
        """How many tokens and patches the model reads; several tokens hold the places of patches."""
        picture, text = row
        vision = config_value(self.model, "vision_config")
        side = getattr(vision, "patch_size", None) or config_value(self.model, "patch_size")
        numbers = picture.inputs[PIXELS].numel()
        return len(text.units) + (numbers // (3 * side**2) if isinstance(side, int) and side else 0)

    @property
    def placeholder(self) -> tuple[int, str] | None:
        """The token that holds the picture's place in the text, where the model has one."""
        ids = (config_value(self.model, name) for name in ("image_token_id", "image_token_index"))
        own = next((one for one in ids if isinstance(one, int)), None)
        return None if own is None else (own, str(self.processor.tokenizer.convert_ids_to_tokens(own)))

    def _prompted(self, picture: Picture, text: str) -> tuple[str, Made]:
        """The prompt around the text, and what the processor makes of it: with a place for the picture in it."""
        prompt, place = text, self.placeholder
        if place is not None and place[1] not in text and getattr(self.processor, "chat_template", None):
            content = [{"type": "image"}, {"type": "text", "text": text}]
            messages = [{"role": "user", "content": content}]
            prompt = self.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        if place is not None and place[1] not in prompt and not self._adds_place(picture, prompt, place[0]):
            prompt = place[1] + prompt
        return prompt, self._made(picture, prompt)

    def _adds_place(self, picture: Picture, prompt: str, token: int) -> bool:
        """Whether the processor itself puts the picture's place into the text."""
        try:
            return bool((self._made(picture, prompt)[IDS] == token).any())
        except InputError:
            return False

    def _made(self, picture: Picture, prompt: str) -> Made:
        named = getattr(self.processor.tokenizer, "model_input_names", ())
        padding = {} if "attention_mask" in named else {"padding": "max_length"}  # padding that the model reads
        try:
            with quiet():
                made: Mapping[str, Any] = self.processor(
                    images=[picture], text=[prompt], return_tensors="pt", **padding
                )
        except Exception as error:  # a user's own processor
            reason = next(iter(str(error).splitlines()), "")
            raise InputError(f"the processor failed: {type(error).__name__}: {reason}") from error
        taken = arguments_of(self.model)
        known = [name for name, value in made.items() if name in taken and isinstance(value, Tensor)]
        kept = {name: made[name] for name in known if name != "labels"}
        for name in (PIXELS, IDS):
            if name not in kept:
                raise ModelError(f'the processor gives no "{name}", which the model reads')
        return kept

    def _placed(self, size: tuple[int, int], prompt: str, pixels: Tensor) -> tuple[PixelPlaces, Tensor]:
        """Where the pixels of pictures of this size lie, and those of a black one."""
        key = (size, tuple(pixels.shape))
        if key not in self._places:

            def make(picture: Picture) -> Tensor:
                return self._made(picture, prompt)[PIXELS]

            self._places[key] = pixel_places(make, size), make(Image.new("RGB", size))
        return self._places[key]

    def _check_length(self, count: int, max_length: int | None) -> None:
        assert self.writer is not None
        limit = self.writer.limit(max_length)
        if limit is not None and count > limit:
            raise InputError(f"the text and the picture's places are {count} tokens, and {limit} are read: shorten it")


def apart(given: object) -> tuple[object, object]:
    """The image and the text of a pair, told apart by what they are; of two strings, a file is the image."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise InputError(
            f'the model reads a picture and a text together: give a pair (image, "text"), got {_kind(given)}'
        )
    first, second = given
    texts = [isinstance(one, str) or _are_texts(one) for one in given]
    if texts == [True, False]:
        return second, first
    if texts == [False, False]:
        raise InputError(f"a pair of an image and a text has a text, got {_kind(first)} and {_kind(second)}")
    if texts == [True, True] and not (isinstance(first, str) and os.path.isfile(first)):
        if isinstance(second, str) and os.path.isfile(second):
            return second, first
        raise InputError(f"a pair of an image and a text has an image, and {first!r:.60} is no file of one")
    return first, second


def _are_texts(given: object) -> bool:
    return isinstance(given, list | tuple) and bool(given) and all(isinstance(one, str) for one in given)


def _kind(given: object) -> str:
    return f"{given!r:.60}" if isinstance(given, str) else type(given).__name__


def _runs_along(value: Tensor, count: int) -> bool:
    """Whether a tensor has an entry for every token."""
    return not value.is_floating_point() and value.dim() > 1 and value.shape[:2] == (1, count)


def _special_ids(tokenizer: Any) -> set[int]:
    """Tokens that are no words, those of the picture's place among them."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {*tokenizer.all_special_ids, *(number for number, token in added.items() if token.special)}


def _units(tokenizer: Any, ids: Sequence[int], prompt: str, text: str) -> tuple[Unit, ...]:
    """The tokens, those of the text with their places in it; what the template and the processor added is special.

    The tokens of the prompt alone are found again, in their order, among those that the processor made.
    """
    names = tokenizer.convert_ids_to_tokens(list(ids))
    units = [Unit(name, special=True) for name in names]
    begin, special = prompt.find(text), _special_ids(tokenizer)
    if not getattr(tokenizer, "is_fast", False):
        plain = [tokenizer.convert_tokens_to_string([name]).strip() or name for name in names]
        return tuple(
            unit if token in special else Unit(word) for unit, token, word in zip(units, ids, plain, strict=True)
        )
    known = tokenizer(prompt, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    places, ends = known["offset_mapping"], tokens.word_ends(text)
    matcher = SequenceMatcher(None, known[IDS], list(ids), autojunk=False)
    for block in matcher.get_matching_blocks():
        for k in range(block.size):
            start, end = (min(max(one - begin, 0), len(text)) for one in places[block.a + k])
            if start < end and ids[block.b + k] not in special:
                units[block.b + k] = tokens.unit_at(text, ends, start, end)
    return tuple(units)
