"""Tiny random models for tests, with weights large enough that a wrong rule shows."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from tiny_models import Case, build, cases

# One of each kind: post-norm, shared layers, relative positions, pre-norm, rotary, gated MLP, mixture, encoder-decoder.
CLASSIFIERS = (
    "BertForSequenceClassification",
    "DistilBertForSequenceClassification",
    "RobertaForSequenceClassification",
    "ElectraForSequenceClassification",
    "AlbertForSequenceClassification",
    "DebertaV2ForSequenceClassification",
    "ModernBertForSequenceClassification",
    "XLNetForSequenceClassification",
    "GPT2ForSequenceClassification",
    "LlamaForSequenceClassification",
    "Qwen2MoeForSequenceClassification",
    "T5ForSequenceClassification",
    "BartForSequenceClassification",
)


@cache
def case(architecture: str) -> Case:
    return next(one for one in cases() if one.architecture == architecture)


def tiny(architecture: str, dtype: torch.dtype = torch.float64) -> tuple[Any, dict[str, Tensor]]:
    """A fresh tiny model in eval mode and a batch of 2 x 7 tokens."""
    return build(case(architecture), dtype=dtype)
