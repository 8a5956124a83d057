"""Tasks: a model's outputs -> the number that is explained, and its words for people.

A new task is one file here. Tasks of other packages join by the entry point group "relprop.tasks": a function of
(model, reader) that returns a task, or None for models it is not meant for.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from relprop.encoders import TextEncoder
from relprop.engine.model_call import (
    answers_questions,
    compares,
    detects_objects,
    estimates_depth,
    fills_masks,
    generates,
    gives_numbers,
    is_ctc,
    is_tagger,
    predicts_next_sentence,
    segments,
)
from relprop.plugins import plugins
from relprop.readers import Reader
from relprop.readers.choices import ChoiceReader
from relprop.readers.encoder import EncoderReader
from relprop.readers.text import TextReader
from relprop.tasks.classes import ClassScore
from relprop.tasks.task import Answered, Query, Task

__all__ = ["Answered", "Query", "Task", "task_of"]


def task_of(model: nn.Module, reader: Reader[Any]) -> Task:
    """The task of a model, chosen by its signature and config. Only that one is imported."""
    for point in plugins("relprop.tasks"):
        other: Task | None = point.load()(model, reader)
        if other is not None:
            return other
    if reader.name == "sounds" and is_ctc(model):
        from relprop.readers.audio import AudioReader
        from relprop.tasks.spoken_words import SpokenWords

        assert isinstance(reader, AudioReader)
        return SpokenWords(model, reader)
    if reader.name == "series" and gives_numbers(model):
        from relprop.readers.series import SeriesReader
        from relprop.tasks.forecast import Forecast

        assert isinstance(reader, SeriesReader)
        return Forecast(model, reader)
    if not isinstance(reader, TextReader):
        if generates(model) and getattr(reader, "writer", None) is not None:
            from relprop.tasks.token import TokenScore

            return TokenScore(model, reader)
        from relprop.readers.image_text import ImageTextReader

        if isinstance(reader, ImageTextReader) and compares(model):
            from relprop.tasks.pairs import PairScore

            return PairScore(model, reader)
        return _picture_task(model, reader)
    if isinstance(reader, EncoderReader) and isinstance(model, TextEncoder):
        from relprop.tasks.similarity import Similarity

        return Similarity(model, reader)
    if isinstance(reader, ChoiceReader):
        from relprop.tasks.choices import ChoiceScore

        return ChoiceScore(model, reader)
    if answers_questions(model):
        from relprop.tasks.answers import AnswerSpan

        return AnswerSpan(model, reader)
    if is_tagger(model):
        from relprop.tasks.tags import TokenClass

        return TokenClass(model, reader)
    if predicts_next_sentence(model):
        from relprop.tasks.next_sentence import NextSentence

        return NextSentence(model, reader)
    if generates(model) or (fills_masks(model) and reader.tokenizer.mask_token_id is not None):
        from relprop.tasks.token import TokenScore

        return TokenScore(model, reader)
    return ClassScore(model, reader)


def _picture_task(model: nn.Module, reader: Reader[Any]) -> Task:
    """The task of a model that reads no text: numbers of boxes or of pixels where it gives these, else of classes."""
    if not (detects_objects(model) or segments(model) or estimates_depth(model)):
        return ClassScore(model, reader)
    from relprop.readers.image import ImageReader

    if not isinstance(reader, ImageReader):
        return ClassScore(model, reader)
    if detects_objects(model):
        from relprop.tasks.detection import DetectedObject

        return DetectedObject(model, reader)
    from relprop.tasks.regions import PixelNumber, RegionClass

    return (RegionClass if segments(model) else PixelNumber)(model, reader)
