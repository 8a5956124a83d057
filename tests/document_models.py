"""Tiny models that read words with boxes, one of them the page's picture too."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image

import relprop
from relprop.paired_processor import PairedProcessor

WORDS = ["Invoice", "Total", "unwatchable", "42.50", "Paris"]
BOXES = [[60, 40, 320, 90], [80, 500, 200, 540], [420, 480, 640, 560], [700, 500, 820, 540], [90, 800, 260, 850]]
QUESTION = "what is the total?"
LABELS = {"id2label": {0: "O", 1: "B-TOTAL", 2: "I-TOTAL"}}
SIZE = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")


def page(size: tuple[int, int] = (90, 120), seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(120, 255, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def document(image: Any = None, **more: Any) -> relprop.Document:
    return relprop.Document(WORDS, BOXES, image, **more)


def tokenizer() -> Any:
    """BERT's, with the embedded model's words: it knows nothing of boxes."""
    return relprop.Explainer("sentiment").tokenizer


@cache
def layout_tokenizer() -> Any:
    """One that takes boxes itself."""
    return transformers.LayoutLMv2Tokenizer(vocab=dict(tokenizer().get_vocab()), do_lower_case=True)


@cache
def processor() -> Any:
    """With a reader of pictures that would look for words itself, if it were asked to."""
    images = transformers.LayoutLMv3ImageProcessor(size={"height": 32, "width": 32}, apply_ocr=True)
    return PairedProcessor(images, layout_tokenizer())


def _built(kind: Any, config: Any) -> Any:
    """Random weights far from zero, so that every input counts."""
    torch.manual_seed(0)
    model = kind(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3 / parameter.shape[-1] ** 0.25)
    return model.eval().double()


@cache
def model(family: str, head: str) -> Any:
    words = {**SIZE, "vocab_size": len(tokenizer()), "max_position_embeddings": 64, "pad_token_id": 0}
    words |= {} if head == "QuestionAnswering" else LABELS
    configs = {
        "LayoutLM": {"hidden_size": 48, "max_2d_position_embeddings": 1024},
        "Lilt": {"hidden_size": 48, "max_2d_position_embeddings": 1024, "channel_shrink_ratio": 2},
        "Bros": {"hidden_size": 64},
        "LayoutLMv3": {
            "hidden_size": 48, "coordinate_size": 8, "shape_size": 8, "input_size": 32, "patch_size": 8,
            "max_2d_position_embeddings": 1024,
        },
    }  # fmt: skip
    config = getattr(transformers, f"{family}Config")(**words, **configs[family])
    return _built(getattr(transformers, f"{family}For{head}"), config)
