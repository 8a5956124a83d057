"""Readers: what a user gives of one modality -> model inputs with their units, and scores -> parts.

A new modality is one file here and one package in `relprop.render`. Readers of other packages join by the entry point
group "relprop.readers": a function of (model, processor) that returns a reader, or None for models it does not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from relprop.engine.model_call import chooses, compares, generates, reads_videos
from relprop.engine.wrappers import arguments_of
from relprop.errors import ModelError
from relprop.model_config import config_value
from relprop.plugins import plugins
from relprop.readers.reader import Reader, read_all
from relprop.readers.transforms import as_processor

__all__ = ["Reader", "read_all", "reader_of"]


OTHER_INPUTS = {
    "pixel_values": ("pictures", "image processor"),
    "input_values": ("sounds", "feature extractor"),
    "input_features": ("sounds", "feature extractor"),
}


def reader_of(model: nn.Module, processor: Any, columns: Sequence[str] | None = None) -> Reader[Any]:
    """The reader of a model, chosen by its signature, config and processor. Only that one is imported.

    `columns`: the names of what a model of series or tables reads.
    """
    for point in plugins("relprop.readers"):
        other: Reader[Any] | None = point.load()(model, processor)
        if other is not None:
            return other
    if {"nodes", "adjacency"} <= arguments_of(model):
        from relprop.readers.graph import GraphReader

        return GraphReader(model)
    if "past_values" in arguments_of(model):
        from relprop.readers.series import SeriesReader

        return SeriesReader(model, columns)
    if columns is not None:
        from relprop.readers.features import FeatureReader

        return FeatureReader(model, columns)
    if writes_with_decoder(model):
        if reads_boxes(model):
            raise ModelError("a model that writes about a page is not read yet: use relprop.attribute with its inputs")
        from relprop.readers.decoder_text import DecoderReader, EncoderDecoderReader

        decoder = DecoderReader(model, tokenizer_of(processor))
        return EncoderDecoderReader(model, source_reader(model, processor), decoder)
    return source_reader(model, processor)


def source_reader(model: nn.Module, processor: Any) -> Reader[Any]:
    """The reader of what the model is given: a picture, a video, a sound, a text, or a picture with a text."""
    processor = as_processor(model, processor)
    if reads_videos(model):
        from relprop.readers.video import VideoReader

        return VideoReader(model, processor)
    if reads_boxes(model):
        from relprop.readers.document import DocumentReader

        return DocumentReader(model, processor)
    if reads_pictures_and_texts(model) and (has_both(processor) or compares(model) or processor is None):
        from relprop.readers.image_text import ImageTextReader

        return ImageTextReader(model, processor)
    if "pixel_values" in (getattr(processor, "model_input_names", None) or []):
        from relprop.readers.image import ImageReader

        return ImageReader(model, getattr(processor, "image_processor", processor))
    if processor is not None:
        from relprop.readers.audio import AudioReader, sound_argument

        if sound_argument(processor):
            return AudioReader(model, processor)
    if chooses(model):
        from relprop.readers.choices import ChoiceReader

        return ChoiceReader(model, processor)
    if hasattr(model, "prompts") and hasattr(model, "max_length"):
        from relprop.readers.encoder import EncoderReader

        return EncoderReader(model, processor)
    from relprop.readers.text import TextReader

    check_takes_tokens(model)
    return TextReader(model, tokenizer_of(processor))


def check_takes_tokens(model: nn.Module) -> None:
    """Raise where a model of pictures or sounds came with a tokenizer, or with nothing."""
    taken = arguments_of(model)
    for argument, (what, which) in OTHER_INPUTS.items():
        if argument in taken and not {"input_ids", "inputs_embeds"} & set(taken):
            raise ModelError(f'the model reads {what} ("{argument}"): give its {which}, Explainer(model, processor)')


def writes_with_decoder(model: nn.Module) -> bool:
    """Whether a decoder of its own writes the text, beside what the model reads."""
    decodes = bool(config_value(model, "is_encoder_decoder")) and "decoder_input_ids" in arguments_of(model)
    return generates(model) and decodes


def reads_pictures_and_texts(model: nn.Module) -> bool:
    """Whether the model takes both together."""
    return {"pixel_values", "input_ids"} <= set(arguments_of(model))


def reads_boxes(model: nn.Module) -> bool:
    """Whether the model takes a box on the page for every token."""
    return {"bbox", "input_ids"} <= set(arguments_of(model))


def has_both(processor: Any) -> bool:
    """Whether a processor makes inputs of pictures and of texts."""
    return all(getattr(processor, name, None) is not None for name in ("image_processor", "tokenizer"))


def tokenizer_of(processor: Any) -> Any:
    """The tokenizer of a processor, or the tokenizer itself."""
    return getattr(processor, "tokenizer", None) or processor
